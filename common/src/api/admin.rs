//! What admins ask of nodes, as the bodies of their calls. Each may be left out where nothing is to be said.

use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

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
