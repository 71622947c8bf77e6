//! What is wrong with a field of something that was written.

use alloc::borrow::ToOwned;
use alloc::format;
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

/// Between the parts of an error in a deserializer's words. What a message quotes is escaped, so none has it.
const MARK: char = '\u{1}';

impl FieldError {
    pub(crate) fn new(code: ErrorCode, field: impl Into<String>, message: impl ToString) -> Self {
        Self {
            code,
            field: field.into(),
            message: message.to_string(),
        }
    }

    /// The error as one of a deserializer, whose readers find it again by [`FieldError::from_serde`]: a deserializer's
    /// error has words alone, and no code.
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

    /// The error in a deserializer's words, if it is one of a field. The field is named from where the deserializer that
    /// wrapped it began.
    pub fn from_serde(words: &str) -> Option<Self> {
        let mut parts = words.strip_prefix(MARK)?.split(MARK);
        let (code, field, message) = (parts.next()?, parts.next()?, parts.next()?);
        let mut codes = ErrorCode::ALL.iter();
        let code = codes.find(|known| known.as_str() == code)?;
        Some(Self::new(*code, field, message))
    }

    /// The same of a field of what stands at `path`. A path that names the field already is taken for the whole.
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
