//! Templates as the API shows them, and what came of them for a step.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::template::Template;

/// A template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "NamedTemplate")
)]
pub struct TemplateView {
    /// Its name.
    pub name: String,
    /// What it says.
    pub template: Template,
    /// The pools that name it.
    pub pools: Vec<String>,
    /// Counted up with each change.
    pub version: u64,
}

/// What a step is with all that lies under it, and where each value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Merged")
)]
pub struct EffectiveSpecView {
    /// The pool for which this is told: that which granted it, else that which it prefers.
    pub pool: Option<String>,
    /// The hardware that it was granted, once it is known.
    pub platform: Option<String>,
    /// The result. `{{...}}` stand as they are written: they are filled in when an attempt is assigned.
    pub result: Template,
    /// By the field, such as `env.LR`, `timeout` or `resources.memory`: `step`, `pipeline`, `work`, `template T of pool
    /// P`, `platform Q of pool P, override`, `pool P, defaults` or `built in`.
    pub from: BTreeMap<String, String>,
}
