//! Stored recovery state, and the warrants by which attempts are recognised.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, Serializer};

use sluice_common::array::split_part_id;
use sluice_common::id::{PoolName, StepId};
use sluice_common::shared::{Shared, arc};
use sluice_common::step::StepSpec;
use sluice_common::time::Time;
use sluice_common::wire::StartedProcess;

use crate::model::array::ArrayPart;
use crate::model::cluster::Route;
use crate::model::placement::Placement;
use crate::model::template::Provenance;

/// The reason why hosts may run attempts that the store does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecoveryCause {
    /// The store was restored from a backup.
    Restored,
    /// The store was lost and made anew; the cluster is older.
    StoreLost,
    /// A host has obeyed a later coordinator than this store knows.
    LaterEpoch,
}

/// The way in which a recovery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecoveryEnd {
    /// Every host has reported what it runs, or its attempts have stopped.
    Complete,
    /// An admin did not wait for that.
    Ordered,
}

/// A point in the log: grants up to it are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPoint {
    /// Counter of the epoch that wrote there.
    pub epoch: u64,
    /// Number of the record.
    pub seq: u64,
}

/// A recovery under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    pub why: RecoveryCause,
    pub since: Time,
    /// Last position in the log of which the store knows all grants.
    pub known: LogPoint,
}

/// Everything that the coordinator needs to adopt an attempt. The host keeps it and shows it when it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warrant {
    /// Position in the log when the host was told.
    pub told_at: LogPoint,
    pub submitted_at: Time,
    #[serde(
        serialize_with = "arc::serialize",
        deserialize_with = "arc::deserialize"
    )]
    pub spec: Arc<StepSpec>,
    /// Whether the step is a part of the array that its id names.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_part: bool,
    /// Pools whose rules excluded it.
    #[serde(rename = "barred", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded_pools: BTreeSet<PoolName>,
    /// Route by the cluster's defaults.
    #[serde(rename = "home", default, skip_serializing_if = "Route::is_empty")]
    pub route: Shared<Route>,
    /// Templates under it.
    #[serde(
        rename = "grounds",
        default,
        skip_serializing_if = "Provenance::is_empty"
    )]
    pub provenance: Shared<Provenance>,
    /// Number of retries used up.
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
    /// The array and the index of the step with this id, if it is a part.
    pub(crate) fn part_of(&self, step: &StepId) -> Option<ArrayPart> {
        let (array, index) = split_part_id(step).filter(|_| self.is_part)?;
        Some(ArrayPart { array, index })
    }

    /// Serialises the spec as in records: without the values of its variables.
    pub(crate) fn without_values<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut hidden = self.clone();
        Arc::make_mut(&mut hidden.spec).env = self.spec.env.hidden();
        hidden.serialize(serializer)
    }
}

/// An attempt that was frozen when it was adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FrozenOnHost {
    pub process: StartedProcess,
    /// Memory that was moved from its GPUs to the host.
    pub moved_mb: u64,
}
