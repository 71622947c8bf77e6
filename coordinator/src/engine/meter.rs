//! How much the engine has done and how long it took: read by `/metrics`, written by the loop alone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Sums since the start.
#[derive(Debug, Default)]
pub struct Meter {
    inputs: AtomicU64,
    deciding_nanos: AtomicU64,
    commits: AtomicU64,
    committing_nanos: AtomicU64,
    records: AtomicU64,
}

impl Meter {
    pub(super) fn decided(&self, took: Duration) {
        self.inputs.fetch_add(1, Relaxed);
        self.deciding_nanos.fetch_add(nanos(took), Relaxed);
    }

    pub(super) fn committed(&self, records: u64, took: Duration) {
        self.commits.fetch_add(1, Relaxed);
        self.records.fetch_add(records, Relaxed);
        self.committing_nanos.fetch_add(nanos(took), Relaxed);
    }

    /// Inputs that the core has handled.
    pub fn inputs(&self) -> u64 {
        self.inputs.load(Relaxed)
    }

    /// Time that the core took for them.
    pub fn deciding(&self) -> Duration {
        Duration::from_nanos(self.deciding_nanos.load(Relaxed))
    }

    /// Commits of the store.
    pub fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }

    /// Time that they took.
    pub fn committing(&self) -> Duration {
        Duration::from_nanos(self.committing_nanos.load(Relaxed))
    }

    /// Records in them.
    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}
