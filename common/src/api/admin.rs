//! Request bodies of admins' calls on nodes (each may be omitted), and cordoned nodes and GPUs as the API shows them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::gpu_state::GpuFault;

/// Request body of `:cordon`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CordonRequest {
    /// Reason for people. If absent, the previous reason is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Cordons only this GPU of the node, given by index or UUID; the UUID of a GPU in MIG mode means all its
    /// instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// Request body of `:drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DrainRequest {
    /// Reason for people. If absent, the previous reason is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time after which non-preemptible steps are stopped too, such as `30m`. If absent, the previous deadline is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
}

/// Request body of `:move`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// The pool to move the node to.
    pub pool: String,
    /// Reason for people. If absent, the previous reason is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time after which non-preemptible steps are stopped too, such as `30m`. If absent, the previous deadline is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
}

/// Request body of `:move` of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveStepRequest {
    /// The pool to move the step to.
    pub pool: String,
}

/// Request body of `:uncordon`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UncordonRequest {
    /// Uncordons only this GPU, given by index or UUID. If absent, uncordons the node and leaves cordoned GPUs as they
    /// are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// Labels to set by key; `null` removes a label, labels not named here stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct LabelsRequest(pub BTreeMap<String, Option<String>>);

/// Cordon or drain of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Cordon")
)]
pub struct CordonView {
    /// Reason given by the admin; empty if none.
    pub reason: String,
    /// Time when the node was cordoned.
    pub since: Timestamp,
    /// Whether the node is also being drained.
    pub drain: bool,
    /// Time when steps that still run on the node are stopped and started elsewhere; if absent they may finish.
    pub deadline: Option<Timestamp>,
    /// Time since when a draining node is empty.
    #[serde(default)]
    pub empty_since: Option<Timestamp>,
    /// The pool that the node moves to once it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<String>,
}

/// A GPU that is not granted to new steps. A step that already runs on it continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "UnfitGpu")
)]
pub struct UnfitGpuView {
    /// The driver's index; absent if the host no longer lists the GPU.
    pub index: Option<u32>,
    /// UUID of the GPU or instance.
    pub uuid: String,
    /// Reason given by the admin who cordoned the GPU; absent if none did.
    pub cordon: Option<String>,
    /// Fault reported by the host; absent if none.
    pub fault: Option<GpuFault>,
    /// Why the GPU is not granted, in one sentence.
    pub message: String,
}
