//! Who waits for news of which step. A commit wakes those whose steps it touched and nobody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_core::Stamped;
use sluice_common::id::StepId;
use tokio::sync::watch;

type Watched = BTreeMap<StepId, watch::Sender<u64>>;

/// Every step that somebody waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct Interests(Arc<Mutex<Watched>>);

impl Interests {
    pub(super) fn watch(&self, step: StepId) -> Interest {
        let mut watched = self.lock();
        let news = watched
            .entry(step.clone())
            .or_insert_with(|| watch::channel(0).0)
            .subscribe();
        Interest {
            interests: self.clone(),
            step,
            news,
        }
    }

    /// Wakes whoever waits for a step that one of `records` is about.
    pub(super) fn touch(&self, records: &[Stamped]) {
        let watched = self.lock();
        if watched.is_empty() {
            return;
        }
        for stamped in records {
            let step = stamped.record.step();
            if let Some(news) = step.and_then(|step| watched.get(step)) {
                news.send_replace(stamped.seq);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        // The map is whole between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// News of one step, for as long as it is held. Take it before looking at the step, so that nothing falls between.
#[derive(Debug)]
pub struct Interest {
    interests: Interests,
    step: StepId,
    news: watch::Receiver<u64>,
}

impl Interest {
    /// Waits until a record about the step was committed since the last call.
    pub async fn news(&mut self) {
        // The sender stands in the map for as long as one receiver lives.
        let _ = self.news.changed().await;
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut watched = self.interests.lock();
        // Ours is still counted here.
        if watched
            .get(&self.step)
            .is_some_and(|news| news.receiver_count() <= 1)
        {
            watched.remove(&self.step);
        }
    }
}
