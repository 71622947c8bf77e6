//! Records of steps.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use sluice_common::allocation::HolderState;
use sluice_common::array::IndexSet;
use sluice_common::id::{PoolName, StepId};
use sluice_common::shared::{Shared, arc};
use sluice_common::state::StepState;
use sluice_common::step::{StepSpec, serialize_without_env_values};
use sluice_common::time::{Span, Time};
use sluice_reasons::Cause;

use crate::model::cluster::Route;
use crate::model::template::Provenance;

/// A step was accepted and queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct StepQueued {
    pub step: StepId,
    /// The spec. The values of its variables are never written with it: they are stored apart.
    #[serde(
        serialize_with = "serialize_without_env_values",
        deserialize_with = "arc::deserialize"
    )]
    pub spec: Arc<StepSpec>,
    /// Steps on which it depends and which have not ended as required yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unmet: BTreeSet<StepId>,
    /// Time before which it does not start, if that has not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Pools whose rules excluded it.
    #[serde(rename = "barred", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded_pools: BTreeSet<PoolName>,
    /// Route by the cluster's defaults.
    #[serde(rename = "home", default, skip_serializing_if = "Route::is_empty")]
    pub route: Shared<Route>,
    /// Templates under it, in every place where it may be granted.
    #[serde(
        rename = "grounds",
        default,
        skip_serializing_if = "Provenance::is_empty"
    )]
    pub provenance: Shared<Provenance>,
}

/// A queued step was moved to another pool, in its old place. It was checked and filled in as if it were submitted
/// there now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct StepMoved {
    pub step: StepId,
    /// The new pool.
    pub pool: PoolName,
    /// The spec with what the new pool fills in, without the values of its variables. Its `pool` stays as it was
    /// submitted.
    #[serde(
        serialize_with = "serialize_without_env_values",
        deserialize_with = "arc::deserialize"
    )]
    pub spec: Arc<StepSpec>,
    /// Pools whose rules exclude it.
    #[serde(rename = "barred", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded_pools: BTreeSet<PoolName>,
    /// Route to the new pool.
    #[serde(rename = "home", default, skip_serializing_if = "Route::is_empty")]
    pub route: Shared<Route>,
    /// Templates under it in the new pool.
    #[serde(
        rename = "grounds",
        default,
        skip_serializing_if = "Provenance::is_empty"
    )]
    pub provenance: Shared<Provenance>,
}

/// A step was rejected because it could never be granted. It is stored all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct StepRejected {
    pub step: StepId,
    /// The spec, without the values of its variables, as in [`StepQueued`].
    #[serde(
        serialize_with = "serialize_without_env_values",
        deserialize_with = "arc::deserialize"
    )]
    pub spec: Arc<StepSpec>,
    /// The reason, with the numbers.
    #[cfg_attr(feature = "schema", schemars(with = "sluice_common::reason::Reason"))]
    pub reason: Cause,
}

/// A step reached a terminal state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct StepEnded {
    pub step: StepId,
    pub state: StepState,
    #[cfg_attr(feature = "schema", schemars(with = "sluice_common::reason::Reason"))]
    pub reason: Cause,
}

/// The holder of an allocation renewed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct Renewal {
    pub step: StepId,
    /// Time at which it ends unless it is renewed again.
    pub until: Time,
    /// Time for which this renewal holds.
    pub lease: Span,
    /// State of its holder's work, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderState>,
}

/// A part of an array entered the queue, at the place of its array. From now on it is a step of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PartQueued {
    /// The part: the id of its array, a dot and the index.
    pub step: StepId,
    pub array: StepId,
    pub index: u32,
}

/// Parts of an array ended that had not entered the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct PartsEnded {
    /// Id of the array.
    pub step: StepId,
    /// Indexes of the parts.
    pub parts: IndexSet,
    pub state: StepState,
    #[cfg_attr(feature = "schema", schemars(with = "sluice_common::reason::Reason"))]
    pub reason: Cause,
}
