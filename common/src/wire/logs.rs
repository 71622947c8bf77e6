//! Transfers of output from a host.

use alloc::string::String;
use serde::{Deserialize, Serialize};

use super::LogStream;
use crate::id::AttemptId;
use crate::time::{Span, Time};

/// Request for a range of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// Id of the attempt.
    pub attempt: AttemptId,
    /// Stream to read.
    pub stream: LogStream,
    /// First byte wanted, counted from the start of the attempt.
    pub offset: u64,
    /// Whether to continue until the attempt has ended.
    pub follow: bool,
    /// Output older than this is left out, as far as the host knows the times.
    pub since: Option<OutputSince>,
    /// Whether each line begins with its time.
    pub timestamps: bool,
}

/// Time from which on output is wanted, by the clock of the host that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputSince {
    /// Written at this time or later.
    At(Time),
    /// Written within this time before now.
    Ago(Span),
}

/// Answer to [`LogRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogReply {
    /// Plain bytes follow from this offset: later than requested if the oldest output was dropped, and at most the end
    /// of what was written.
    From {
        /// Offset of the first byte that follows.
        offset: u64,
    },
    /// No output follows.
    Refused {
        /// Reason of the refusal.
        message: String,
    },
}
