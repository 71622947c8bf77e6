//! Programs that run inside a step's attempt: requests for them, and the frames between coordinator and host that carry
//! their streams and the input of steps. Callers use [`crate::websocket`] instead; the coordinator translates.
//!
//! ```text
//! kind (1 byte) | length (4 bytes, big-endian) | bytes
//! ```

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::id::{AttemptId, UserName};
use crate::port::PortName;

/// Largest payload of a frame, in bytes.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

/// Most programs per attempt and host at a time. The agent buffers their output, so this bounds its memory.
pub const MAX_EXECS_PER_ATTEMPT: usize = 16;

/// Most connections to the ports of an attempt at a time, on each host. The agent buffers up to 130 kB for each.
pub const MAX_CONNECTIONS_PER_ATTEMPT: usize = 256;

/// Length of a frame's header in bytes.
const HEADER_BYTES: usize = 5;

/// Request to run a program inside a step's attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// Program and arguments; the program is looked up in the step's `PATH`.
    pub command: Vec<String>,
    /// The terminal that the program gets; none if absent, and its streams are then pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalRequest>,
}

/// Terminal of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TerminalRequest {
    /// Number of lines.
    pub rows: u16,
    /// Number of columns.
    pub columns: u16,
    /// Type of the caller's terminal, the program's variable `TERM`, such as `xterm-256color`.
    pub term: String,
}

/// Longest type of a terminal.
const MAX_TERM_BYTES: usize = 64;

impl TerminalRequest {
    /// Checks the type, which becomes a variable of the program.
    ///
    /// # Errors
    /// If it is not a type's name.
    pub fn check(&self) -> Result<(), FieldError> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "-+._".contains(c);
        if (1..=MAX_TERM_BYTES).contains(&self.term.len()) && self.term.chars().all(is_known) {
            return Ok(());
        }
        let message = format!(
            "write 1 to {MAX_TERM_BYTES} letters, digits, `-`, `+`, `.` or `_`, such as `xterm-256color`"
        );
        Err(FieldError::new(
            ErrorCode::InvalidCommand,
            "terminal.term",
            message,
        ))
    }
}

/// Size of a terminal, the payload of [`FrameKind::Resize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WindowSize {
    /// Number of lines.
    pub rows: u16,
    /// Number of columns.
    pub columns: u16,
}

impl WindowSize {
    /// Encodes the size.
    pub fn to_bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.rows.to_be_bytes(), self.columns.to_be_bytes());
        [a, b, c, d]
    }

    /// Decodes a size; `None` if the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d] = *bytes else { return None };
        Some(Self {
            rows: u16::from_be_bytes([a, b]),
            columns: u16::from_be_bytes([c, d]),
        })
    }
}

/// Order to a host to run a program inside an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOrder {
    /// Program to run.
    pub program: ExecProgram,
    /// The calling user, or the step's submitter if the caller is an admin; `None` if the coordinator does not know the
    /// caller as a user. Steps that run as their submitter's own host user accept no other user.
    pub by: Option<UserName>,
}

impl ExecOrder {
    /// The terminal that the program gets, if any.
    pub fn terminal(&self) -> Option<&TerminalRequest> {
        match &self.program {
            ExecProgram::Command { terminal, .. } => terminal.as_ref(),
            ExecProgram::CopyFiles | ExecProgram::Probe { .. } | ExecProgram::Connect { .. } => {
                None
            }
        }
    }
}

/// Program inside an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecProgram {
    /// A command of the caller.
    Command {
        /// Program and arguments; not empty.
        command: Vec<String>,
        /// The terminal that the program gets, if any.
        terminal: Option<TerminalRequest>,
    },
    /// The mode of `sluice-helper` that copies files to and from the caller.
    CopyFiles,
    /// A probe of the step itself, which has no caller and does not count against [`MAX_EXECS_PER_ATTEMPT`].
    Probe {
        /// Program and arguments; not empty.
        command: Vec<String>,
    },
    /// No program: the agent connects to a port that it gave to the attempt, and passes bytes on. The supervisor starts
    /// nothing; it only decides whether the caller may run programs there.
    Connect {
        /// Name of the port.
        port: PortName,
    },
}

