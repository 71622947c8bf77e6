//! A record with its number and time, as it is in the log.

use serde::{Deserialize, Serialize};
use sluice_common::time::Time;

use super::Record;

/// A record with its number and time. `seq` counts from 1 without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Event")
)]
pub struct LogEntry {
    /// Number of the record in the log.
    pub seq: u64,
    /// Time of the decision.
    pub at: Time,
    #[serde(flatten)]
    pub record: Record,
}
