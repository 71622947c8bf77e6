//! A recovery, as it is shown.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Whether the coordinator was brought back from a time before what its hosts know, and waits for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Recovery")
)]
pub struct RecoveryView {
    /// Whether it does: nothing new starts.
    pub recovering: bool,
    /// Why: `restored` from a backup, `store_lost` and made anew, or `later_epoch`: a host has obeyed a coordinator that
    /// this store knows nothing of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<jiff::Timestamp>,
    /// When it ends by itself at the latest; by then all has stopped that no host has told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<jiff::Timestamp>,
    /// The remembered nodes that have not told yet what they run, and are not lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreported: Vec<String>,
}
