//! What the supervisor and `sluice-helper` say to each other. Both are of one installation, so nothing here is kept for an
//! older one.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::output::STREAMS;

/// The mode that moves what processes hold on GPUs.
pub const CHECKPOINT: &str = "checkpoint";
/// The mode that removes what a user of an attempt has left on the host.
pub const REMOVE_LEFTOVERS: &str = "remove-left";
/// The mode that writes the output of steps.
pub const WRITE_OUTPUT: &str = "write-output";

/// The mode that reads the supervisor's config.
pub const READ_CONFIG: &str = "read-config";
/// The mode that finds out who steps run as.
pub const FIND_USERS: &str = "find-users";
/// The mode that prints the config.
pub const SHOW_CONFIG: &str = "show-config";

/// Option of [`CHECKPOINT`]: replaces the loader's choice of the driver's library.
pub const LIBRARY: &str = "library";
/// Option of [`CHECKPOINT`]: replaces the search for the tool.
pub const TOOL: &str = "tool";
/// Option of [`CHECKPOINT`]: how long a process may take to come to rest.
pub const LOCK_TIMEOUT: &str = "lock-timeout-ms";

/// What is left of a user in the kernel, for [`REMOVE_LEFTOVERS`], which runs as that user: a frame. Behind it are the paths of
/// files and directories, as many as there are, each with a NUL at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftovers {
    /// Objects of System V, by their numbers.
    pub ipc: Vec<(IpcKind, i32)>,
    /// Whether the kernel may hold keys of it.
    pub keys: bool,
}

/// What of System V's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpcKind {
    /// Shared memory.
    Memory,
    /// Semaphores.
    Semaphores,
    /// A queue of messages.
    Messages,
}

/// Most bytes of [`Leftovers`]: more objects than a kernel has of each kind by default.
pub const MAX_LEFTOVERS_BYTES: usize = 4 * 1024 * 1024;

/// How a process stands with its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointState {
    /// It may use them.
    Running,
    /// It waits as soon as it calls them.
    Locked,
    /// It holds nothing on them.
    Checkpointed,
    /// It has come to harm on the way, and can go nowhere from here.
    Failed,
}

/// Why a call was in vain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointError {
    /// This host has no way to do it.
    #[error("{0}")]
    Unsupported(String),
    /// The driver could and would not.
    #[error("{0}")]
    Refused(String),
    /// It was not done in the time that was given to it.
    #[error("process {0} did not come to rest in time")]
    TimedOut(u32),
}

/// What [`CHECKPOINT`] is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointAction {
    /// Tell how processes stand.
    Probe,
    /// Move what they hold away from GPUs.
    Suspend,
    /// Move back what was moved.
    Resume,
    /// The same, where nobody knows how far it had come.
    Undo,
}

impl CheckpointAction {
    const ALL: [Self; 4] = [Self::Probe, Self::Suspend, Self::Resume, Self::Undo];

    /// As it is written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Undo => "undo",
        }
    }
}

impl fmt::Display for CheckpointAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CheckpointAction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|action| action.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is none of probe, suspend, resume, undo"))
    }
}

/// What became of one process: a line that [`CHECKPOINT`] prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointResult {
    /// Which.
    pub pid: u32,
    /// How it stands now, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CheckpointState>,
    /// Why it could not be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<CheckpointError>,
}

/// Descriptors that come with the beginning of a job: pipe and file of each stream, and the file of marks
/// ([`crate::output::MARKS_FILE`]).
pub const JOB_FDS: usize = 2 * STREAMS.len() + 1;

/// Bytes of a [`WriterMessage`].
pub const MESSAGE_BYTES: usize = 18;

/// A message between supervisor and [`WRITE_OUTPUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterMessage {
    /// One of [`kind`].
    pub kind: u8,
    /// The number of a job, which is the output of one attempt.
    pub job: u64,
    /// Place of a stream in [`STREAMS`], for the kinds that are about one.
    pub stream: u8,
    /// What the kind says; 0 for others.
    pub value: u64,
}

/// Kinds of messages.
pub mod kind {
    /// To the writer: a job begins, with [`super::JOB_FDS`] descriptors. The value is how many bytes of each stream are
    /// kept.
    pub const BEGIN: u8 = b'b';
    /// To the writer: what has been given to the job by now is to be written.
    pub const FLUSH: u8 = b'f';
    /// To the writer: all has been given to the job.
    pub const END: u8 = b'e';
    /// The writer's answer to [`FLUSH`]: it is written, or its file takes nothing now.
    pub const FLUSHED: u8 = b'd';
    /// The writer's answer to [`END`]: all that was given is written.
    pub const WRITTEN: u8 = b'w';
    /// The writer's answer to [`END`]: some of it could not be written.
    pub const LOST: u8 = b'l';
    /// Of the writer's own accord: the file of a job takes nothing.
    pub const STALLED: u8 = b's';
    /// The same, once a job: the oldest part of a stream is dropped from now on. The value is the offset of what is kept.
    pub const DROPPED: u8 = b'p';
    /// The same, once a job: the oldest part of a stream cannot be dropped. The value is the kernel's error number.
    pub const NOT_DROPPED: u8 = b'n';
}

impl WriterMessage {
    /// One of a kind that says nothing but which job.
    pub fn new(kind: u8, job: u64) -> Self {
        Self {
            kind,
            job,
            stream: 0,
            value: 0,
        }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [self.kind; MESSAGE_BYTES];
        bytes[1..9].copy_from_slice(&self.job.to_le_bytes());
        bytes[9] = self.stream;
        bytes[10..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// The message of these bytes; `None` if they have another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (job, rest) = rest.split_first_chunk()?;
        let (stream, value) = rest.split_first()?;
        Some(Self {
            kind: *kind,
            job: u64::from_le_bytes(*job),
            stream: *stream,
            value: u64::from_le_bytes(value.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let line = |failed| CheckpointResult {
            pid: 7,
            state: None,
            failed,
        };
        for (line, json) in [
            (
                CheckpointResult {
                    state: Some(CheckpointState::Checkpointed),
                    ..line(None)
                },
                r#"{"pid":7,"state":"checkpointed"}"#,
            ),
            (
                line(Some(CheckpointError::TimedOut(7))),
                r#"{"pid":7,"failed":{"timed_out":7}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&line).unwrap(), json);
            assert_eq!(
                serde_json::from_str::<CheckpointResult>(json).unwrap(),
                line
            );
        }
    }

    #[test]
    fn messages_and_actions_are_read_as_they_are_written() {
        let message = WriterMessage {
            kind: kind::DROPPED,
            job: 7,
            stream: 1,
            value: u64::MAX - 2,
        };
        assert_eq!(
            WriterMessage::from_bytes(&message.to_bytes()),
            Some(message)
        );
        assert_eq!(WriterMessage::from_bytes(&message.to_bytes()[1..]), None);
        assert_eq!(WriterMessage::from_bytes(&[]), None);
        for action in CheckpointAction::ALL {
            assert_eq!(action.to_string().parse(), Ok(action));
        }
    }
}
