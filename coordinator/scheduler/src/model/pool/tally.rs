//! Counters of a pool besides its accounts: start times of its runs, how many more runs its hosts may hold, and what
//! is free. Updated with each run and host.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use sluice_common::amount::{Amounts, STEP_RUN};
use sluice_common::id::AttemptId;
use sluice_common::time::{Span, Time};

use crate::model::host::Host;
use crate::model::pool::Pool;
use crate::model::request::RunTimes;
use crate::model::resources::{HOST_KEYS, HostResources};

impl Pool {
    /// Resources that could be granted now: the free resources of schedulable hosts, and of declared resources no
    /// more than is left of the declared amount.
    pub fn free(&self) -> Amounts {
        let open = self.hosts.values().filter(|host| host.schedulable);
        let sum = open.fold(HostResources::default(), |sum, host| sum.plus(host.free()));
        let counted = sum.iter().filter(|(key, _)| HOST_KEYS.contains(key));
        let mut free = counted.fold(Amounts::new(), |free, (key, n)| free.with(key, n));
        for (key, declared) in &self.terms.declared {
            let left = declared.saturating_sub(self.used.get(key.as_str()));
            let largest_fitting = match HOST_KEYS.contains(&key.as_str()) {
                true => left.min(free.get(key.as_str())),
                false => left,
            };
            free.set(key.clone(), largest_fitting);
        }
        free
    }

    /// Whether, once all nominated requests have started, some host may be at its maximum number of steps.
    pub(crate) fn may_be_short_of_steps(&self) -> bool {
        let promised =
            self.firm_nominations.len() as u64 + u64::from(self.soft_nomination.is_some());
        let fullest = self.free_steps.first_key_value();
        self.terms.declared.contains_key(STEP_RUN)
            || fullest.is_some_and(|(free, _)| *free <= promised)
    }

    pub(crate) fn index_times(&mut self, attempt: &AttemptId, times: RunTimes) {
        insert(&mut self.by_start, times.start, attempt);
        if let Some(until) = times.protected_until {
            insert(&mut self.evicted, until, attempt);
        }
        if let Some(end) = times.latest_end {
            insert(&mut self.by_end, end, attempt);
        }
    }

    pub(crate) fn unindex_times(&mut self, attempt: &AttemptId, times: RunTimes) {
        remove(&mut self.by_start, times.start, attempt);
        if let Some(until) = times.protected_until {
            remove(&mut self.evicted, until, attempt);
        }
        if let Some(end) = times.latest_end {
            remove(&mut self.by_end, end, attempt);
        }
    }

    /// When the protection of the next run ends, by `min_runtime` or after an eviction.
    pub(crate) fn next_protection_end(&self, now: Time) -> Option<Time> {
        let mut evicted = self.evicted.range((Bound::Excluded(now), Bound::Unbounded));
        let evicted = evicted.next().map(|(until, _)| *until);
        self.min_runtime_ends(now).into_iter().chain(evicted).min()
    }

    fn min_runtime_ends(&self, now: Time) -> Option<Time> {
        let spare = self.terms.min_runtime;
        if spare == Span::ZERO {
            return None;
        }
        let over = now.unix_millis().checked_sub(spare.millis());
        let over = over.map_or(Bound::Unbounded, |millis| {
            Bound::Excluded(Time::from_unix_millis(millis))
        });
        let (start_time, _) = self.by_start.range((over, Bound::Unbounded)).next()?;
        Some(*start_time + spare)
    }

    pub(super) fn count_host(&mut self, host: &Host) {
        let free = host.free().get(STEP_RUN);
        *self.free_steps.entry(free).or_default() += 1;
    }

    pub(super) fn uncount_host(&mut self, host: &Host) {
        let free = host.free().get(STEP_RUN);
        drop_one(&mut self.free_steps, free);
    }
}

/// Decrements a counter and removes it at 0.
fn drop_one(counts: &mut BTreeMap<u64, usize>, of: u64) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}

type AttemptsByTime = BTreeMap<Time, BTreeSet<AttemptId>>;

fn insert(index: &mut AttemptsByTime, at: Time, attempt: &AttemptId) {
    index.entry(at).or_default().insert(attempt.clone());
}

fn remove(index: &mut AttemptsByTime, at: Time, attempt: &AttemptId) {
    if let Some(attempts) = index.get_mut(&at) {
        attempts.remove(attempt);
        if attempts.is_empty() {
            index.remove(&at);
        }
    }
}
