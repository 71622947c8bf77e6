//! Judges the order of the queue.

use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::PoolName;

use super::{Judge, JudgedRequest};

/// Whether it borrows, its priority, its fair use and its place.
pub(super) type JudgedRank = (bool, Reverse<u64>, u64, u64);

impl Judge {
    pub(super) fn waiting_in(&self, pool: &PoolName) -> impl Iterator<Item = &JudgedRequest> {
        let waiting = self.waiting.values();
        waiting.filter(move |ask| self.pools_of(ask).contains(pool))
    }

    /// Users of a subject go by their use, if the pool says so. "A step's own `priority` permutes a subject's steps among the places they already hold."
    pub(super) fn effective_place(&self, pool: &PoolName, ask: &JudgedRequest) -> u64 {
        let own = || {
            self.waiting_in(pool)
                .filter(|other| other.subject == ask.subject)
        };
        let mut places: Vec<u64> = own().map(|other| other.place).collect();
        places.sort_unstable();
        let mut order: Vec<_> = own().map(|o| self.key_within_subject(pool, o)).collect();
        order.sort_unstable();
        let own = self.key_within_subject(pool, ask);
        let at = order.iter().position(|other| *other == own);
        at.map_or(ask.place, |at| places[at])
    }

    fn key_within_subject(&self, pool: &PoolName, ask: &JudgedRequest) -> (u64, Reverse<i64>, u64) {
        let used = self.use_of_user(pool, ask);
        (used, Reverse(ask.priority), ask.place)
    }

    /// "1. in-share requests before those that must borrow; 2. higher policy priority; 3. first submission."
    /// Fair share is "between 2 and 3".
    pub(super) fn rank(&self, pool: &PoolName, ask: &JudgedRequest) -> JudgedRank {
        let priority = self.priority(pool, &ask.subject);
        let place = self.effective_place(pool, ask);
        (
            !self.is_in_share(pool, ask),
            Reverse(priority),
            self.fair_rank(pool, &ask.subject),
            place,
        )
    }

    pub(super) fn goes_before(
        &self,
        pool: &PoolName,
        one: &JudgedRequest,
        other: &JudgedRequest,
    ) -> bool {
        self.rank(pool, one) < self.rank(pool, other)
    }

    /// Requests that wait for a pool and go before a request, in order.
    pub(super) fn ahead_of<'a>(
        &'a self,
        pool: &PoolName,
        ask: &JudgedRequest,
    ) -> Vec<&'a JudgedRequest> {
        let mine = self.rank(pool, ask);
        let waiting = self.waiting_in(pool).filter(|other| other.step != ask.step);
        let mut ahead: Vec<&JudgedRequest> =
            waiting.filter(|o| self.rank(pool, o) < mine).collect();
        ahead.sort_by_cached_key(|other| self.rank(pool, other));
        ahead
    }

    /// "A request that waits only for its own subject's `limit` is not the pool's head." One that cannot be made to give
    /// way and waits for what is reserved for such waits for its own subject's too.
    pub(super) fn waits_for_its_own(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        let nobody = super::facts::RemovedRuns::new();
        !self.is_within_policy(pool, ask, &nobody)
            || !self.leaves_promises_possible(pool, ask, &nobody)
    }
}
