//! Texts of documents that are read as what they mean: a mistake in one has a code of its own, as a mistake that
//! [`StepRequest::check`](crate::request::StepRequest::check) finds has.

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

/// What a text of a document means.
pub(crate) trait Word: FromStr<Err: Display> {
    /// The code of a text that means nothing.
    const WRONG: ErrorCode;
}

impl Word for Span {
    const WRONG: ErrorCode = ErrorCode::InvalidDuration;
}

impl Word for Capability {
    const WRONG: ErrorCode = ErrorCode::InvalidCapability;
}

/// A list of platforms with a wrong name is no list of platforms.
impl Word for PlatformName {
    const WRONG: ErrorCode = ErrorCode::InvalidBody;
}

impl Word for TemplateName {
    const WRONG: ErrorCode = ErrorCode::InvalidTemplate;
}

/// A word, read from its text.
struct Read<T>(T);

impl<'de, T: Word> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let word = text.parse().map(Self);
        word.map_err(|error| FieldError::new(T::WRONG, "", error).into_serde())
    }
}

/// One word.
pub(crate) fn word<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Word,
{
    let Read(word) = Read::deserialize(deserializer)?;
    Ok(word)
}

/// Several words.
pub(crate) fn words<'de, D, T, C>(deserializer: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    T: Word,
    C: FromIterator<T>,
{
    let words: Vec<Read<T>> = Vec::deserialize(deserializer)?;
    Ok(words.into_iter().map(|Read(word)| word).collect())
}

/// A span that is nothing if it is `null`, as it is if it is left out.
pub(crate) mod span {
    use super::{Deserialize, Deserializer, Read, Serializer, Span};

    pub(crate) fn serialize<S: Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(span)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        let span = Option::<Read<Span>>::deserialize(from)?;
        Ok(span.map_or(Span::ZERO, |Read(span)| span))
    }
}

/// A span that may be absent.
pub(crate) mod some_span {
    use super::{Deserialize, Deserializer, Read, Serializer, Span};

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
        let span = Option::<Read<Span>>::deserialize(from)?;
        Ok(span.map(|Read(span)| span))
    }
}
