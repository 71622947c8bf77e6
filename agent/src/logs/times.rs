//! Times of output for a transfer: where output since a time begins, and a time before each line. The writer notes times
//! before it writes ([`sluice_common::output::times`]), so whoever reads output first and its times second knows them all.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sluice_common::api::timestamp;
use sluice_common::output::times::{MAX_MARKS_FILE_BYTES, TimeIndex, read_marks};
use sluice_common::output::{MARKS_BYTES, MARKS_FILE};
use sluice_common::time::Time;
use sluice_common::wire::{LogStream, OutputSince};

use crate::clock;

/// Stands for a time that the host did not keep.
const NO_TIME: &str = "-";

/// The times of one stream of an attempt, as far as they were read.
pub(super) struct TimeReader {
    marks: PathBuf,
    stream: LogStream,
    /// Length and change of the file when it was read.
    state: Option<(u64, SystemTime)>,
    times: TimeIndex,
}

impl TimeReader {
    pub(super) fn new(attempt_dir: &Path, stream: LogStream) -> Self {
        Self {
            marks: attempt_dir.join(MARKS_FILE),
            stream,
            state: None,
            times: TimeIndex::default(),
        }
    }

    /// The times as they are now.
    pub(super) fn read(&mut self) -> &TimeIndex {
        let found = fs::metadata(&self.marks).ok();
        let state = found.and_then(|found| Some((found.len(), found.modified().ok()?)));
        let is_bounded = state.is_some_and(|(len, _)| len <= MAX_MARKS_FILE_BYTES as u64);
        if is_bounded && self.state != state {
            let bytes = fs::read(&self.marks).unwrap_or_default();
            let list = bytes.get(MARKS_BYTES..).unwrap_or_default();
            self.times = TimeIndex::of(self.stream, read_marks(list));
            self.state = state;
        }
        &self.times
    }
}

/// The wanted time by this host's clock.
pub(super) fn since(wanted: OutputSince) -> Time {
    match wanted {
        OutputSince::At(time) => time,
        OutputSince::Ago(span) => clock::now().wall.before(span),
    }
}

/// Writes a time before each line of a stream, and before the first bytes.
pub(super) struct StampWriter {
    reader: TimeReader,
    is_line_start: bool,
}

impl StampWriter {
    pub(super) fn new(reader: TimeReader) -> Self {
        Self {
            reader,
            is_line_start: true,
        }
    }

    /// Adds times to a piece of the stream that begins at `offset`, and follows the piece before it.
    pub(super) fn stamp(&mut self, offset: u64, piece: &[u8]) -> Vec<u8> {
        let times = self.reader.read();
        let mut stamped = Vec::with_capacity(piece.len() * 2);
        let mut at = offset;
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.is_line_start {
                stamped.extend_from_slice(text(times.at(at)).as_bytes());
                stamped.push(b' ');
            }
            stamped.extend_from_slice(line);
            self.is_line_start = line.ends_with(b"\n");
            at += line.len() as u64;
        }
        stamped
    }
}

/// A time in full seconds, because times are not kept more exactly.
fn text(at: Option<Time>) -> String {
    let seconds = |at: Time| Time::from_unix_millis(at.unix_millis() / 1_000 * 1_000);
    at.map_or(NO_TIME.to_owned(), |at| timestamp(seconds(at)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::output::times::TimeMark;

    fn dir_with(marks: &[(usize, u64, u64)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = vec![0; MARKS_BYTES];
        for (stream, offset, at) in marks {
            let at = Time::from_unix_millis(*at);
            bytes.extend(TimeMark::new(*stream, *offset, at).to_bytes());
        }
        fs::write(dir.path().join(MARKS_FILE), bytes).unwrap();
        dir
    }

    #[test]
    fn each_line_has_the_time_of_its_first_byte_and_unknown_times_are_none() {
        let dir = dir_with(&[
            (0, 4, 1_790_000_000_999),
            (1, 0, 5),
            (0, 9, 1_790_000_007_000),
        ]);
        let reader = TimeReader::new(dir.path(), LogStream::Stdout);
        let mut stamper = StampWriter::new(reader);
        let mut text = stamper.stamp(0, b"old\none\nt");
        text.extend(stamper.stamp(9, b"wo\n\nend"));
        let expected = "- old\n2026-09-21T14:13:20Z one\n2026-09-21T14:13:20Z two\n2026-09-21T14:13:27Z \n2026-09-21T14:13:27Z end";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn times_that_are_added_are_read_and_a_file_without_any_has_none() {
        let dir = dir_with(&[]);
        let mut reader = TimeReader::new(dir.path(), LogStream::Stderr);
        assert!(reader.read().is_empty());
        let path = dir.path().join(MARKS_FILE);
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend(TimeMark::new(1, 0, Time::from_unix_millis(5)).to_bytes());
        fs::write(&path, &bytes).unwrap();
        assert_eq!(reader.read().at(0), Some(Time::from_unix_millis(5)));
        fs::remove_file(&path).unwrap();
        assert!(
            TimeReader::new(dir.path(), LogStream::Stderr)
                .read()
                .is_empty()
        );
    }

    #[test]
    fn an_age_counts_from_now_by_this_host_s_clock() {
        let at = Time::from_unix_millis(7);
        assert_eq!(since(OutputSince::At(at)), at);
        let hour = sluice_common::time::Span::from_secs(3_600);
        let now = since(OutputSince::Ago(sluice_common::time::Span::ZERO));
        let off = now.before(hour).since(since(OutputSince::Ago(hour)));
        assert!(off.millis() < 60_000);
    }
}
