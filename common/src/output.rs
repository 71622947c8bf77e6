//! How the output of an attempt lies on its host: the names of its files, and the marks that say how much of the oldest
//! part was dropped. The supervisor makes them, its writer of output writes them, the agent reads them by itself.
//!
//! A file of marks is as long as one mark for each stream, from its making on: a mark is written over in place, so that
//! a disk without room does not keep the writer from making room.
//!
//! The oldest part is dropped by punching a hole, so that the offsets of what is kept stay what they are. The mark is written
//! *before* the hole is made: a reader that reads first and asks for the mark then never takes the zeros of a hole for output.

use crate::wire::LogStream;

/// The file of marks in an attempt's directory.
pub const MARKS_FILE: &str = "dropped";

/// Bytes of one mark.
pub const MARK_BYTES: usize = 16;

/// Bytes of a file of marks.
pub const MARKS_BYTES: usize = STREAMS.len() * MARK_BYTES;

/// Every stream, in the order of its mark.
pub const STREAMS: [LogStream; 2] = [LogStream::Stdout, LogStream::Stderr];

impl LogStream {
    /// The name of its file in an attempt's directory; what is no output has none.
    pub const fn file_name(self) -> &'static str {
        match self {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
            LogStream::Exec => "exec",
        }
    }

    /// Where its mark begins in the file of marks.
    pub const fn mark_at(self) -> u64 {
        match self {
            LogStream::Stdout => 0,
            LogStream::Stderr => MARK_BYTES as u64,
            // Beyond the marks: nothing of it is kept, so nothing is dropped.
            LogStream::Exec => MARKS_BYTES as u64,
        }
    }
}

/// A mark: the bytes before this offset were dropped. Written twice, the second time inverted, so that a reader who
/// looks while it is being written sees that it is half.
pub fn mark(first_kept: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&first_kept.to_le_bytes());
    bytes[8..].copy_from_slice(&(!first_kept).to_le_bytes());
    bytes
}

/// What a mark says; `None` where it is half.
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
