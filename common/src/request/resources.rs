//! How much a step asks for, as it is written.

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

/// How much a step takes, in the field names of ZenML's `ResourceSettings`, so that its settings object is a valid
/// value here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ResourceSettings {
    /// Whole GPUs on each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u64>,
    /// Cores on each host; thousandths count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<f64>,
    /// Such as `16GiB`, on each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Such as `100GiB` of disk space below the host's state directory, on each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// `true` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// Amounts of custom keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pool_resources: BTreeMap<String, u64>,
    /// Of deployed services; only its default is accepted until there are services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u64>,
    /// Of deployed services; only its default is accepted until there are services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<u64>,
    /// Of deployed services; only its default is accepted until there are services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling_metric: Option<String>,
    /// Of deployed services; only its default is accepted until there are services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling_target: Option<f64>,
    /// Of deployed services; only its default is accepted until there are services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u64>,
}

/// `cpu_count` is compared by its bits, so that equality is total: two equal requests are equal texts.
impl Eq for ResourceSettings {}
