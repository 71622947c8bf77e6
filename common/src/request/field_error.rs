//! What is wrong with a field of something that was written.

use alloc::string::{String, ToString};

use crate::error_code::ErrorCode;

/// A field that may not hold what it holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Stable code, such as `invalid_memory`.
    pub code: ErrorCode,
    /// Where, such as `resources.memory`.
    pub field: String,
    /// What is wrong with which value, and the way out.
    pub message: String,
}

impl FieldError {
    pub(crate) fn new(code: ErrorCode, field: impl Into<String>, message: impl ToString) -> Self {
        Self {
            code,
            field: field.into(),
            message: message.to_string(),
        }
    }
}
