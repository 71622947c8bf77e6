//! Deserializes text fields of documents into typed values, with an error code per type, as
//! [`StepRequest::check`](crate::request::StepRequest::check) reports.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::id::{PlatformName, TemplateName};
use crate::inventory::Capability;
use crate::time::Span;

/// A type that documents write as text.
pub(crate) trait DocumentText: FromStr<Err: Display> {
    /// Error code for a text that does not parse.
    const ERROR_CODE: ErrorCode;
}

impl DocumentText for Span {
    const ERROR_CODE: ErrorCode = ErrorCode::InvalidDuration;
}

impl DocumentText for Capability {
    const ERROR_CODE: ErrorCode = ErrorCode::InvalidCapability;
}

/// A bad platform name has no code of its own.
impl DocumentText for PlatformName {
    const ERROR_CODE: ErrorCode = ErrorCode::InvalidBody;
}

impl DocumentText for TemplateName {
    const ERROR_CODE: ErrorCode = ErrorCode::InvalidTemplate;
}

/// A value parsed from its text.
struct Parsed<T>(T);

impl<'de, T: DocumentText> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let word = text.parse().map(Self);
        word.map_err(|error| FieldError::new(T::ERROR_CODE, "", error).into_serde())
    }
}

/// Deserializes one value.
pub(crate) fn parse_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DocumentText,
{
    let Parsed(word) = Parsed::deserialize(deserializer)?;
    Ok(word)
}

/// Deserializes a list of values.
pub(crate) fn parse_texts<'de, D, T, C>(deserializer: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    T: DocumentText,
    C: FromIterator<T>,
{
    let words: Vec<Parsed<T>> = Vec::deserialize(deserializer)?;
    Ok(words.into_iter().map(|Parsed(word)| word).collect())
}

/// A span that is zero if `null` or absent.
pub(crate) mod span_or_zero {
    use super::{Deserialize, Deserializer, Parsed, Serializer, Span};

    pub(crate) fn serialize<S: Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(span)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        let span = Option::<Parsed<Span>>::deserialize(from)?;
        Ok(span.map_or(Span::ZERO, |Parsed(span)| span))
    }
}

/// A span that is `None` if `null` or absent.
pub(crate) mod optional_span {
    use super::{Deserialize, Deserializer, Parsed, Serializer, Span};

    pub(crate) fn serialize<S: Serializer>(span: &Option<Span>, to: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => to.collect_str(span),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D>(from: D) -> Result<Option<Span>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let span = Option::<Parsed<Span>>::deserialize(from)?;
        Ok(span.map(|Parsed(span)| span))
    }
}
