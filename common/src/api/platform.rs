//! Platforms of pools: as somebody writes them, and as they are shown.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::{PlatformName, ValidationName};
use crate::platform::terms::{Declared, HardwareSelector, PlatformTerms};
use crate::template::Template;

/// A platform in the list of its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NamedPlatform {
    /// Its name.
    pub name: PlatformName,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Which GPUs and hosts are of it; all of its pool where it says nothing.
    #[serde(default)]
    pub selector: HardwareSelector,
    /// What goes over the templates of its pool where a step is granted hardware of it.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<Template>>,
    /// The documents of assertions that steps must keep which may be granted hardware of it, beside those of its pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<ValidationName>,
}

/// A list that names a platform twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("platform `{0}` is there twice: leave one of them out")]
pub struct NamedTwice(pub PlatformName);

/// The platforms of a list, by name.
///
/// # Errors
/// Where it names one twice.
pub fn declared(list: Vec<NamedPlatform>) -> Result<Declared, NamedTwice> {
    let mut declared = BTreeMap::new();
    for NamedPlatform {
        name,
        description,
        selector,
        overrides,
        validations,
    } in list
    {
        let terms = PlatformTerms {
            description,
            selector,
            overrides,
            validations,
        };
        if declared.insert(name.clone(), terms).is_some() {
            return Err(NamedTwice(name));
        }
    }
    Ok(declared)
}

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
