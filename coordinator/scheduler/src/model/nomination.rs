//! Promises of units to requests that cannot start yet.
//!
//! | | soft | firm |
//! |---|---|---|
//! | made for | the head of a pool, when no victims help | any waiter, when it takes victims |
//! | waits for | runs that end by themselves | victims that were told to go |
//! | keeps units from | those behind it that could not be made to give way; all behind it where what it waits for is being released | everybody |
//! | ends when | it starts, ends, is overtaken in order, or its hosts can no longer hold it | it starts or ends, or its hosts can no longer hold it |

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName};

/// A place in a pool that is kept for a request, and the runs whose end it awaits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nomination {
    pub pool: PoolName,
    /// On which hosts, by rank.
    pub hosts: Vec<NodeName>,
    /// Runs whose units it awaits and that still hold some.
    pub awaits: BTreeSet<AttemptId>,
    /// Whether these were told to go.
    pub firm: bool,
    /// By which platform it was found, where the request asks for one: its GPUs there are of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformName>,
}

impl Nomination {
    /// Whether nobody else may have its units.
    pub fn is_firm(&self) -> bool {
        self.firm
    }
}
