//! Sizes of the log in parts: a record may be a MiB, so the number of records bounds neither the file nor the duration
//! of a restart.

use std::collections::VecDeque;

/// Approximate bytes of a part.
const PART: u64 = 1 << 20;

/// Sizes of the log's parts.
#[derive(Debug, Default)]
pub(super) struct LogSizes {
    /// Number of the last record of each part, and its bytes; the oldest first.
    parts: VecDeque<(u64, u64)>,
    total: u64,
}

impl LogSizes {
    /// Adds a record after the last.
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

    /// Returns the last record to drop for the rest to take no more than `most`; 0 if none.
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

    /// Drops the records up to this one. A part with remaining records counts as before.
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
