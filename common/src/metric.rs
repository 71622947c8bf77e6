//! Metrics that replicas of a service serve themselves, in the text format of Prometheus: the name of one, where the host
//! reads it, and what the host read.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::NameError;
use crate::port::PortName;

/// Longest name of a metric, in bytes.
pub const MAX_METRIC_NAME_BYTES: usize = 200;

/// Longest reason for which a metric is unknown, in bytes.
pub const MAX_UNKNOWN_BYTES: usize = 300;

/// Path at which a metric is read if none is written.
pub const DEFAULT_METRIC_PATH: &str = "/metrics";

/// Name of a metric as Prometheus has it: letters, digits, `_` and `:`, with no digit first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct MetricName(String);

impl MetricName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for MetricName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for MetricName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let is_first = |b: u8| b.is_ascii_alphabetic() || b == b'_' || b == b':';
        let is_inside = |b: u8| is_first(b) || b.is_ascii_digit();
        let begins = text.bytes().next().is_some_and(is_first);
        if begins && text.bytes().all(is_inside) && text.len() <= MAX_METRIC_NAME_BYTES {
            return Ok(Self(text));
        }
        Err(NameError {
            kind: "metric",
            text,
            rule: "use 1 to 200 letters, digits, `_` and `:`, and no digit first",
        })
    }
}

impl From<MetricName> for String {
    fn from(name: MetricName) -> Self {
        name.0
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_a_name_of_prometheus() {
        for good in ["up", "vllm:num_requests_running", "_a1"] {
            assert_eq!(good.parse::<MetricName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(MAX_METRIC_NAME_BYTES + 1);
        for bad in ["", "1a", "a-b", "a{b=\"c\"}", "\u{e9}", &long] {
            let error = bad.parse::<MetricName>().unwrap_err();
            assert_eq!(error.kind, "metric", "{bad}");
        }
    }
}
