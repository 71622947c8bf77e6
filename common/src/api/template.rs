//! Templates as the API shows them, and the effective spec of a step.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::template::Template;

/// A template as the API returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "NamedTemplate")
)]
pub struct TemplateView {
    /// Name of the template.
    pub name: String,
    /// Fields of the template.
    pub template: Template,
    /// Pools that reference the template.
    pub pools: Vec<String>,
    /// Version of the template, incremented by every change.
    pub version: u64,
}

/// A step's spec with all templates and defaults applied, and the origin of each value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Merged")
)]
pub struct EffectiveSpecView {
    /// The pool whose templates were applied: the pool that granted the step, or else its most preferred one.
    pub pool: Option<String>,
    /// The platform that was granted, once known.
    pub platform: Option<String>,
    /// The merged template. `{{...}}` variables are filled in when an attempt is assigned.
    pub result: Template,
    /// Origin of each field, such as `env.LR`, `timeout` or `resources.memory`: `step`, `pipeline`, `work`, `template T
    /// of pool P`, `platform Q of pool P, override`, `pool P, defaults` or `built in`.
    pub from: BTreeMap<String, String>,
}
