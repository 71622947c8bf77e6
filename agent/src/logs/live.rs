//! Which attempts may still write output. The loop keeps it; transfers wait on it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_common::id::AttemptId;
use tokio::sync::Notify;

/// The attempts, and a bell that rings whenever they change.
#[derive(Default)]
pub(crate) struct Live {
    attempts: Mutex<BTreeSet<AttemptId>>,
    changed: Notify,
}

impl Live {
    /// The supervisor has listed what it has.
    pub(crate) fn replace(&self, attempts: impl Iterator<Item = AttemptId>) {
        *self.lock() = attempts.collect();
        self.changed.notify_waiters();
    }

    /// An attempt is being started or was seen.
    pub(crate) fn add(&self, attempt: AttemptId) {
        if self.lock().insert(attempt) {
            self.changed.notify_waiters();
        }
    }

    /// Nothing of an attempt is left.
    pub(crate) fn remove(&self, attempt: &AttemptId) {
        if self.lock().remove(attempt) {
            self.changed.notify_waiters();
        }
    }

    /// Whether an attempt may still write.
    pub(crate) fn contains(&self, attempt: &AttemptId) -> bool {
        self.lock().contains(attempt)
    }

    /// All that may write.
    pub(crate) fn all(&self) -> Vec<AttemptId> {
        self.lock().iter().cloned().collect()
    }

    /// Ends at the next change after this call, not after its first poll.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        self.changed.notified()
    }

    /// Waits until the attempt may write or `elsewhere` says that it is known by other signs, but no longer than
    /// `limit`.
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
        // Past the limit the answer is the same as for an attempt that never wrote.
        let _ = tokio::time::timeout(limit, known).await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<AttemptId>> {
        // Each change is one call on the set: a thread that died left no half of it.
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
