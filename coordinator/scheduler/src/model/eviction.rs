//! Eviction economy: a run that was preempted by priority is protected from priority after its next start, each time for
//! twice as long, and costs twice as much to preempt. Otherwise a small job every half hour could stop the same large
//! run again and again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, PoolName};
use sluice_common::time::{Span, Time};

use crate::model::loss_budget::LostWork;
use crate::model::request::{Run, RunTimes};
use crate::model::scheduler::Scheduler;

/// Number of evictions that a step remembers; more change nothing.
pub const MAX_EVICTIONS: usize = 8;
/// Time after which an eviction no longer counts.
const WINDOW: Span = Span::from_secs(24 * 60 * 60);
/// Half of the protection after one eviction.
const UNIT: Span = Span::from_secs(10 * 60);
/// Longest protection after an eviction.
const LONGEST: Span = Span::from_secs(8 * 60 * 60);

/// Adds an eviction to those that a step remembers.
pub fn remember_eviction(evictions: &mut Vec<Time>, at: Time) {
    evictions.push(at);
    let extra = evictions.len().saturating_sub(MAX_EVICTIONS);
    evictions.drain(..extra);
}

impl Scheduler {
    /// Records that a run is stopped by priority, and what that loses. It counts for all runs of its step: an earlier one
    /// may have ended and still hold resources.
    pub fn evict(&mut self, attempt: &AttemptId, at: Time) {
        let first = AttemptId {
            step: attempt.step.clone(),
            number: 0,
        };
        let ids = self.runs.range(first..).map(|(id, _)| id);
        let ids = ids.take_while(|id| id.step == attempt.step);
        let ids: Vec<AttemptId> = ids.cloned().collect();
        for id in &ids {
            let Some((run, pool)) = self.run_mut(id) else {
                continue;
            };
            let before = run.times();
            remember_eviction(&mut run.request.evictions, at);
            let Some(pool) = pool else {
                continue;
            };
            if id == attempt {
                pool.spend_budget(run, at);
            }
            pool.unindex_times(id, before);
            pool.index_times(id, run.times());
        }
    }
}

impl Scheduler {
    /// Work lost by priority in a pool, as far as it counts against the budget for that.
    pub fn lost_work(&self, pool: &PoolName) -> LostWork {
        let pool = self.pools.get(pool);
        pool.map_or(LostWork::default(), |pool| pool.lost_work)
    }

    /// Replaces what pools lost; nothing for a pool that is not named.
    pub fn set_lost_work(&mut self, lost: &BTreeMap<PoolName, LostWork>) {
        for (name, pool) in &mut self.pools {
            pool.lost_work = lost.get(name).copied().unwrap_or_default();
        }
    }
}

impl Run {
    /// Number of times that it was preempted by priority in the 24 hours before it started; at most [`MAX_EVICTIONS`].
    pub(crate) fn evictions(&self) -> u32 {
        let start = self.start_time();
        let recent = self.request.evictions.iter();
        let recent = recent.filter(|at| **at + WINDOW > start);
        u32::try_from(recent.take(MAX_EVICTIONS).count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn times(&self) -> RunTimes {
        let start = self.start_time();
        let evictions = self.evictions();
        let span = Span::from_millis(UNIT.millis() << evictions).min(LONGEST);
        RunTimes {
            start,
            protected_until: (evictions > 0).then(|| start + span),
            latest_end: self.latest_end(),
        }
    }
}
