//! Errors of messages and frames, safe to log.

use std::any::type_name;
use std::fmt::Display;

/// Longest explanation in an error, in characters, because it may quote the peer.
const MAX_REASON_CHARS: usize = 300;

/// Error while encoding or decoding a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The outgoing message exceeds the peer's limit.
    #[error("a message `{what}` exceeds the maximum of {max} bytes")]
    TooLarge {
        /// Type of the message.
        what: &'static str,
        /// The limit, in bytes.
        max: usize,
    },
    /// The outgoing message cannot be encoded, which is a defect of its type.
    #[error("a message `{what}` cannot be encoded: {reason}")]
    Unencodable {
        /// Type of the message.
        what: &'static str,
        /// Cause reported by the encoder.
        reason: String,
    },
    /// The received bytes exceed the limit for a message.
    #[error("{bytes} bytes were received for one message: the maximum is {max}")]
    BodyTooLarge {
        /// Number of bytes received.
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A frame announces a body above the limit. The stream cannot be read any further.
    #[error("a frame of {announced} bytes is announced: the maximum is {max}")]
    FrameTooLarge {
        /// Length in the frame's prefix.
        announced: u32,
        /// The limit, in bytes.
        max: usize,
    },
    /// The received bytes do not encode the expected message.
    #[error("the received bytes are not a message `{what}`: {reason}")]
    Malformed {
        /// Type of the expected message.
        what: &'static str,
        /// Cause reported by the decoder, escaped.
        reason: String,
    },
    /// Bytes are left over after the message.
    #[error("a message `{what}` is followed by {extra} bytes that do not belong to it")]
    TrailingBytes {
        /// Type of the expected message.
        what: &'static str,
        /// Number of bytes left over.
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

/// Shortens a text and replaces control characters, for logs.
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
