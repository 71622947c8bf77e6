//! How many bytes the log takes, in parts: a record may be a MiB, so that their number alone bounds neither the file nor
//! how long a restart reads.

use std::collections::VecDeque;

/// Bytes of a part, or a little more.
const PART: u64 = 1 << 20;

/// The log's bytes, by parts of it.
#[derive(Debug, Default)]
pub(super) struct LogSizes {
    /// The number of the last record of each part, and its bytes; the oldest first.
    parts: VecDeque<(u64, u64)>,
    total: u64,
}

impl LogSizes {
    /// A record follows the last.
    pub(super) fn add(&mut self, seq: u64, bytes: u64) {
        self.total += bytes;
        match self.parts.back_mut() {
            Some((last, sum)) if *sum < PART => {
                *last = seq;
                *sum += bytes;
            }
            Some(_) | None => self.parts.push_back((seq, bytes)),
        }
    }

    /// The last record that must go for the rest to take no more than `most`; 0 where none must.
    pub(super) fn beyond(&self, most: u64) -> u64 {
        let mut left = self.total;
        let mut parts = self.parts.iter();
        let mut cut = 0;
        while left > most
            && let Some((last, bytes)) = parts.next()
        {
            cut = *last;
            left -= bytes;
        }
        cut
    }

    /// Records up to this one are gone. A part of which some are left counts as before.
    pub(super) fn drop_until(&mut self, seq: u64) {
        while let Some((_, bytes)) = self.parts.pop_front_if(|(last, _)| *last <= seq) {
            self.total -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_goes_by_parts_from_the_oldest() {
        let mut sizes = LogSizes::default();
        for seq in 1..=10 {
            sizes.add(seq, PART);
        }
        assert_eq!(sizes.beyond(10 * PART), 0);
        assert_eq!(sizes.beyond(7 * PART), 3);
        sizes.drop_until(3);
        assert_eq!(sizes.beyond(7 * PART), 0);
        assert_eq!(sizes.beyond(0), 10);
    }

    #[test]
    fn small_records_share_a_part() {
        let mut sizes = LogSizes::default();
        for seq in 1..=10_000 {
            sizes.add(seq, 1024);
        }
        assert!(sizes.parts.len() < 12, "{}", sizes.parts.len());
        let cut = sizes.beyond(5 << 20);
        assert!((4000..6500).contains(&cut), "{cut}");
        sizes.drop_until(cut);
        assert!(sizes.total <= 5 << 20);
    }
}
