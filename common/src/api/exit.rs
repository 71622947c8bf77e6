//! How an attempt ended, as the API tells it. What that makes of its step is the step's state and reason.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// How an attempt ended: a code, a signal, or neither where nobody saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AttemptExit")
)]
pub struct ExitView {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal number.
    pub signal: Option<i32>,
    /// A sentence where neither tells.
    pub message: Option<String>,
}
