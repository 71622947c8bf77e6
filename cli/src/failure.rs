//! Failures of commands: one type that determines exit code and message. Commands return it; `main` prints it.

use std::io;

use sluice_simulator::Unreadable;

use crate::client::ApiError;
use crate::context::ContextError;
use crate::out::Out;
use crate::render::data::DataError;

/// Exit code of a refusal or failure.
pub(crate) const FAILED: u8 = 1;
/// Exit code of an invalid command line.
pub(crate) const USAGE: u8 = 2;
/// Exit code of a wait that timed out; `EX_TEMPFAIL` of sysexits.h.
pub(crate) const TIMED_OUT: u8 = 75;
/// Exit code of `run` for failures that are not the step's.
pub(crate) const RUN_FAILED: u8 = 125;

/// Way out if nobody answers.
const UNREACHABLE: &str = "check that the coordinator runs and that this is its address: `sluice context show` says \
                           where it comes from, `sluice doctor` what is in the way";

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// The command was refused or failed; the message says what to do.
    #[error("{0}")]
    Failed(String),
    /// A wait timed out.
    #[error("{0}")]
    TimedOut(String),
    /// No cluster is configured.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The cluster refused or could not be reached.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A view cannot be printed in the requested format.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
}

impl Failure {
    /// Whether the reader of the output has gone, which is not an error.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Prints the message to stderr.
    pub(crate) fn print(&self, out: Out) {
        if self.is_broken_pipe() {
            crate::signals::end_like_a_closed_pipe();
        }
        out.error(&self.to_string());
        if let Failure::Api(ApiError::Unreachable { .. }) = self {
            out.notice(UNREACHABLE);
        }
    }

    /// Returns the exit code if it is the same for every command.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        match self {
            Failure::Usage(_) => Some(USAGE),
            Failure::TimedOut(_) => Some(TIMED_OUT),
            Failure::Failed(_)
            | Failure::Context(_)
            | Failure::Api(_)
            | Failure::Data(_)
            | Failure::Output(_) => None,
        }
    }
}

impl From<Unreadable> for Failure {
    fn from(unreadable: Unreadable) -> Self {
        Failure::Usage(unreadable.to_string())
    }
}
