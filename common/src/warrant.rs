//! Warrants: encrypted copies of an attempt's spec that hosts store for the coordinator and cannot read.

use core::fmt;

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Encrypted text. It contains a whole step with its environment variables and is never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SealedWarrant(String);

impl SealedWarrant {
    /// Wraps a text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The warrant as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is no warrant.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SealedWarrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedWarrant({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn it_is_not_printed() {
        let sealed = SealedWarrant::new(String::from("TOKEN=secret"));
        assert_eq!(format!("{sealed:?}"), "SealedWarrant(12 bytes)");
        assert_eq!(sealed.as_str(), "TOKEN=secret");
    }
}
