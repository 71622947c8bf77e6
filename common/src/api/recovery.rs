//! State of a recovery as the API shows it.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Whether the coordinator runs on an older store and waits for its hosts to report what they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Recovery")
)]
pub struct RecoveryView {
    /// If true, no new steps start.
    pub recovering: bool,
    /// Cause: `restored` (from a backup), `store_lost` (created anew) or `later_epoch` (a host has obeyed a coordinator
    /// that this store does not know).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Time when the recovery began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<jiff::Timestamp>,
    /// Latest time at which the recovery ends by itself; anything not reported by then has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<jiff::Timestamp>,
    /// Known nodes that have not reported yet and are not lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreported: Vec<String>,
}
