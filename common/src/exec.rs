//! What a caller and a program that runs beside a step say to each other: frames over a connection, each a kind, a
//! length and bytes. The agent and the caller write and read them; whoever is between passes them on unread.
//!
//! ```text
//! kind (1 byte) | length (4 bytes, big-endian) | bytes
//! ```

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, UserName};

/// The name of this protocol in the HTTP header `Upgrade`.
pub const UPGRADE: &str = "sluice-exec/1";

/// The most that one frame carries.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

/// How many programs may run beside one attempt on a host at once: what they write is copied by the agent, whose memory
/// they must not fill.
pub const MAX_EXECS_PER_ATTEMPT: usize = 16;

/// What stands before the bytes of a frame.
const HEADER_BYTES: usize = 5;

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// Program and arguments; the program is looked up in the step's `PATH`.
    pub command: Vec<String>,
}

/// What a host is told to run beside an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOrder {
    /// Program and arguments, not empty.
    pub command: Vec<String>,
    /// The user who wants it; the step's own submitter if an admin does. `None` if the caller is no user that the
    /// coordinator knows. A step that runs as the host's user of its submitter lets nobody else in.
    pub by: Option<UserName>,
}

/// The name that a program which runs beside an attempt has between agent and supervisor. The agent chooses the number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExecId {
    /// Beside which attempt.
    pub attempt: AttemptId,
    /// Which of those beside it.
    pub number: u32,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// To the program's standard input; without bytes, that this is its end.
    Stdin,
    /// From its standard output.
    Stdout,
    /// From its standard error.
    Stderr,
    /// How it ended, as JSON; the last frame.
    Exit,
    /// Why the coordinator closed the connection before the program had ended, as the JSON of an error; the last frame.
    Closed,
}

impl FrameKind {
    const ALL: [Self; 5] = [
        Self::Stdin,
        Self::Stdout,
        Self::Stderr,
        Self::Exit,
        Self::Closed,
    ];

    const fn byte(self) -> u8 {
        match self {
            Self::Stdin => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Exit => 3,
            Self::Closed => 4,
        }
    }
}

/// Why bytes are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A newer program may know it.
    #[error("a frame is of the unknown kind {0}")]
    Kind(u8),
    /// More than a frame may carry.
    #[error("a frame of {0} bytes is larger than the {MAX_FRAME_BYTES} that one may have")]
    Length(usize),
}

/// A frame as it travels. Of more bytes than one frame carries, the first.
pub fn encode_frame(kind: FrameKind, bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[..bytes.len().min(MAX_FRAME_BYTES)];
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut framed = Vec::with_capacity(HEADER_BYTES + bytes.len());
    framed.push(kind.byte());
    framed.extend(length.to_be_bytes());
    framed.extend(bytes);
    framed
}

/// Bytes as they come, taken apart into frames.
#[derive(Debug, Default)]
pub struct FrameDecoder(Vec<u8>);

impl FrameDecoder {
    /// More bytes have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// The next frame that is whole; `None` where more bytes are needed.
    ///
    /// # Errors
    /// Where what has come is no frame: nothing after it can be read.
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

/// Where frames end that are passed on unread: at a frame's end another one may be put in.
#[derive(Debug, Default)]
pub struct FrameBoundaries {
    header: [u8; HEADER_BYTES],
    /// How much of the header has passed.
    header_len: usize,
    /// How much of the frame's bytes has not.
    body_left: usize,
}

impl FrameBoundaries {
    /// These bytes were passed on.
    pub fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = bytes.len().min(self.missing().max(1));
            let (now, rest) = bytes.split_at(taken);
            bytes = rest;
            if self.body_left > 0 {
                self.body_left -= taken;
                continue;
            }
            self.header[self.header_len..self.header_len + taken].copy_from_slice(now);
            self.header_len += taken;
            if let [_, a, b, c, d] = self.header
                && self.header_len == HEADER_BYTES
            {
                self.body_left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.header_len = 0;
            }
        }
    }

    /// How many bytes are known to come before the frame ends; 0 between two frames.
    pub fn missing(&self) -> usize {
        match (self.body_left, self.header_len) {
            (0, 0) => 0,
            (0, header_len) => HEADER_BYTES - header_len,
            (left, _) => left,
        }
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
    fn the_ends_of_frames_are_known_however_they_are_cut() {
        let first = encode_frame(FrameKind::Stdout, b"abc");
        let all = [&first[..], &encode_frame(FrameKind::Stderr, b""), &first].concat();
        for size in 1..all.len() {
            let mut edges = FrameBoundaries::default();
            let mut passed = 0;
            for piece in all.chunks(size) {
                edges.advance(piece);
                passed += piece.len();
                let between = [8, 13, 21].contains(&passed);
                assert_eq!(
                    edges.missing() == 0,
                    between,
                    "{passed} in pieces of {size}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_before_its_bytes_have_come() {
        let mut frames = FrameDecoder::default();
        frames.push(&[9, 0, 0, 0, 0]);
        assert_eq!(frames.next_frame(), Err(FrameError::Kind(9)));
        let mut frames = FrameDecoder::default();
        frames.push(&[0, 255, 255, 255, 255]);
        assert_eq!(
            frames.next_frame(),
            Err(FrameError::Length(u32::MAX as usize))
        );
    }
}
