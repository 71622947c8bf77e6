//! Counters and durations of the engine, written by the loop and read by `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets in seconds, from a fast decision to a commit on a busy disk.
const BOUNDS: [f64; 14] = [
    0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25,
    1.0, 5.0,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Counts by the first bound that is not less; the last for those beyond all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    fn note(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// Returns for each bound how many took no longer; `None` is no bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = BOUNDS.into_iter().map(Some).chain([None]);
        bounds.zip(&self.buckets).scan(0, |sum, (bound, bucket)| {
            *sum += bucket.load(Relaxed);
            Some((bound, *sum))
        })
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Meter {
    decisions: Histogram,
    commits: Histogram,
    records: AtomicU64,
}

impl Meter {
    pub(super) fn decided(&self, took: Duration) {
        self.decisions.note(took);
    }

    pub(super) fn committed(&self, records: u64, took: Duration) {
        self.commits.note(took);
        self.records.fetch_add(records, Relaxed);
    }

    /// Inputs that the core has handled.
    pub fn decisions(&self) -> &Histogram {
        &self.decisions
    }

    /// Commits of the store.
    pub fn commits(&self) -> &Histogram {
        &self.commits
    }

    /// Number of records in all commits.
    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_to_all() {
        let histogram = Histogram::default();
        for millis in [0, 1, 1, 30, 60_000] {
            histogram.note(Duration::from_millis(millis));
        }
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert!(counts.is_sorted());
        assert_eq!((counts.last(), histogram.count()), (Some(&5), 5));
        let upto = |bound: f64| {
            histogram
                .cumulative()
                .find(|(b, _)| *b == Some(bound))
                .unwrap()
                .1
        };
        assert_eq!((upto(0.001), upto(0.025), upto(5.0)), (3, 3, 4));
        assert_eq!(histogram.sum(), Duration::from_millis(60_032));
    }
}
