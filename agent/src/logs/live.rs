//! Tracks which attempts may still write output. The engine updates it; transfers wait on it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_common::id::AttemptId;
use tokio::sync::Notify;

/// The attempts, with a notification of changes.
#[derive(Default)]
pub(crate) struct WritingAttempts {
    attempts: Mutex<BTreeSet<AttemptId>>,
    changed: Notify,
}

impl WritingAttempts {
    /// Replaces all attempts, after the supervisor's list.
    pub(crate) fn replace(&self, attempts: impl Iterator<Item = AttemptId>) {
        *self.lock() = attempts.collect();
        self.changed.notify_waiters();
    }

    /// Adds an attempt that is being started or was seen.
    pub(crate) fn add(&self, attempt: AttemptId) {
        if self.lock().insert(attempt) {
            self.changed.notify_waiters();
        }
    }

    /// Removes an attempt without processes.
    pub(crate) fn remove(&self, attempt: &AttemptId) {
        if self.lock().remove(attempt) {
            self.changed.notify_waiters();
        }
    }

    /// Whether an attempt may still write.
    pub(crate) fn contains(&self, attempt: &AttemptId) -> bool {
        self.lock().contains(attempt)
    }

    /// All attempts that may still write.
    pub(crate) fn all(&self) -> Vec<AttemptId> {
        self.lock().iter().cloned().collect()
    }

    /// Resolves at the next change after this call, not after its first poll.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    /// Waits until the attempt may write or `elsewhere` is true, but no longer than `limit`.
    pub(crate) async fn known_within(
        &self,
        attempt: &AttemptId,
        limit: Duration,
        elsewhere: impl Fn() -> bool,
    ) {
        let known = async {
            loop {
                let changed = self.changed();
                if self.contains(attempt) || elsewhere() {
                    return;
                }
                changed.await;
            }
        };
        // After the limit the attempt counts as one that never wrote.
        let _ = tokio::time::timeout(limit, known).await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<AttemptId>> {
        // Each change is one call on the set, so a panic leaves it consistent.
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
