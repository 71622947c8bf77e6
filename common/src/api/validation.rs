//! Documents of assertions as the API shows them.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::validation::Assertion;

/// A document of assertions over what is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Validation")
)]
pub struct ValidationView {
    /// Unique in the cluster.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Each of which a step must keep.
    pub assertions: Vec<Assertion>,
    /// The pools that name it.
    pub pools: Vec<String>,
    /// The platforms that name it, as `POOL/PLATFORM`.
    #[serde(default)]
    pub platforms: Vec<String>,
    /// Counted up with every change; `ETag` and `If-Match` say the same.
    pub version: u64,
}
