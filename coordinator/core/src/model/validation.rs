//! Stored validation documents.

use serde::{Deserialize, Serialize};

use sluice_common::validation::ValidationSpec;

/// A validation document with its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    pub terms: ValidationSpec,
    /// Number of the record that set it last.
    pub version: u64,
}
