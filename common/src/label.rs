//! Labels in the grammar of Kubernetes: `key=value` pairs by which admins and selectors group objects. Callers decide
//! who may set a label and which of two wins.

use core::fmt;
use core::str::FromStr;

use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

/// Longest name (the part of a key after `/`) and longest value, in bytes.
const MAX_PART_BYTES: usize = 63;

/// Longest prefix of a key, in bytes: that of a DNS name.
const MAX_PREFIX_BYTES: usize = 253;

/// Number of characters that messages quote.
const SHOWN_CHARS: usize = 80;

/// Error for a label key or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The part of a key after `/` is not a name.
    #[error(
        "label key `{key}`: {wrong}; a key is a name such as `zone`, or `PREFIX/NAME` such as `example.com/zone`"
    )]
    Name {
        /// The rejected key, escaped.
        key: String,
        /// Problem with the name.
        wrong: LabelPartError,
    },
    /// The part of a key before `/` is not a DNS name.
    #[error(
        "label key `{key}`: write what stands before `/` as a DNS name of at most {MAX_PREFIX_BYTES} bytes, in lower \
         case, such as `example.com`"
    )]
    Prefix {
        /// The rejected key, escaped.
        key: String,
    },
    /// The value is not valid.
    #[error("label value `{value}`: {wrong}")]
    Value {
        /// The rejected value, escaped.
        value: String,
        /// Problem with the value.
        wrong: LabelPartError,
    },
}

/// Error for a name or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelPartError {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The text has more than 63 bytes.
    #[error("it has {0} bytes, and the maximum is {MAX_PART_BYTES}")]
    TooLong(usize),
    /// A character is not allowed.
    #[error("`{}` may not stand in it: use letters, digits, `-`, `_` and `.`", .0.escape_default())]
    Character(char),
    /// The text begins or ends with one of `-`, `_`, `.`.
    #[error("it must begin and end with a letter or digit")]
    Edge,
}

/// Checks a name or a non-empty value.
fn check_part(text: &str) -> Result<(), LabelPartError> {
    if text.is_empty() {
        return Err(LabelPartError::Empty);
    }
    if text.len() > MAX_PART_BYTES {
        return Err(LabelPartError::TooLong(text.len()));
    }
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if let Some(strange) = text.chars().find(|c| !allowed(c)) {
        return Err(LabelPartError::Character(strange));
    }
    if !has_alphanumeric_ends(text) {
        return Err(LabelPartError::Edge);
    }
    Ok(())
}

fn has_alphanumeric_ends(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_dns_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        has_alphanumeric_ends(part) && part.chars().all(allowed)
    };
    text.len() <= MAX_PREFIX_BYTES && text.split('.').all(is_part)
}

/// Shortens and escapes a text for a message.
fn escaped(text: &str) -> String {
    let shown = text.chars().take(SHOWN_CHARS);
    shown.flat_map(char::escape_default).collect()
}

/// Key of a label, such as `zone` or `example.com/zone`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct LabelKey(String);

impl LabelKey {
    /// Validates `text`.
    ///
    /// # Errors
    /// If it is not a valid key.
    pub fn new(text: impl Into<String>) -> Result<Self, LabelError> {
        let text = text.into();
        let (prefix, name) = match text.split_once('/') {
            None => (None, text.as_str()),
            Some((prefix, name)) => (Some(prefix), name),
        };
        if prefix.is_some_and(|prefix| !is_dns_name(prefix)) {
            return Err(LabelError::Prefix {
                key: escaped(&text),
            });
        }
        check_part(name).map_err(|wrong| LabelError::Name {
            key: escaped(&text),
            wrong,
        })?;
        Ok(Self(text))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Value of a label; may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct LabelValue(String);

impl LabelValue {
    /// Validates `text`.
    ///
    /// # Errors
    /// If it is not a valid value.
    pub fn new(text: impl Into<String>) -> Result<Self, LabelError> {
        let text = text.into();
        if !text.is_empty() {
            check_part(&text).map_err(|wrong| LabelError::Value {
                value: escaped(&text),
                wrong,
            })?;
        }
        Ok(Self(text))
    }

    /// The value as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! as_text {
    ($type:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = LabelError;
            fn from_str(text: &str) -> Result<Self, LabelError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = LabelError;
            fn try_from(text: String) -> Result<Self, LabelError> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(part: $type) -> String {
                part.0
            }
        }
    };
}

as_text!(LabelKey);
as_text!(LabelValue);

/// Change of one label as the CLI writes it: `KEY=VALUE` to set, `KEY-` to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelChange {
    /// Set the label to this value.
    Set(LabelKey, LabelValue),
    /// Remove the label.
    Remove(LabelKey),
}

