//! Makes and ends nominations.

use alloc::collections::btree_map::Entry;

use sluice_common::id::{AttemptId, PoolName, StepId};

use crate::model::nomination::Nomination;
use crate::model::scheduler::Scheduler;

impl Scheduler {
    /// Nominates a request. This replaces an earlier nomination of the request, and a soft nomination replaces the
    /// pool's last soft one.
    pub fn nominate(&mut self, step: &StepId, nomination: Nomination) {
        self.withdraw(step);
        let Some(pool) = self.pools.get_mut(&nomination.pool) else {
            return;
        };
        let replaced = pool.nominate(step, &nomination);
        if let Some(replaced) = replaced {
            self.drop_nomination(&replaced);
        }
        if nomination.is_firm()
            && let Some(request) = self.requests.get(step).cloned()
        {
            for (_, pool) in self.pools_for_mut(&request) {
                pool.set_nominated(&request);
            }
        }
        for run in &nomination.awaits {
            let awaiting = self.awaiting.entry(run.clone()).or_default();
            awaiting.insert(step.clone());
        }
        self.clear_cached_by(step, &nomination.pool);
        self.nominations.insert(step.clone(), nomination);
    }

    /// Forgets what is cached of a pool and of the account of a request, because its nomination changes.
    fn clear_cached_by(&mut self, step: &StepId, pool: &PoolName) {
        let pool = self.pools.get_mut(pool);
        if let (Some(pool), Some(request)) = (pool, self.requests.get(step)) {
            pool.clear_cached_of(&request.subject);
        }
    }

    fn drop_nomination(&mut self, step: &StepId) -> Option<Nomination> {
        let nomination = self.nominations.remove(step)?;
        for run in &nomination.awaits {
            if let Entry::Occupied(mut awaiting) = self.awaiting.entry(run.clone()) {
                awaiting.get_mut().remove(step);
                if awaiting.get().is_empty() {
                    awaiting.remove();
                }
            }
        }
        Some(nomination)
    }

    /// Ends a nomination.
    pub fn withdraw(&mut self, step: &StepId) {
        let Some(nomination) = self.drop_nomination(step) else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(&nomination.pool) {
            pool.withdraw(step);
        }
        self.clear_cached_by(step, &nomination.pool);
        if let Some(request) = self.requests.get(step).cloned() {
            for (_, pool) in self.pools_for_mut(&request) {
                pool.unset_nominated(&request);
            }
        }
    }

    /// The awaited resources of a run are free.
    pub fn stop_awaiting(&mut self, attempt: &AttemptId) {
        for waiter in self.awaiting.remove(attempt).into_iter().flatten() {
            if let Some(nomination) = self.nominations.get_mut(&waiter) {
                nomination.awaits.remove(attempt);
                let pool = nomination.pool.clone();
                self.clear_cached_by(&waiter, &pool);
            }
        }
    }
}
