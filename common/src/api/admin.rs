//! What admins ask of nodes, as the bodies of their calls, each of which may be left out where nothing is to be said; and
//! what is shown of nodes and GPUs that are closed to new work.

use alloc::collections::BTreeMap;
use alloc::string::String;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::gpu_state::GpuFault;

/// The body of `:cordon`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CordonRequest {
    /// Why, for people. Where it is absent, what was said before stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only one GPU of the node, by its index or UUID; the UUID of one that is cut means all of its instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// The body of `:drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DrainRequest {
    /// Why, for people. Where it is absent, what was said before stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// After how long steps that need not give way are stopped too, such as `30m`. Where it is absent, what was said
    /// before stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
}

/// The body of `:move`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// Where to.
    pub pool: String,
    /// Why, for people. Where it is absent, what was said before stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// After how long steps that need not give way are stopped too, such as `30m`. Where it is absent, what was said
    /// before stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
}

/// The body of `:uncordon`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UncordonRequest {
    /// Only one GPU of the node, by its index or UUID. Without it the node, whose closed GPUs stay closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// Labels to set, by key; those with `null` are taken away, others stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct LabelsRequest(pub BTreeMap<String, Option<String>>);

/// A node that an admin closed to new work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Cordon")
)]
pub struct CordonView {
    /// In the admin's words; empty where none were given.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Whether it is also to become empty.
    pub drain: bool,
    /// When steps that still run on it are stopped and start elsewhere; without it they may end by themselves.
    pub deadline: Option<Timestamp>,
    /// Since when a node that is to become empty is.
    #[serde(default)]
    pub empty_since: Option<Timestamp>,
    /// The pool that it is to be in as soon as it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<String>,
}

/// A GPU that is granted to nobody. A step that runs on it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "UnfitGpu")
)]
pub struct UnfitGpuView {
    /// The driver's index; absent where the host does not list it any more.
    pub index: Option<u32>,
    /// Which.
    pub uuid: String,
    /// What an admin said who closed it; absent where none did.
    pub cordon: Option<String>,
    /// What its host finds wrong with it; absent where nothing.
    pub fault: Option<GpuFault>,
    /// Why it is granted to nobody, in one sentence.
    pub message: String,
}
