//! Limits how much of each stream of an attempt is kept: the newest part. Older output is replaced by a hole
//! in the file, after a mark that records it ([`sluice_common::output`]).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::fcntl::{FallocateFlags, fallocate};
use sluice_common::output::{MARK_BYTES, STREAMS, mark, read_mark};

/// A stream may exceed its bound by this fraction of it, and by at most [`MOST_OVER_BYTES`], before the
/// oldest part is dropped.
const PART_OVER: u64 = 16;

/// Upper bound of the excess, so that a step with much output has a hole made for each so many bytes.
const MOST_OVER_BYTES: u64 = 1 << 20;

/// When to drop the excess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropTiming {
    /// If the excess is large enough.
    Due,
    /// Any excess, because no more output may come for long.
    Now,
}

/// The bound of an attempt's streams.
pub(super) struct OutputBound {
    marks: File,
    max_bytes: u64,
    is_reported: bool,
}

impl OutputBound {
    /// `marks` is the attempt's file of marks. `max_bytes` of `u64::MAX` means no bound.
    pub(super) fn new(marks: File, max_bytes: u64) -> Self {
        Self {
            marks,
            max_bytes,
            is_reported: false,
        }
    }

    /// The attempt's file of marks.
    pub(super) fn marks(&self) -> &File {
        &self.marks
    }

    /// Offset of the oldest kept byte of a stream, as recorded by an earlier writer. A writer that was killed
    /// may have left a partial mark, which is overwritten.
    pub(super) fn dropped(&self, stream: usize) -> u64 {
        let mut bytes = [0; MARK_BYTES];
        let read = self
            .marks
            .read_exact_at(&mut bytes, STREAMS[stream].mark_at());
        read.map_or(0, |()| read_mark(bytes).unwrap_or(0))
    }

    /// Drops the excess of a stream's file, in which bytes from `first_kept` to `end` are kept. Returns the
    /// new offset of the oldest kept byte if it changed.
    ///
    /// # Errors
    /// If the excess cannot be dropped.
    pub(super) fn keep(
        &self,
        stream: usize,
        file: &File,
        end: u64,
        first_kept: u64,
        when: DropTiming,
    ) -> io::Result<Option<u64>> {
        let over = end
            .saturating_sub(self.max_bytes)
            .saturating_sub(first_kept);
        let bearable = match when {
            DropTiming::Due => (self.max_bytes / PART_OVER).min(MOST_OVER_BYTES),
            DropTiming::Now => 0,
        };
        if over <= bearable {
            return Ok(None);
        }
        let wanted = first_kept + over;
        // Whole blocks only: a hole smaller than a block frees nothing.
        let wanted = wanted - wanted % file.metadata()?.blksize().max(1);
        if wanted <= first_kept {
            return Ok(None);
        }
        self.marks
            .write_all_at(&mark(wanted), STREAMS[stream].mark_at())?;
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let len = i64::try_from(wanted).map_err(io::Error::other)?;
        fallocate(file.as_fd(), hole, 0, len)?;
        Ok(Some(wanted))
    }

    /// Whether no drop was reported before.
    pub(super) fn is_first_report(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reported, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const MAX: u64 = 64 * 1024;

    fn bound() -> OutputBound {
        let marks = tempfile::tempfile().unwrap();
        for stream in STREAMS {
            marks.write_all_at(&mark(0), stream.mark_at()).unwrap();
        }
        OutputBound::new(marks, MAX)
    }

    #[test]
    fn the_oldest_part_goes_and_the_rest_stays_where_it_is() {
        let (bound, mut file) = (bound(), tempfile::NamedTempFile::new().unwrap());
        let (mut whole, mut first_kept) = (Vec::<u8>::new(), 0);
        for n in 0..10u8 {
            let bytes: Vec<u8> = (0..20_001u32).map(|i| (i % 250) as u8 | n).collect();
            file.write_all(&bytes).unwrap();
            whole.extend(&bytes);
            let end = whole.len() as u64;
            let dropped = bound.keep(0, file.as_file(), end, first_kept, DropTiming::Now);
            first_kept = dropped.unwrap().unwrap_or(first_kept);
            assert_eq!(bound.dropped(0), first_kept);
            let mut found = Vec::new();
            file.reopen().unwrap().read_to_end(&mut found).unwrap();
            assert_eq!(found.len(), whole.len(), "offsets stay valid");
            let kept = usize::try_from(first_kept).unwrap();
            assert!(found[..kept].iter().all(|byte| *byte == 0));
            assert_eq!(found[kept..], whole[kept..]);
            assert!(end - first_kept >= MAX.min(end));
        }
        let room = file.as_file().metadata().unwrap().blocks() * 512;
        assert!(room <= 2 * MAX, "{room} bytes are still taken");
        assert_eq!(bound.dropped(1), 0);
    }

    #[test]
    fn a_hole_is_made_when_it_is_worth_it_or_nothing_more_comes() {
        let (bound, file) = (bound(), tempfile::tempfile().unwrap());
        let end = MAX + MAX / PART_OVER;
        file.set_len(end).unwrap();
        assert_eq!(bound.keep(0, &file, end, 0, DropTiming::Due).unwrap(), None);
        let dropped = bound.keep(0, &file, end, 0, DropTiming::Now).unwrap();
        assert_eq!(dropped, Some(MAX / PART_OVER));
        assert_eq!(
            bound
                .keep(0, &file, end, MAX / PART_OVER, DropTiming::Now)
                .unwrap(),
            None
        );
    }

    #[test]
    fn nothing_is_dropped_without_a_bound_and_trouble_is_told_once() {
        let mut bound = bound();
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert!(bound.keep(0, &full, 3 * MAX, 0, DropTiming::Now).is_err());
        assert!(bound.is_first_report() && !bound.is_first_report());
        bound.max_bytes = u64::MAX;
        assert_eq!(
            bound.keep(0, &full, 3 * MAX, 0, DropTiming::Now).unwrap(),
            None
        );
    }
}
