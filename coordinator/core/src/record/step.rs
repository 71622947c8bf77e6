//! Records of steps.

use alloc::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use sluice_common::id::{PoolName, StepId};
use sluice_common::state::StepState;
use sluice_common::step::{StepSpec, serialize_without_env_values};
use sluice_reasons::Cause;

use crate::model::cluster::Route;
use crate::model::template::Provenance;

/// A step was accepted and waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct StepQueued {
    pub step: StepId,
    /// What to run. The values of its variables are never written with it: they are kept apart.
    #[serde(serialize_with = "serialize_without_env_values")]
    pub spec: StepSpec,
    /// Pools whose rules did not let it in.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub barred: BTreeSet<PoolName>,
    /// Where the cluster's defaults send it.
    #[serde(default, skip_serializing_if = "Route::is_empty")]
    pub home: Route,
    /// What templates lay under it, wherever it may be granted.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub grounds: Provenance,
}

/// A step was refused for good: it could never be granted. It is stored all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct StepRejected {
    pub step: StepId,
    /// What it asked for, written like that of [`StepQueued`].
    #[serde(serialize_with = "serialize_without_env_values")]
    pub spec: StepSpec,
    /// Why, with the numbers.
    #[cfg_attr(feature = "schema", schemars(with = "sluice_common::reason::Reason"))]
    pub reason: Cause,
}

/// A step came to a terminal state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct StepEnded {
    pub step: StepId,
    pub state: StepState,
    #[cfg_attr(feature = "schema", schemars(with = "sluice_common::reason::Reason"))]
    pub reason: Cause,
}
