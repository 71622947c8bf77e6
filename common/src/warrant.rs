//! The warrant of an attempt as hosts keep it: a text of the coordinator's own, in which nobody else reads.

use core::fmt;

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The text. It holds a whole step, its variables included, so it is never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SealedWarrant(String);

impl SealedWarrant {
    /// One that reads so.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
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
