//! The end of the log in memory, for callers who follow events: so the log is not read and parsed again after each commit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::Event;

/// Most bytes of the records, as they are stored: about a thousand records.
const MAX_BYTES: usize = 512 * 1024;

/// The records that were committed last. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LogTail(Arc<Mutex<TailEvents>>);

/// Records without a gap, the oldest first.
#[derive(Debug, Default)]
struct TailEvents {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
}

impl LogTail {
    /// Adds the next records of the log.
    pub(super) fn push(&self, committed: impl IntoIterator<Item = Event>) {
        let mut tail = self.lock();
        for event in committed {
            tail.bytes += event.json.len();
            tail.events.push_back(Arc::new(event));
            while tail.bytes > MAX_BYTES {
                let Some(oldest) = tail.events.pop_front() else {
                    break;
                };
                tail.bytes -= oldest.json.len();
            }
        }
    }

    /// Returns the records after `since`, oldest first and at most `limit`; `None` if they are no longer here.
    pub fn after(&self, since: u64, limit: usize) -> Option<Vec<Arc<Event>>> {
        let tail = self.lock();
        let first = tail.events.front()?.record.seq;
        let skipped = usize::try_from((since + 1).checked_sub(first)?).ok()?;
        Some(
            tail.events
                .iter()
                .skip(skipped)
                .take(limit)
                .cloned()
                .collect(),
        )
    }

    fn lock(&self) -> MutexGuard<'_, TailEvents> {
        // No statement that could panic leaves the sum wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use coordinator_core::{LogEntry, Record};
    use sluice_common::id::ServiceName;
    use sluice_common::time::Time;

    use super::*;

    fn event(seq: u64, bytes: usize) -> Event {
        let record = LogEntry {
            seq,
            at: Time::default(),
            record: Record::ServiceDeleting {
                service: ServiceName::new("s").unwrap(),
            },
        };
        Event::new(record, "x".repeat(bytes))
    }

    fn seqs(tail: &LogTail, since: u64, limit: usize) -> Option<Vec<u64>> {
        let found = tail.after(since, limit)?;
        Some(found.iter().map(|event| event.record.seq).collect())
    }

    #[test]
    fn the_end_is_here_and_what_is_older_is_not() {
        let tail = LogTail::default();
        assert_eq!(seqs(&tail, 0, 10), None);
        tail.push((5..9).map(|seq| event(seq, 100)));
        assert_eq!(seqs(&tail, 3, 10), None);
        assert_eq!(seqs(&tail, 4, 10), Some(vec![5, 6, 7, 8]));
        assert_eq!(seqs(&tail, 5, 2), Some(vec![6, 7]));
        assert_eq!(seqs(&tail, 8, 10), Some(vec![]));
        assert_eq!(seqs(&tail, 20, 10), Some(vec![]));
    }

    #[test]
    fn its_size_is_bounded_and_a_record_beyond_the_bound_leaves_it_empty() {
        let tail = LogTail::default();
        tail.push((1..=3).map(|seq| event(seq, MAX_BYTES / 2)));
        assert_eq!(seqs(&tail, 1, 10), Some(vec![2, 3]));
        tail.push([event(4, MAX_BYTES + 1)]);
        assert_eq!(seqs(&tail, 3, 10), None);
        tail.push([event(5, 1)]);
        assert_eq!(seqs(&tail, 4, 10), Some(vec![5]));
    }
}
