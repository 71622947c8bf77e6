//! Steps and objects affected by a change.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Something that still uses what a change removes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "InUse")
)]
pub struct InUseView {
    /// Description of the use, with the numbers.
    pub message: String,
    /// Steps that use it.
    pub steps: Vec<String>,
}

/// A preempted step and the step that preempted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Preempted")
)]
pub struct PreemptedView {
    /// The step that is preempted.
    pub step: String,
    /// The step that takes its place.
    pub by: String,
}

/// Effect of a change on the GPUs of a host that a platform wants to be cut into slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "CarvePlan")
)]
pub struct CarvePlanView {
    /// The node; absent for those that are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Description of the effect, with the numbers.
    pub message: String,
}
