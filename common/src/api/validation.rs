//! Validations as the API shows them.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::validation::Assertion;

/// A named set of assertions over submitted steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Validation")
)]
pub struct ValidationView {
    /// Validation name, unique in the cluster.
    pub name: String,
    /// Free text for people.
    #[serde(default)]
    pub description: String,
    /// Assertions that a step must satisfy.
    pub assertions: Vec<Assertion>,
    /// Pools that reference the validation.
    pub pools: Vec<String>,
    /// Platforms that reference the validation, as `POOL/PLATFORM`.
    #[serde(default)]
    pub platforms: Vec<String>,
    /// Version of the validation, incremented by every change; also in `ETag` and `If-Match`.
    pub version: u64,
}
