//! Metrics that replicas of a service serve themselves, in the text format of Prometheus: the name of one, where the host
//! reads it, and what the host read.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::port::PortName;

pub use crate::id::MetricName;

/// Longest reason for which a metric is unknown, in bytes.
pub const MAX_UNKNOWN_BYTES: usize = 300;

/// Path at which a metric is read if none is written.
pub const DEFAULT_METRIC_PATH: &str = "/metrics";

/// The place at which a host reads a metric of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricSource {
    /// Name of the metric. The values of all its series are added.
    pub name: MetricName,
    /// Name of the replica's port.
    pub port: PortName,
    /// Path and query.
    pub path: String,
}

/// Value of a metric that a host read from a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricReading {
    /// Name of the metric.
    pub name: MetricName,
    /// Sum of its series in thousandths, or why it is unknown, as one clause of at most [`MAX_UNKNOWN_BYTES`].
    pub value: Result<u64, String>,
}
