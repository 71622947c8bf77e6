//! What is remembered of a document of assertions, and how one assertion came out.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use sluice_common::id::{PlatformName, ValidationName};
use sluice_common::validation::ValidationTerms;

/// A document of assertions, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    /// What is asserted.
    pub terms: ValidationTerms,
    /// The number of the record that set it last.
    pub version: u64,
}

/// How one assertion came out, as a dry run shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The document.
    pub document: ValidationName,
    /// The platform that names it; `None` where its pool does.
    pub platform: Option<PlatformName>,
    /// The assertion as written.
    pub assert: String,
    /// What keeps it: nothing is said where it holds.
    pub outcome: Outcome,
}

/// How an assertion came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds for the step.
    Holds,
    /// Its `when` does not hold, so it asks for nothing.
    Idle,
    /// It holds on so many hosts of so many.
    HoldsOn {
        /// How many keep it.
        keep: usize,
        /// How many were looked at.
        of: usize,
    },
    /// It does not hold, with the numbers.
    Fails(String),
}
