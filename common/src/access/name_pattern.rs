//! Patterns of names of pools and subjects.

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::{MAX_NAME_BYTES, NameError};

/// A name pattern in which each `*` stands for any text, including none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern(String);

impl NamePattern {
    /// Whether the pattern matches `name`.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or("");
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else {
            return rest.is_empty();
        };
        for part in parts {
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }

    /// Whether the pattern matches every name.
    pub fn matches_all(&self) -> bool {
        self.0.bytes().all(|b| b == b'*')
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamePattern {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'*');
        if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(byte) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError {
            kind: "pattern of names",
            text: text.to_owned(),
            rule: "use 1 to 63 letters, digits, `-`, `_`, `.`, and `*` for any text",
        })
    }
}

impl TryFrom<String> for NamePattern {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> String {
        pattern.0
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, takes) in [
            ("*", "x", true),
            ("train", "train", true),
            ("train", "training", false),
            ("train*", "training", true),
            ("*-prod", "a-prod", true),
            ("*-prod", "a-prod2", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            let read: NamePattern = pattern.parse().unwrap();
            assert_eq!(read.matches(name), takes, "{pattern} {name}");
        }
        for bad in ["", "a b", "a/b", "\u{1b}[2J", &"x".repeat(64)] {
            assert!(bad.parse::<NamePattern>().is_err(), "{bad:?}");
        }
    }
}
