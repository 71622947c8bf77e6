//! Exit of an attempt as the API shows it.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Exit of an attempt: a code, a signal, or neither if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AttemptExit")
)]
pub struct ExitView {
    /// Exit code of the process.
    pub code: Option<i32>,
    /// Number of the signal that killed the process.
    pub signal: Option<i32>,
    /// Explanation if there is neither a code nor a signal.
    pub message: Option<String>,
}
