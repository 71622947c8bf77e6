//! Stored validation documents.

use serde::{Deserialize, Serialize};

use sluice_common::validation::ValidationSpec;

/// A document of assertions, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    pub terms: ValidationSpec,
    /// The number of the record that set it last.
    pub version: u64,
}
