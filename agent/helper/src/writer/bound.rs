//! How much of each stream of one attempt is kept: the newest part. What is older is dropped by a hole, after the mark that says
//! so ([`sluice_common::output`]).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::fcntl::{FallocateFlags, fallocate};
use sluice_common::output::{MARK_BYTES, STREAMS, mark, read_mark};

/// A stream is over its bound by at most this part of it, and by at most [`MOST_OVER_BYTES`], before something is dropped.
const PART_OVER: u64 = 16;

/// A step that gives much has a hole made for each of so many bytes.
const MOST_OVER_BYTES: u64 = 1 << 20;

/// When to drop what is over the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// If it is worth it.
    Due,
    /// Whatever it is: nothing more may come for long.
    Now,
}

/// The bound of an attempt's streams.
pub(super) struct Bound {
    marks: File,
    max_bytes: u64,
    is_told: bool,
}

impl Bound {
    /// Of the attempt whose file of marks this is. `u64::MAX` is no bound.
    pub(super) fn new(marks: File, max_bytes: u64) -> Self {
        Self {
            marks,
            max_bytes,
            is_told: false,
        }
    }

    /// Where what is kept of a stream begins, as an earlier writer has left it. Nobody else writes it: a half mark was left by
    /// one that was killed, and is written anew.
    pub(super) fn dropped(&self, stream: usize) -> u64 {
        let mut bytes = [0; MARK_BYTES];
        let read = self
            .marks
            .read_exact_at(&mut bytes, STREAMS[stream].mark_at());
        read.map_or(0, |()| read_mark(bytes).unwrap_or(0))
    }

    /// Drops what is over the bound in the file of a stream of which `first_kept` to `end` is kept: where it begins then, if
    /// that has changed.
    ///
    /// # Errors
    /// If it cannot be dropped.
    pub(super) fn keep(
        &self,
        stream: usize,
        file: &File,
        end: u64,
        first_kept: u64,
        when: When,
    ) -> io::Result<Option<u64>> {
        let over = end
            .saturating_sub(self.max_bytes)
            .saturating_sub(first_kept);
        let bearable = match when {
            When::Due => (self.max_bytes / PART_OVER).min(MOST_OVER_BYTES),
            When::Now => 0,
        };
        if over <= bearable {
            return Ok(None);
        }
        let wanted = first_kept + over;
        // Whole blocks: of a part of one nothing would come free.
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

    /// Whether nothing was told of it before.
    pub(super) fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const MAX: u64 = 64 * 1024;

    fn bound() -> Bound {
        let marks = tempfile::tempfile().unwrap();
        for stream in STREAMS {
            marks.write_all_at(&mark(0), stream.mark_at()).unwrap();
        }
        Bound::new(marks, MAX)
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
            let dropped = bound.keep(0, file.as_file(), end, first_kept, When::Now);
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
        assert_eq!(bound.keep(0, &file, end, 0, When::Due).unwrap(), None);
        let dropped = bound.keep(0, &file, end, 0, When::Now).unwrap();
        assert_eq!(dropped, Some(MAX / PART_OVER));
        assert_eq!(
            bound
                .keep(0, &file, end, MAX / PART_OVER, When::Now)
                .unwrap(),
            None
        );
    }

    #[test]
    fn nothing_is_dropped_without_a_bound_and_trouble_is_told_once() {
        let mut bound = bound();
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert!(bound.keep(0, &full, 3 * MAX, 0, When::Now).is_err());
        assert!(bound.is_news() && !bound.is_news());
        bound.max_bytes = u64::MAX;
        assert_eq!(bound.keep(0, &full, 3 * MAX, 0, When::Now).unwrap(), None);
    }
}
