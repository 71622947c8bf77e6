//! Stored recovery state, and the warrants by which attempts are recognised.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, Serializer};

use sluice_common::id::PoolName;
use sluice_common::step::StepSpec;
use sluice_common::time::Time;
use sluice_common::wire::StartedProcess;

use crate::model::cluster::Route;
use crate::model::placement::Placement;
use crate::model::template::Provenance;

/// Why hosts may run what the store does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecoveryCause {
    /// The store was put back from a backup.
    Restored,
    /// The store was lost: this one is new, and the cluster is not.
    StoreLost,
    /// A host has obeyed a later coordinator than this store knows of.
    LaterEpoch,
}

/// How a recovery came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecoveryEnd {
    /// Every host has told what it runs, or what it ran has stopped.
    Complete,
    /// An admin did not wait for that.
    Ordered,
}

/// A point in the log: what was granted up to it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPoint {
    /// The epoch that wrote there, its counter alone.
    pub epoch: u64,
    /// The number of the record.
    pub seq: u64,
}

/// A recovery under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    pub why: RecoveryCause,
    pub since: Time,
    /// Up to where the store knows what was granted.
    pub known: LogPoint,
}

/// All that must be known of an attempt to go on with it: its host keeps it and shows it when it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warrant {
    /// Where the log stood when the host was told.
    pub told_at: LogPoint,
    /// When the step was accepted.
    pub submitted_at: Time,
    pub spec: StepSpec,
    /// Pools whose rules did not let it in.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub barred: BTreeSet<PoolName>,
    /// Where the cluster's defaults sent it.
    #[serde(default, skip_serializing_if = "Route::is_empty")]
    pub home: Route,
    /// What templates lay under it.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub grounds: Provenance,
    /// How many of its retries were used up.
    #[serde(default)]
    pub retries_spent: u32,
    /// The pool that granted its resources.
    pub pool: PoolName,
    pub placements: Vec<Placement>,
    /// The port at which the parts of a gang meet.
    #[serde(default)]
    pub port: Option<u16>,
}

impl Warrant {
    /// Writes it as a step is written in records: without the values of its variables.
    pub(crate) fn without_values<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut told = self.clone();
        told.spec.env = self.spec.env.hidden();
        told.serialize(serializer)
    }
}

/// An attempt that was frozen when it was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FrozenOnHost {
    pub process: StartedProcess,
    /// What was moved from its GPUs to the host's memory.
    pub moved_mb: u64,
}
