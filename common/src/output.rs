//! On-disk format of an attempt's output: file names, and marks that record how much of the oldest part was dropped.
//! The supervisor creates the files, `sluice-helper` writes them and the agent reads them.
//!
//! The marks of dropped output are there from the file's creation and are overwritten in place, so that a full disk cannot
//! keep the writer from dropping output. Behind them is a list of [`times`], which a full disk may keep from growing.
//!
//! The oldest part is dropped by punching a hole, so offsets stay valid. The mark is written *before* the hole is
//! punched: a reader that reads data first and the mark second never mistakes zeros of a hole for output.

pub mod times;

use serde::{Deserialize, Serialize};

/// File of marks in an attempt's directory.
pub const MARKS_FILE: &str = "dropped";

/// Length of one mark in bytes.
pub const MARK_BYTES: usize = 16;

/// Length of the marks of dropped output in bytes; [`times`] follow in the file.
pub const MARKS_BYTES: usize = STREAMS.len() * MARK_BYTES;

/// All streams, in the order of their marks.
pub const STREAMS: [LogStream; 2] = [LogStream::Stdout, LogStream::Stderr];

/// Streams of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output of the step.
    Stdout,
    /// Standard error of the step.
    Stderr,
    /// Streams of an `exec` program instead of stored output. An [`crate::exec::ExecOrder`] follows the request, and
    /// after acceptance [`crate::exec`]'s frames both ways.
    Exec,
    /// Standard input of the step. The answer's offset is the number of bytes that the step's host has taken so far;
    /// [`crate::exec`]'s frames follow both ways.
    Input,
}

impl LogStream {
    /// File name in an attempt's directory; `Exec` has no file there.
    pub const fn file_name(self) -> &'static str {
        match self {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
            LogStream::Exec => "exec",
            LogStream::Input => "input",
        }
    }

    /// Offset of the stream's mark in the file of marks.
    pub const fn mark_at(self) -> u64 {
        match self {
            LogStream::Stdout => 0,
            LogStream::Stderr => MARK_BYTES as u64,
            // Beyond the marks: no output of `Exec` is stored.
            LogStream::Exec | LogStream::Input => MARKS_BYTES as u64,
        }
    }
}

/// Encodes a mark: bytes before this offset were dropped. The offset is written twice, the second time inverted, so
/// that a reader detects a half-written mark.
pub fn mark(first_kept: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&first_kept.to_le_bytes());
    bytes[8..].copy_from_slice(&(!first_kept).to_le_bytes());
    bytes
}

/// Decodes a mark; `None` if half-written.
pub fn read_mark(bytes: [u8; MARK_BYTES]) -> Option<u64> {
    let [value, check] = [0, 8].map(|at| {
        let half = bytes[at..at + 8].try_into();
        u64::from_le_bytes(half.expect("eight bytes are eight bytes"))
    });
    (value == !check).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_a_half_one_is_not() {
        for offset in [0, 1, 4096, u64::MAX] {
            assert_eq!(read_mark(mark(offset)), Some(offset));
        }
        let mut half = mark(4096);
        half[..8].copy_from_slice(&mark(8192)[..8]);
        assert_eq!(read_mark(half), None);
        assert_eq!(read_mark([0; MARK_BYTES]), None);
    }
}
