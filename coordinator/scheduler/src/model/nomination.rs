//! Nominations: places that are kept for requests that cannot start yet.
//!
//! | | soft | firm |
//! |---|---|---|
//! | made for | the head of a pool, if preemption does not help | any request that preempts |
//! | waits for | runs that end by themselves | victims that are stopping |
//! | keeps resources from | non-preemptible requests behind it; all requests behind it once what it waits for is being released | all other requests |
//! | ends when | the request starts, ends or is overtaken in order, or its hosts can no longer hold it | the request starts or ends, or its hosts can no longer hold it |

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName};

/// A place in a pool that is kept for a request, and the runs whose end it awaits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nomination {
    pub pool: PoolName,
    /// Hosts by rank.
    pub hosts: Vec<NodeName>,
    /// Runs whose resources are awaited and that still hold some.
    pub awaits: BTreeSet<AttemptId>,
    /// Whether the awaited runs were told to stop.
    pub firm: bool,
    /// Platform by which the hosts were found, if the request asks for one; its GPUs are of this platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformName>,
}

impl Nomination {
    /// Whether no other request may have its resources.
    pub fn is_firm(&self) -> bool {
        self.firm
    }
}
