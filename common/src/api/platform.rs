//! Platforms of pools as the API shows them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::carving::MigLayout;
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
    /// Name of the pool.
    pub pool: String,
    /// Name of the platform.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Whether the pool declares the platform. Platforms not declared are those of GPU models, and `cpu`.
    pub declared: bool,
    /// Whether steps that name no platform get this one.
    pub default: bool,
    /// Selects the GPUs and hosts of a declared platform.
    #[serde(default)]
    pub selector: Option<HardwareSelector>,
    /// Template applied on top of the pool's templates to steps that are granted this platform.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<Template>>,
    /// Slices that each matching GPU is cut into when it is idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigLayout>,
    /// Validations for steps that may be granted this platform.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<ValidationName>,
    /// Whether only steps that name this platform run on its hosts.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub taint: bool,
    /// Names of the nodes that belong to the platform.
    pub nodes: Vec<String>,
    /// Number of GPUs, counting each MIG instance. A GPU may belong to several platforms.
    pub gpus: u64,
    /// Number of GPUs granted.
    pub used: u64,
    /// Number of free GPUs on nodes that take work.
    pub free: u64,
    /// Version of the platform's spec, incremented by every change; 0 if not declared. Also in `ETag` and `If-Match`.
    pub version: u64,
}

/// Hosts and GPUs of one platform in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlatformUse {
    /// Number of nodes with such GPUs; for `cpu`, nodes without GPUs.
    pub nodes: u64,
    /// Number of GPUs, counting each MIG instance.
    pub gpus: u64,
    /// Number of GPUs granted.
    pub used: u64,
    /// Number of free GPUs on nodes that take work.
    #[serde(default)]
    pub free: u64,
    /// Whether the pool declares the platform.
    #[serde(default)]
    pub declared: bool,
    /// Whether steps that name no platform get this one.
    #[serde(default)]
    pub default: bool,
}
