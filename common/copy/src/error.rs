//! Errors of a copy, and those that one end tells the other.

use std::io;

use serde::{Deserialize, Serialize};

/// Most bytes of a message that the other end may send.
const MAX_TEXT_BYTES: usize = 4096;

/// Error of a copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The connection to the other end broke. A new one can continue.
    #[error("the connection was lost: {0}")]
    Lost(#[source] io::Error),
    /// The other end sent something that the protocol does not allow.
    #[error("the other end of the copy sent {0}")]
    Protocol(String),
    /// A file of this end could not be used.
    #[error("cannot {action} `{path}`: {source}")]
    File {
        /// Name of the file.
        path: String,
        /// Action that failed.
        action: &'static str,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The user has ended the copy.
    #[error("the copy was interrupted")]
    Interrupted,
    /// This end refuses to go on.
    #[error("{0}")]
    Refused(String),
    /// The part of a file that had arrived is no longer there.
    #[error("`{0}` has to be copied from its start: the part that had arrived is gone")]
    PartGone(String),
    /// The other end failed.
    #[error("{0}")]
    Remote(CopyFailure),
}

impl CopyError {
    /// The failure as the other end gets it.
    pub fn to_failure(&self) -> CopyFailure {
        match self {
            CopyError::Remote(failure) => failure.clone(),
            CopyError::PartGone(_) => CopyFailure::PartGone,
            error => {
                let mut text = error.to_string();
                let end =
                    (0..=MAX_TEXT_BYTES.min(text.len())).rfind(|end| text.is_char_boundary(*end));
                text.truncate(end.unwrap_or(0));
                CopyFailure::Failed(text)
            }
        }
    }
}

/// Failure that one end tells the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyFailure {
    /// The copy has ended, for this reason.
    Failed(String),
    /// The part of the file that had arrived is gone, so the file has to be sent from its start.
    PartGone,
}

impl std::fmt::Display for CopyFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CopyFailure::Failed(text) => f.write_str(text),
            CopyFailure::PartGone => f.write_str("the part that had arrived is gone"),
        }
    }
}
