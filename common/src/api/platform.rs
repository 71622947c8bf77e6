//! Platforms of pools as they are shown.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::ValidationName;
use crate::platform::spec::HardwareSelector;
use crate::template::Template;

/// A platform of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Platform")
)]
pub struct PlatformView {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// For people.
    pub description: String,
    /// Whether the pool declares it. One that it does not is of the GPUs of a model, or `cpu`.
    pub declared: bool,
    /// Whether steps that name no platform take it.
    pub default: bool,
    /// Which GPUs and hosts are of it, where it is declared.
    #[serde(default)]
    pub selector: Option<HardwareSelector>,
    /// What goes over the templates of its pool where a step is granted hardware of it.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<Template>>,
    /// The documents of assertions that steps must keep which may be granted hardware of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<ValidationName>,
    /// The nodes that are of it, by name.
    pub nodes: Vec<String>,
    /// GPUs, instances counted each. One may be of several platforms.
    pub gpus: u64,
    /// Those that are granted.
    pub used: u64,
    /// Those that are not, on nodes that take work.
    pub free: u64,
    /// Counted up with every change of its terms; 0 where it is not declared. `ETag` and `If-Match` say the same.
    pub version: u64,
}

/// Hosts and GPUs of one platform in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlatformUse {
    /// Nodes that have any; of `cpu` those that have no GPU.
    pub nodes: u64,
    /// GPUs, instances counted each.
    pub gpus: u64,
    /// Those that are granted.
    pub used: u64,
    /// Those that are not, on nodes that take work.
    #[serde(default)]
    pub free: u64,
    /// Whether the pool declares it.
    #[serde(default)]
    pub declared: bool,
    /// Whether steps that name no platform take it.
    #[serde(default)]
    pub default: bool,
}
