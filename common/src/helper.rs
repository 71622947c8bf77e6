//! Interface between the supervisor and `sluice-helper`. Both belong to one installation, so no compatibility is kept.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::output::STREAMS;

/// Mode that moves GPU memory of processes to the host and back.
pub const CHECKPOINT: &str = "checkpoint";
/// Mode that cuts a GPU into slices.
pub const CARVE: &str = "carve";
/// Mode that removes what an attempt's user left on the host.
pub const REMOVE_LEFTOVERS: &str = "remove-left";
/// Mode that writes the output of steps.
pub const WRITE_OUTPUT: &str = "write-output";

/// Mode that passes a step's standard input from a socket to a pipe: [`crate::attempt_dir::INPUT_SOCKET`] is its standard
/// input, the pipe its standard output.
pub const FEED_INPUT: &str = "feed-input";
/// Mode that passes bytes between a terminal and its caller, and ends as the program on the terminal does, whose process
/// id is the argument. Standard input is [`crate::attempt_dir::INPUT_SOCKET`], standard output where the program's output
/// goes, and standard error the terminal's controlling end.
pub const RELAY_TERMINAL: &str = "relay-terminal";

/// Mode that copies a program's output to files of its user and to where output of the step goes, and ends as the program
/// does. Its arguments are the program's process id and, for each stream, the numbers of a pipe and of a file, or `-` twice.
/// Standard output and standard error are where output of the step goes.
pub const COPY_OUTPUT: &str = "copy-output";

/// Mode that copies files to and from a caller, who speaks to its standard input and output.
pub const COPY_FILES: &str = "copy-files";

/// Mode that makes the files of a stream of `sluice-copy`, its standard input, below the current directory. Standard output
/// takes the reason if that fails.
pub const UNPACK_INPUTS: &str = "unpack-inputs";

/// Mode that stores files of the current directory as a stream of `sluice-copy`, in an empty file that is its standard output.
/// The arguments are the most bytes, the bytes that stay free on the disk, the longest time in seconds, and the patterns.
/// Standard error takes what was left out.
pub const KEEP_FILES: &str = "keep-files";

/// Mode that runs a step's program in a container: the arguments are the attempt's directory, which has
/// [`crate::attempt_dir::CONTAINER_FILE`], and the program with its arguments.
pub const RUN_CONTAINER: &str = "run-container";
/// Mode that runs a program in the container of a running step: the arguments are the attempt's directory, the process id of
/// the step's main process, and the program with its arguments.
pub const ENTER_CONTAINER: &str = "exec-container";

/// Environment variable of [`RUN_CONTAINER`] and [`ENTER_CONTAINER`] with the number of the pipe that takes the reason if
/// the program does not start: [`START_FAILED`] and a sentence. The helper closes it when the program starts.
pub const START_REPORT_VARIABLE: &str = "SLUICE_START_REPORT";
/// First byte of a report that a step's specification cannot be met.
pub const START_FAILED: u8 = b's';

/// Mode that reads the supervisor's config.
pub const READ_CONFIG: &str = "read-config";
/// Mode that resolves the users that steps run as.
pub const FIND_USERS: &str = "find-users";
/// Mode that holds the place of an allocation until it is killed.
pub const HOLD_ALLOCATION: &str = "hold-allocation";
/// Mode that prints the config.
pub const SHOW_CONFIG: &str = "show-config";

/// Option of [`CHECKPOINT`] and [`CARVE`]: path of the driver library, instead of the loader's choice.
pub const LIBRARY: &str = "library";
/// Option of [`CHECKPOINT`]: path of the checkpoint tool, instead of a search.
pub const TOOL: &str = "tool";
/// Option of [`CHECKPOINT`]: time limit for locking a process.
pub const LOCK_TIMEOUT: &str = "lock-timeout-ms";

/// Option of [`CARVE`]: UUIDs of GPUs and MIG instances that attempts have, joined by `,`.
pub const HELD: &str = "held";

/// Kernel objects left by a user, for [`REMOVE_LEFTOVERS`], which runs as that user. Sent as a frame, followed by the
/// paths of left files and directories, each terminated by NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftovers {
    /// System V objects by id.
    pub ipc: Vec<(IpcKind, i32)>,
    /// Whether the kernel may hold keys of the user.
    pub keys: bool,
}

