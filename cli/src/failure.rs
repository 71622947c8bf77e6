//! How a command ends when it does not end well: one type, so that exit codes and the shape of messages are decided in
//! one place. Commands return it; `main` prints it.

use std::io;

use sluice_simulator::Unreadable;

use crate::client::ApiError;
use crate::context::ContextError;
use crate::out::Out;
use crate::render::data::DataError;

/// Exit code of a refusal or failure.
pub(crate) const FAILED: u8 = 1;
/// Exit code of a command line that makes no sense.
pub(crate) const USAGE: u8 = 2;
/// Exit code of a wait that timed out; `EX_TEMPFAIL` of sysexits.h.
pub(crate) const TIMED_OUT: u8 = 75;
/// Exit code of `run` for failures that are not the step's.
pub(crate) const RUN_FAILED: u8 = 125;

/// Why a command did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What was typed makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It was refused, or it failed, and the sentence says what to do.
    #[error("{0}")]
    Failed(String),
    /// What was waited for did not come in time.
    #[error("{0}")]
    TimedOut(String),
    /// There is no cluster to talk to.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The cluster refused or could not be reached.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A view has no form in the format that was asked for.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Our own output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
}

impl Failure {
    /// Whether whoever read our output has gone: no fault, and nothing to say.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Says what happened on stderr.
    pub(crate) fn print(&self, out: Out) {
        if self.is_broken_pipe() {
            crate::signals::end_like_a_closed_pipe();
        }
        out.error(&self.to_string());
    }

    /// The exit code, where it is the same for every command; `None` where it is the command's own.
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
