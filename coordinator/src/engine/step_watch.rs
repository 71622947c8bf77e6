//! Wakes callers that wait for changes of a step, after the commit of a record about it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_core::{LogEntry, Record};
use sluice_common::array::parts_in;
use sluice_common::id::StepId;
use tokio::sync::watch;

type WatchedSteps = BTreeMap<StepId, watch::Sender<u64>>;

/// All steps that callers wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct StepWatchers(Arc<Mutex<WatchedSteps>>);

impl StepWatchers {
    pub(super) fn watch(&self, step: StepId) -> StepWatcher {
        let mut watched = self.lock();
        let changes = watched
            .entry(step.clone())
            .or_insert_with(|| watch::channel(0).0)
            .subscribe();
        StepWatcher {
            interests: self.clone(),
            step,
            changes,
        }
    }

    /// Wakes the callers that wait for a step of one of `records`, or for a part that only its array names.
    pub(super) fn touch(&self, records: &[LogEntry]) {
        let watched = self.lock();
        if watched.is_empty() {
            return;
        }
        for stamped in records {
            let Some(step) = stamped.record.step() else {
                continue;
            };
            if let Some(changes) = watched.get(step) {
                changes.send_replace(stamped.seq);
            }
            if matches!(stamped.record, Record::PartsEnded(_)) {
                for (.., changes) in parts_in(&watched, step) {
                    changes.send_replace(stamped.seq);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, WatchedSteps> {
        // No statement that could panic leaves the map half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches one step for as long as it is held. Take it before reading the step, so that no change is missed.
#[derive(Debug)]
pub struct StepWatcher {
    interests: StepWatchers,
    step: StepId,
    changes: watch::Receiver<u64>,
}

impl StepWatcher {
    /// Waits until a record about the step was committed since the last call.
    pub async fn changed(&mut self) {
        // The sender stays in the map for as long as one receiver lives.
        let _ = self.changes.changed().await;
    }
}

impl Drop for StepWatcher {
    fn drop(&mut self) {
        let mut watched = self.interests.lock();
        // This receiver is still counted.
        if watched
            .get(&self.step)
            .is_some_and(|changes| changes.receiver_count() <= 1)
        {
            watched.remove(&self.step);
        }
    }
}
