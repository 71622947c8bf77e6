//! Whom changes of terms touch.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Somebody uses what a change takes away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "InUse")
)]
pub struct InUseView {
    /// What of, with the numbers.
    pub message: String,
    /// The steps that use it.
    pub steps: Vec<String>,
}

/// A step that gives way, and to which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Preempted")
)]
pub struct PreemptedView {
    /// Which gives way.
    pub step: String,
    /// To which.
    pub by: String,
}
