//! What can be wrong with a message or a frame, in words that may be logged as they are.

use std::any::type_name;
use std::fmt::Display;

/// Longest account of what is wrong with a message, in characters. It may quote the peer, who may be long-winded.
const MAX_REASON_CHARS: usize = 300;

/// Why a message could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The message to be sent is larger than a peer would take.
    #[error("a message `{what}` takes more than {max} bytes, which is the most")]
    TooLarge {
        /// Its type.
        what: &'static str,
        /// The limit, in bytes.
        max: usize,
    },
    /// The message to be sent has no encoding, which is a defect in its type.
    #[error("a message `{what}` cannot be encoded: {reason}")]
    Unencodable {
        /// Its type.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The bytes that were received are longer than any message may be.
    #[error("{bytes} bytes were received for one message: the most is {max}")]
    BodyTooLarge {
        /// How many there are.
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A frame announces a body that is longer than any message may be. The stream cannot be read on.
    #[error("a frame of {announced} bytes is announced: the most is {max}")]
    FrameTooLarge {
        /// What its prefix says.
        announced: u32,
        /// The limit, in bytes.
        max: usize,
    },
    /// The bytes that were received are no such message.
    #[error("the received bytes are no message `{what}`: {reason}")]
    Malformed {
        /// The type that was expected.
        what: &'static str,
        /// Why, harmless to print.
        reason: String,
    },
    /// More bytes were received than the message takes.
    #[error("a message `{what}` is followed by {extra} bytes that do not belong to it")]
    TrailingBytes {
        /// The type that was expected.
        what: &'static str,
        /// How many.
        extra: usize,
    },
}

impl CodecError {
    pub(crate) fn too_large<T: ?Sized>(max: usize) -> Self {
        let what = type_name::<T>();
        Self::TooLarge { what, max }
    }

    pub(crate) fn unencodable<T: ?Sized>(reason: impl Display) -> Self {
        Self::Unencodable {
            what: type_name::<T>(),
            reason: harmless(&reason.to_string()),
        }
    }

    pub(crate) fn malformed<T: ?Sized>(reason: impl Display) -> Self {
        Self::Malformed {
            what: type_name::<T>(),
            reason: harmless(&reason.to_string()),
        }
    }

    pub(crate) fn trailing<T: ?Sized>(extra: usize) -> Self {
        let what = type_name::<T>();
        Self::TrailingBytes { what, extra }
    }
}

/// A text as it may stand in a log: cut, and without anything that a terminal would obey.
fn harmless(text: &str) -> String {
    let safe = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(MAX_REASON_CHARS).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_cut_and_obeyed_by_no_terminal() {
        let text = format!("\u{1b}[2J{}", "x".repeat(10_000));
        let CodecError::Malformed { reason, .. } = CodecError::malformed::<u8>(text) else {
            panic!("another error");
        };
        assert!(reason.starts_with("?[2Jxxx"), "{reason}");
        assert_eq!(reason.chars().count(), MAX_REASON_CHARS);
    }
}