/// Identifies an `exec` program between agent and supervisor. The agent assigns the number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExecId {
    /// Attempt that the program runs in.
    pub attempt: AttemptId,
    /// Number among the programs of the attempt.
    pub number: u32,
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Data for the program's standard input; empty means end of input.
    Stdin,
    /// Data from the program's standard output.
    Stdout,
    /// Data from the program's standard error.
    Stderr,
    /// Exit of the program as JSON; the last frame.
    Exit,
    /// New size of the terminal, as [`WindowSize`] encodes it.
    Resize,
    /// Number of bytes of standard input that the step's host has taken since the attempt began: 8 bytes, big-endian.
    /// Sent after each piece; the number that a connection begins with is part of the host's answer.
    Taken,
    /// The program takes no more input; empty. The last frame on a connection for the input of a step.
    InputEnded,
    /// Another caller sends the input of the step now; empty. The last frame on this connection.
    TakenOver,
    /// The program at a port sends nothing more; empty. The caller may still send.
    OutputEnded,
}

impl FrameKind {
    const ALL: [Self; 9] = [
        Self::Stdin,
        Self::Stdout,
        Self::Stderr,
        Self::Exit,
        Self::Resize,
        Self::Taken,
        Self::InputEnded,
        Self::TakenOver,
        Self::OutputEnded,
    ];

    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Stdin => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Exit => 3,
            Self::Resize => 5,
            Self::Taken => 6,
            Self::InputEnded => 7,
            Self::TakenOver => 8,
            Self::OutputEnded => 9,
        }
    }
}

/// Error of a malformed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Unknown frame kind, perhaps of a newer version.
    #[error("a frame is of the unknown kind {0}")]
    Kind(u8),
    /// The announced length exceeds [`MAX_FRAME_BYTES`].
    #[error("a frame of {0} bytes is larger than the {MAX_FRAME_BYTES} that one may have")]
    Length(usize),
}

/// Encodes a frame. Bytes beyond [`MAX_FRAME_BYTES`] are cut off.
pub fn encode_frame(kind: FrameKind, bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[..bytes.len().min(MAX_FRAME_BYTES)];
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut framed = Vec::with_capacity(HEADER_BYTES + bytes.len());
    framed.push(kind.byte());
    framed.extend(length.to_be_bytes());
    framed.extend(bytes);
    framed
}

/// Splits a byte stream into frames.
#[derive(Debug, Default)]
pub struct FrameDecoder(Vec<u8>);

impl FrameDecoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// The next complete frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// If the stream is malformed; nothing after that can be read.
    pub fn next_frame(&mut self) -> Result<Option<(FrameKind, Vec<u8>)>, FrameError> {
        let [kind, a, b, c, d, ..] = self.0[..] else {
            return Ok(None);
        };
        let known = FrameKind::ALL.into_iter().find(|k| k.byte() == kind);
        let known = known.ok_or(FrameError::Kind(kind))?;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::Length(length));
        }
        if self.0.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        let rest = self.0.split_off(HEADER_BYTES + length);
        let mut taken = core::mem::replace(&mut self.0, rest);
        taken.drain(..HEADER_BYTES);
        Ok(Some((known, taken)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let mut bytes = encode_frame(FrameKind::Stdin, b"abc");
        bytes.extend(encode_frame(FrameKind::Stdin, b""));
        bytes.extend(encode_frame(FrameKind::Exit, b"{}"));
        for size in 1..bytes.len() {
            let mut frames = FrameDecoder::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                frames.push(piece);
                while let Some(frame) = frames.next_frame().unwrap() {
                    found.push(frame);
                }
            }
            let expected = [
                (FrameKind::Stdin, b"abc".to_vec()),
                (FrameKind::Stdin, Vec::new()),
                (FrameKind::Exit, b"{}".to_vec()),
            ];
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_before_its_bytes_have_come() {
        let mut frames = FrameDecoder::default();
        frames.push(&[10, 0, 0, 0, 0]);
        assert_eq!(frames.next_frame(), Err(FrameError::Kind(10)));
        let mut frames = FrameDecoder::default();
        frames.push(&[0, 255, 255, 255, 255]);
        assert_eq!(
            frames.next_frame(),
            Err(FrameError::Length(u32::MAX as usize))
        );
    }
}
