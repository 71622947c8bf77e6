//! Error about one field of a document or request.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

use crate::error_code::ErrorCode;

/// Error about one field of a document or request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Stable code, such as `invalid_memory`.
    pub code: ErrorCode,
    /// Path of the field, such as `resources.memory`.
    pub field: String,
    /// Explanation with the value, and what to write instead.
    pub message: String,
}

/// Separates the parts of an error inside a deserializer's message. Quoted texts are escaped and never contain it.
const MARK: char = '\u{1}';

impl FieldError {
    /// Error of a field; `field` is its path, such as `resources.memory`.
    pub fn new(code: ErrorCode, field: impl Into<String>, message: impl ToString) -> Self {
        Self {
            code,
            field: field.into(),
            message: message.to_string(),
        }
    }

    /// Packs the error into a deserializer's error, which can carry only text; [`FieldError::from_serde`] unpacks it.
    pub fn into_serde<E: serde::de::Error>(self) -> E {
        let Self {
            code,
            field,
            message,
        } = self;
        E::custom(format_args!(
            "{MARK}{}{MARK}{field}{MARK}{message}{MARK}",
            code.as_str()
        ))
    }

    /// Unpacks an error from a deserializer's message. The field is relative to the deserializer that packed it.
    pub fn from_serde(words: &str) -> Option<Self> {
        let mut parts = words.strip_prefix(MARK)?.split(MARK);
        let (code, field, message) = (parts.next()?, parts.next()?, parts.next()?);
        let mut codes = ErrorCode::ALL.iter();
        let code = codes.find(|known| known.as_str() == code)?;
        Some(Self::new(*code, field, message))
    }

    /// Prefixes the field with `path`, unless `path` already ends with it.
    #[must_use]
    pub fn below(self, path: &str) -> Self {
        let field = match (path, self.field.as_str()) {
            ("" | ".", field) => field.to_owned(),
            (path, field) if path.ends_with(field) => path.to_owned(),
            (path, field) => format!("{path}.{field}"),
        };
        Self { field, ..self }
    }
}