/// Error for a text that is not a label change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelChangeError {
    /// The text has neither form.
    #[error("`{0}`: write KEY=VALUE to set a label, or KEY- to remove one")]
    Form(String),
    /// The key or value is not valid.
    #[error(transparent)]
    Label(#[from] LabelError),
}

impl FromStr for LabelChange {
    type Err = LabelChangeError;

    fn from_str(text: &str) -> Result<Self, LabelChangeError> {
        if let Some((key, value)) = text.split_once('=') {
            return Ok(Self::Set(key.parse()?, value.parse()?));
        }
        match text.strip_suffix('-') {
            Some(key) => Ok(Self::Remove(key.parse()?)),
            None => Err(LabelChangeError::Form(escaped(text))),
        }
    }
}

impl LabelChange {
    /// Key of the label.
    pub fn key(&self) -> &LabelKey {
        match self {
            Self::Set(key, _) | Self::Remove(key) => key,
        }
    }

    /// The new value; `None` if the label is removed.
    pub fn value(&self) -> Option<&LabelValue> {
        match self {
            Self::Set(_, value) => Some(value),
            Self::Remove(_) => None,
        }
    }
}

impl fmt::Display for LabelChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(key, value) => f.pad(&alloc::format!("{key}={value}")),
            Self::Remove(key) => f.pad(&(key.to_string() + "-")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_follow_the_grammar_of_kubernetes() {
        let long = "x".repeat(63);
        for key in [
            "zone",
            "a",
            "7",
            "a-b_c.d",
            "example.com/zone",
            "k8s.io/A_b",
            &long,
        ] {
            assert_eq!(LabelKey::new(key).unwrap().as_str(), key);
        }
        for value in ["", "a", "H100-80GB", "1.2_3", &long] {
            assert_eq!(LabelValue::new(value).unwrap().as_str(), value);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = "x".repeat(64);
        for (key, words) in [
            ("", "it is empty"),
            ("example.com/", "it is empty"),
            ("-a", "begin and end with a letter"),
            ("a.", "begin and end with a letter"),
            ("a b", "` ` may not stand in it"),
            ("ä", "`\\u{e4}` may not stand in it"),
            ("a/b/c", "`/` may not stand in it"),
            ("Example.com/a", "DNS name"),
            ("/a", "DNS name"),
            ("a..b/c", "DNS name"),
            (&long, "it has 64 bytes, and the maximum is 63"),
        ] {
            let error = LabelKey::new(key).unwrap_err().to_string();
            assert!(error.contains(words), "{key}: {error}");
            assert!(error.starts_with("label key"), "{error}");
        }
        let error = LabelValue::new("a\u{1b}[2J").unwrap_err().to_string();
        assert_eq!(
            error,
            "label value `a\\u{1b}[2J`: `\\u{1b}` may not stand in it: use letters, digits, `-`, `_` and `.`"
        );
    }

    #[test]
    fn a_change_is_written_as_one_word() {
        for text in ["zone=a", "zone=", "zone-", "example.com/a-b=c"] {
            let change: LabelChange = text.parse().unwrap();
            assert_eq!(change.to_string(), text);
            assert_eq!(change.value().is_none(), text == "zone-");
        }
        for (text, words) in [
            ("zone", "KEY=VALUE"),
            ("zone=a b", "label value"),
            ("=a", "label key"),
            ("-", "label key"),
        ] {
            let error = text.parse::<LabelChange>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
