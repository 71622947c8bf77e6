//! Limits how many searches for remedies go on at one time: each has a copy of all waiting requests and takes a processor.
//! Callers take turns: of each caller one search goes on or waits for its place, and his others wait for that one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::engine::QueryError;

/// Most searches at one time.
const MAX_SEARCHES: usize = 2;
/// Most searches of one caller that go on or wait.
const MAX_OF_EACH: usize = 256;

/// Places for searches, and the callers who want some.
#[derive(Debug)]
pub(super) struct RemedySearchQueue {
    places: Arc<Semaphore>,
    /// The turn of each caller; each of his searches holds on to it.
    turns: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// The place of one search, until it is dropped.
#[derive(Debug)]
pub(super) struct RemedySearchPermit {
    _turn: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Default for RemedySearchQueue {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_SEARCHES)),
            turns: Mutex::default(),
        }
    }
}

impl RemedySearchQueue {
    /// Waits for the place of a search.
    ///
    /// # Errors
    /// If too many searches of this caller go on or wait.
    pub(super) async fn enter(&self, who: &str) -> Result<RemedySearchPermit, QueryError> {
        let own = self.turn_of(who)?;
        let expect = "these semaphores are never closed";
        let turn = own.acquire_owned().await.expect(expect);
        let places = Arc::clone(&self.places);
        let place = places.acquire_owned().await.expect(expect);
        Ok(RemedySearchPermit {
            _turn: turn,
            _place: place,
        })
    }

    fn turn_of(&self, who: &str) -> Result<Arc<Semaphore>, QueryError> {
        // No statement that could panic leaves the turns half-changed.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let turn = turns.entry(who.to_owned());
        let turn = turn.or_insert_with(|| Arc::new(Semaphore::new(1)));
        // One is the map's own.
        if Arc::strong_count(turn) > MAX_OF_EACH {
            return Err(QueryError::TooMany { most: MAX_OF_EACH });
        }
        Ok(Arc::clone(turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_caller_with_many_searches_delays_only_his_own() {
        let queue = RemedySearchQueue::default();
        let first = queue.enter("token/a").await.unwrap();
        let mut second = Box::pin(queue.enter("token/a"));
        assert!((&mut second).now_or_never().is_none());
        let other = queue.enter("token/b").now_or_never();
        let other = other.expect("there is a place").unwrap();
        let mut third = Box::pin(queue.enter("token/c"));
        assert!(
            (&mut third).now_or_never().is_none(),
            "all places are taken"
        );
        drop(first);
        let third = (&mut third).now_or_never();
        drop(
            third
                .expect("he came before the second of another")
                .unwrap(),
        );
        drop(other);
        second.now_or_never().expect("it is his turn").unwrap();
    }

    #[tokio::test]
    async fn a_caller_has_so_many_searches_and_is_forgotten_with_the_last() {
        let queue = RemedySearchQueue::default();
        let first = queue.enter("token/a").await.unwrap();
        let mut others: Vec<_> = (1..MAX_OF_EACH)
            .map(|_| Box::pin(queue.enter("token/a")))
            .collect();
        for other in &mut others {
            assert!(other.now_or_never().is_none());
        }
        let more = queue.enter("token/a").await.unwrap_err();
        assert_eq!(more, QueryError::TooMany { most: MAX_OF_EACH });
        drop((first, others));
        drop(queue.enter("token/b").await.unwrap());
        assert_eq!(queue.turns.lock().unwrap().len(), 1);
    }
}
