//! Requested resources as written.

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::demand::ResourceDemands;
use crate::allocation::ReclaimTolerance;
use crate::mig::MigRequest;
use crate::shared::SharedDefault;

/// Requested resources per host, with the field names of ZenML's `ResourceSettings`, whose settings objects are
/// accepted as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ResourceSettings {
    /// Number of whole GPUs per host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u64>,
    /// Slices of GPUs per host, instead of whole GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigRequest>,
    /// Number of cores per host; up to three decimals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<f64>,
    /// Memory per host, such as `16GiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Disk space below the host's state directory per host, such as `100GiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Whether the step may be preempted; `true` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// Amounts of custom resource keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pool_resources: BTreeMap<String, u64>,
    /// Fewest replicas of a service; 0 lets it sleep. As many as `max_replicas` fix the number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u64>,
    /// Most replicas of a service; 0 sets no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<u64>,
    /// Measured value by which the number of replicas of a service is decided: `cpu`, `memory`, `concurrency` or `rps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling_metric: Option<String>,
    /// Value of the metric that each replica of a service is to have, such as `70` for 70 % of its CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling_target: Option<f64>,
    /// Most requests that one replica of a service is given at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u64>,
    /// ZenML's name for `platform`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_class: Option<String>,
    /// ZenML's newer name for `pool_resources`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceDemands>,
    /// ZenML's newer name for `preemptible`: `none` is `false`, `coordinated` and `any` are `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_tolerance: Option<ReclaimTolerance>,
    /// ZenML's name for `queue_timeout`, in seconds; `queue_timeout` itself goes before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_wait_timeout_seconds: Option<u64>,
    /// Part of ZenML's settings that changes nothing: what a step is granted stays its own while it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization_lease_seconds: Option<u64>,
}

/// No value of `cpu_count` is NaN, so equality is total.
impl Eq for ResourceSettings {}

impl SharedDefault for ResourceSettings {
    fn default_ref() -> &'static Self {
        static DEFAULT: ResourceSettings = ResourceSettings {
            gpu_count: None,
            mig: None,
            cpu_count: None,
            memory: None,
            storage: None,
            preemptible: None,
            pool_resources: BTreeMap::new(),
            min_replicas: None,
            max_replicas: None,
            autoscaling_metric: None,
            autoscaling_target: None,
            max_concurrency: None,
            gpu_class: None,
            resources: None,
            reclaim_tolerance: None,
            allocation_wait_timeout_seconds: None,
            initialization_lease_seconds: None,
        };
        &DEFAULT
    }
}
