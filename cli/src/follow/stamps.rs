//! Reads output in which the body and each line begin with a time: separates the times, which do not count in offsets, from
//! the output.

/// Stamp of a line of which the host kept no time.
pub(super) const NO_TIME: &[u8] = b"- ";

/// Longest time with its space, such as `2026-12-01T08:00:00Z `.
const MAX_STAMP_BYTES: usize = 40;

/// A piece of output within one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LinePart<'a> {
    /// The time before it with its space, if it begins a line or the body.
    pub(super) stamp: Option<Vec<u8>>,
    pub(super) bytes: &'a [u8],
}

impl<'a> LinePart<'a> {
    /// Output without times, of any number of lines.
    pub(super) fn plain(bytes: &'a [u8]) -> Self {
        Self { stamp: None, bytes }
    }
}

/// Position in a body with times.
#[derive(Debug)]
pub(super) struct StampReader {
    /// The time that is being read, with its space once that was read.
    stamp: Option<Vec<u8>>,
}

impl Default for StampReader {
    /// The beginning of a body.
    fn default() -> Self {
        Self {
            stamp: Some(Vec::new()),
        }
    }
}

impl StampReader {
    /// Splits the next bytes of the body at its lines.
    pub(super) fn split<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<LinePart<'a>> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            if let Some(stamp) = self.stamp.as_mut().filter(|stamp| !is_whole(stamp)) {
                stamp.push(bytes[0]);
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            let stamp = self.stamp.take();
            pieces.push(LinePart { stamp, bytes: line });
            bytes = rest;
            self.stamp = end.map(|_| Vec::new());
        }
        pieces
    }
}

/// Whether a time was read to its end. What is too long is none, and is cut.
fn is_whole(stamp: &[u8]) -> bool {
    stamp.ends_with(b" ") || stamp.len() >= MAX_STAMP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wherever_a_body_is_cut_into_pieces_the_same_times_and_lines_come_out() {
        let body = b"2026-12-01T08:00:00Z one\n- \n2026-12-01T08:00:01Z two words";
        for cut in 0..body.len() {
            let mut lines = StampReader::default();
            let mut text = Vec::new();
            let mut output: Vec<u8> = Vec::new();
            for part in [&body[..cut], &body[cut..]] {
                for LinePart { stamp, bytes } in lines.split(part) {
                    text.extend(stamp.into_iter().flatten());
                    text.extend(bytes);
                    output.extend(bytes);
                }
            }
            assert_eq!(text, body, "{cut}");
            assert_eq!(output, b"one\n\ntwo words", "{cut}");
        }
    }

    #[test]
    fn a_stamp_without_end_is_cut() {
        let mut lines = StampReader::default();
        let long = [b'x'; 100];
        let pieces = lines.split(&long);
        assert_eq!(pieces[0].bytes.len(), 100 - MAX_STAMP_BYTES);
    }
}
