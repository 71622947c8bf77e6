//! Keeps the last lines of a stream of bytes.

use std::collections::VecDeque;
use std::io::{self, Write};

/// Keeps the last lines of what is written to it, and drops the rest as soon as possible.
#[derive(Debug)]
pub(crate) struct Tail {
    lines: usize,
    bytes: Vec<u8>,
    /// Starts of the lines in `bytes`, including the first; at most `lines + 1`.
    starts: VecDeque<usize>,
}

/// Bytes dropped in one go, so that the rest is not moved for each line.
const LET_GO_BYTES: usize = 1 << 20;

impl Tail {
    /// Keeps the last `lines` lines.
    pub(crate) fn new(lines: usize) -> Self {
        Self {
            lines,
            bytes: Vec::new(),
            starts: VecDeque::from([0]),
        }
    }

    /// Returns the last lines; an unfinished line counts as one.
    pub(crate) fn bytes(&self) -> &[u8] {
        // After a line end, the last start is that of an empty line, which does not count.
        let unbegun = usize::from(self.starts.back() == Some(&self.bytes.len()));
        let known = self.starts.len() - unbegun;
        let skip = known.saturating_sub(self.lines);
        let from = self.starts.get(skip).copied().unwrap_or(self.bytes.len());
        if self.lines == 0 {
            &[]
        } else {
            &self.bytes[from..]
        }
    }

    fn begin_line(&mut self, at: usize) {
        self.starts.push_back(at);
        // One more than wanted, since the newest may be empty.
        if self.starts.len() > self.lines.saturating_add(1) {
            self.starts.pop_front();
        }
    }

    fn let_go(&mut self) {
        let first = self.starts.front().copied().unwrap_or(0);
        if first >= LET_GO_BYTES {
            self.bytes.drain(..first);
            for start in &mut self.starts {
                *start -= first;
            }
        }
    }
}

impl Write for Tail {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(chunk);
        for (i, byte) in chunk.iter().enumerate() {
            if *byte == b'\n' {
                self.begin_line(base + i + 1);
            }
        }
        self.let_go();
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tail(lines: usize, chunks: &[&[u8]]) -> Vec<u8> {
        let mut tail = Tail::new(lines);
        for chunk in chunks {
            tail.write_all(chunk).unwrap();
        }
        tail.bytes().to_vec()
    }

    #[test]
    fn the_last_lines_are_kept() {
        assert_eq!(tail(2, &[b"a\nb\nc\n"]), b"b\nc\n");
        assert_eq!(tail(2, &[b"a\nb", b"\nc"]), b"b\nc");
        assert_eq!(tail(9, &[b"a\n", b"b"]), b"a\nb");
        assert_eq!(tail(1, &[b"\n\n"]), b"\n");
        assert_eq!(tail(0, &[b"a\nb"]), b"");
        assert_eq!(tail(3, &[]), b"");
    }

    #[test]
    fn what_went_by_is_let_go() {
        let mut tail = Tail::new(1);
        for _ in 0..5 {
            tail.write_all(&vec![b'x'; LET_GO_BYTES]).unwrap();
            tail.write_all(b"\n").unwrap();
        }
        tail.write_all(b"end\n").unwrap();
        assert_eq!(tail.bytes(), b"end\n");
        assert!(
            tail.bytes.len() <= 2 * LET_GO_BYTES + 16,
            "{}",
            tail.bytes.len()
        );
    }

    proptest! {
        #[test]
        fn it_agrees_with_splitting_the_whole(
            text in "[ab\n]{0,60}", cut in 0usize..60, lines in 0usize..6
        ) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let all: Vec<&str> = text.split_inclusive('\n').collect();
            let expected: String = all[all.len().saturating_sub(lines)..].concat();
            prop_assert_eq!(tail(lines, &[&bytes[..cut], &bytes[cut..]]), expected.into_bytes());
        }
    }
}
