//! Records of services and their replicas.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::id::{ServiceName, StepId};
use sluice_common::service::{ScaleMetric, ServiceSpec};
use sluice_common::time::Time;

use crate::model::service::{FailedVersion, ReplicaFailure, ReplicaPhase};

/// A service was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ServicePut {
    pub service: ServiceName,
    /// The version of its replicas; a new one if they change.
    pub revision: u32,
    /// The spec, without the values of its variables.
    pub spec: ServiceSpec,
    /// The version from which it goes back, because that did not become ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<FailedVersion>,
    /// The version that is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgets: Option<u32>,
}

/// The number of replicas of a service was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ServiceScale {
    pub service: ServiceName,
    pub count: u32,
    /// The load; `None` if a caller set the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<ServiceLoad>,
}

/// The load by which the number of replicas of a service was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ServiceLoad {
    pub metric: ScaleMetric,
    /// Value for all replicas together, in thousandths; `None` if it was unknown.
    pub total_milli: Option<u64>,
}

/// A service has no replica left after it was deleted, and is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ServiceDeleted {
    pub service: ServiceName,
    /// Versions that are no longer kept.
    pub revisions: Vec<u32>,
}

/// A step is a replica of a service from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ReplicaStarted {
    pub service: ServiceName,
    pub number: u32,
    pub replica: StepId,
    /// Version of the replica.
    pub revision: u32,
}

/// A replica became ready, is ready no more, or is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ReplicaChanged {
    pub service: ServiceName,
    pub number: u32,
    pub replica: StepId,
    pub phase: ReplicaPhase,
}

/// The step of a replica has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ReplicaEnded {
    pub service: ServiceName,
    pub number: u32,
    pub replica: StepId,
}

/// A replica ended that was not to end, or could not be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct ReplicaFailed {
    pub service: ServiceName,
    pub failure: ReplicaFailure,
    /// Number of failures in a row.
    pub failures: u32,
    /// Time before which no other is added.
    pub restart_at: Time,
}
