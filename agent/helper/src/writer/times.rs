//! Notes when the output of an attempt was written ([`sluice_common::output::times`]), behind the marks of dropped output in
//! the same file. Output is more important than its times: what cannot be noted is left out.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use sluice_common::output::times::{
    MARK_INTERVAL, MAX_TIME_MARKS, TIME_MARK_BYTES, TimeMark, read_marks, thin,
};
use sluice_common::output::{MARKS_BYTES, STREAMS};
use sluice_common::time::Time;

/// The list of times of an attempt.
pub(super) struct OutputClock {
    /// Length of the list.
    count: usize,
    /// Time of the newest mark of each stream.
    newest: [Option<Time>; STREAMS.len()],
}

impl OutputClock {
    /// Goes on with the list in the attempt's file of marks. Part of a mark at its end, which a killed writer may have
    /// left, is overwritten.
    pub(super) fn new(marks: &File) -> Self {
        let len = marks.metadata().map_or(0, |found| found.len());
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let count = len.saturating_sub(MARKS_BYTES) / TIME_MARK_BYTES;
        Self {
            count: count.min(MAX_TIME_MARKS),
            newest: [None; STREAMS.len()],
        }
    }

    /// Notes that bytes of a stream from `offset` on are about to be written, unless that was noted shortly before.
    pub(super) fn note(&mut self, marks: &File, stream: usize, offset: u64, now: Time) {
        // The clock may have been set back.
        let is_known = |newest: Time| newest <= now && now.since(newest) < MARK_INTERVAL;
        if self.newest[stream].is_some_and(is_known) {
            return;
        }
        self.newest[stream] = Some(now);
        if self.count >= MAX_TIME_MARKS && self.shorten(marks).is_err() {
            return;
        }
        let mark = TimeMark::new(stream, offset, now).to_bytes();
        if marks.write_all_at(&mark, place(self.count)).is_ok() {
            self.count += 1;
        }
    }

    fn shorten(&mut self, marks: &File) -> io::Result<()> {
        let mut bytes = vec![0; self.count * TIME_MARK_BYTES];
        marks.read_exact_at(&mut bytes, place(0))?;
        let mut list = read_marks(&bytes).collect();
        thin(&mut list);
        let bytes: Vec<u8> = list.iter().flat_map(|mark| mark.to_bytes()).collect();
        marks.write_all_at(&bytes, place(0))?;
        marks.set_len(place(list.len()))?;
        self.count = list.len();
        Ok(())
    }
}

/// Offset of a mark in the file.
fn place(mark: usize) -> u64 {
    (MARKS_BYTES + mark * TIME_MARK_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::output::LogStream;
    use sluice_common::output::times::{MAX_MARKS_FILE_BYTES, TimeIndex};

    fn marks() -> File {
        let marks = tempfile::tempfile().unwrap();
        marks.set_len(MARKS_BYTES as u64).unwrap();
        marks
    }

    fn seconds(seconds: u64) -> Time {
        Time::from_unix_millis(seconds * 1_000)
    }

    fn known(marks: &File) -> TimeIndex {
        let mut bytes = vec![0; usize::try_from(marks.metadata().unwrap().len()).unwrap()];
        marks.read_exact_at(&mut bytes, 0).unwrap();
        TimeIndex::of(LogStream::Stdout, read_marks(&bytes[MARKS_BYTES..]))
    }

    #[test]
    fn a_stream_has_one_mark_a_second_and_another_writer_goes_on() {
        let marks = marks();
        let mut clock = OutputClock::new(&marks);
        for (offset, millis) in [(0, 1_000), (5, 1_999), (9, 2_000)] {
            clock.note(&marks, 0, offset, Time::from_unix_millis(millis));
            clock.note(&marks, 1, offset, Time::from_unix_millis(millis));
        }
        assert_eq!(clock.count, 4);
        // The clock is set back, and the writer is killed within the next mark.
        clock.note(&marks, 0, 20, seconds(1));
        marks.write_all_at(&[7; 5], place(clock.count)).unwrap();
        let mut next = OutputClock::new(&marks);
        assert_eq!(next.count, 5);
        next.note(&marks, 0, 30, seconds(50));
        let known = known(&marks);
        for (offset, at) in [(0, 1), (8, 1), (9, 2), (20, 1), (30, 50), (99, 50)] {
            assert_eq!(known.at(offset), Some(seconds(at)), "{offset}");
        }
    }

    #[test]
    fn the_list_is_bounded_and_the_newest_times_stay_exact() {
        let marks = marks();
        let mut clock = OutputClock::new(&marks);
        let last = 3 * MAX_TIME_MARKS as u64;
        for second in 0..=last {
            clock.note(&marks, 0, second, seconds(second));
        }
        let len = marks.metadata().unwrap().len();
        assert!(len <= MAX_MARKS_FILE_BYTES as u64, "{len}");
        let known = known(&marks);
        for second in last - MAX_TIME_MARKS as u64 / 2..=last {
            assert_eq!(known.at(second), Some(seconds(second)));
        }
        for second in 0..=last {
            let off = seconds(second).since(known.at(second).unwrap());
            assert!(off.millis() <= 32_000, "{second}: {off}");
        }
    }

    #[test]
    fn what_cannot_be_noted_is_left_out() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut clock = OutputClock::new(&full);
        clock.note(&full, 0, 0, seconds(1));
        assert_eq!(clock.count, 0);
    }
}