/// Kinds of System V IPC objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpcKind {
    /// Shared memory segment.
    Memory,
    /// A set of semaphores.
    Semaphores,
    /// A message queue.
    Messages,
}

/// Largest [`Leftovers`] in bytes: more objects than a kernel has of each kind by default.
pub const MAX_LEFTOVERS_BYTES: usize = 4 * 1024 * 1024;

/// Checkpoint state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointState {
    /// The process may use its GPUs.
    Running,
    /// The process blocks as soon as it calls the GPU driver.
    Locked,
    /// The process holds nothing on its GPUs.
    Checkpointed,
    /// The checkpoint or restore failed; the process cannot continue.
    Failed,
}

/// Error of a checkpoint call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointError {
    /// The host cannot checkpoint processes.
    #[error("{0}")]
    Unsupported(String),
    /// The driver refused the call.
    #[error("{0}")]
    Refused(String),
    /// The process did not lock in time.
    #[error("process {0} did not come to rest in time")]
    TimedOut(u32),
}

/// Actions of [`CHECKPOINT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointAction {
    /// Report the state of processes.
    Probe,
    /// Move GPU memory of processes to the host.
    Suspend,
    /// Move memory back to the GPUs.
    Resume,
    /// Restore from whatever state an interrupted action left.
    Undo,
}

impl CheckpointAction {
    const ALL: [Self; 4] = [Self::Probe, Self::Suspend, Self::Resume, Self::Undo];

    /// Name on the command line.
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
        found.ok_or_else(|| format!("`{text}` is not one of probe, suspend, resume, undo"))
    }
}

/// Result for one process: a line that [`CHECKPOINT`] prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointResult {
    /// Id of the process.
    pub pid: u32,
    /// State of the process, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CheckpointState>,
    /// Error, if the action failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<CheckpointError>,
}

/// Number of descriptors passed when a job begins: pipe and file of each stream, and the file of marks
/// ([`crate::output::MARKS_FILE`]).
pub const JOB_FDS: usize = 2 * STREAMS.len() + 1;

/// Length of an encoded [`WriterMessage`] in bytes.
pub const MESSAGE_BYTES: usize = 18;

/// Message between the supervisor and [`WRITE_OUTPUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterMessage {
    /// Kind of message, see [`kind`].
    pub kind: u8,
    /// Number of the job, which is the output of one attempt.
    pub job: u64,
    /// Index in [`STREAMS`], for kinds that concern one stream.
    pub stream: u8,
    /// Payload as the kind defines it, otherwise 0.
    pub value: u64,
}

/// Kinds of messages.
pub mod kind {
    /// To the writer: start a job with [`super::JOB_FDS`] descriptors. The value is the number of bytes kept per
    /// stream.
    pub const BEGIN: u8 = b'b';
    /// To the writer: write everything received for the job so far.
    pub const FLUSH: u8 = b'f';
    /// To the writer: no more data will come for the job.
    pub const END: u8 = b'e';
    /// Answer to [`FLUSH`]: the data is written, or its file cannot be written now.
    pub const FLUSHED: u8 = b'd';
    /// Answer to [`END`]: all data is written.
    pub const WRITTEN: u8 = b'w';
    /// Answer to [`END`]: some data could not be written.
    pub const LOST: u8 = b'l';
    /// Unsolicited: the file of a job cannot be written.
    pub const STALLED: u8 = b's';
    /// Unsolicited, once per job: the oldest part of a stream is dropped from now on. The value is the offset of the
    /// first byte kept.
    pub const DROPPED: u8 = b'p';
    /// Unsolicited, once per job: the oldest part of a stream cannot be dropped. The value is the kernel's error
    /// number.
    pub const NOT_DROPPED: u8 = b'n';
}

impl WriterMessage {
    /// A message without stream and value.
    pub fn new(kind: u8, job: u64) -> Self {
        Self {
            kind,
            job,
            stream: 0,
            value: 0,
        }
    }

    /// Encodes the message.
    pub fn to_bytes(self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [self.kind; MESSAGE_BYTES];
        bytes[1..9].copy_from_slice(&self.job.to_le_bytes());
        bytes[9] = self.stream;
        bytes[10..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// Decodes a message; `None` if the length is wrong.
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
