//! Judges the protection of runs that priority stopped before.

use alloc::collections::BTreeSet;
use alloc::format;

use sluice_common::id::{AttemptId, PoolName, StepId};

use super::{Judge, JudgedRequest, JudgedRun, RuleResult, rule};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

impl Judge {
    /// A run that is stopped by priority remembers that, at most eight times.
    pub(in crate::tests) fn evict(&mut self, id: &AttemptId) {
        self.lose(id);
        let now = self.now;
        let run = self.runs.get_mut(id).expect("what is evicted runs");
        run.ask.evictions.push(now);
        let extra = run.ask.evictions.len().saturating_sub(8);
        run.ask.evictions.drain(..extra);
    }

    /// By *priority*: the waiter is not in share, or asks for nothing that counts in its share.
    pub(super) fn takes_by_priority(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        let policy = self.policy(pool, &ask.subject);
        let asked = ask.total();
        let mut keys = self.metered(pool).filter(|key| asked[*key] > 0);
        let counts = keys.any(|key| policy.is_none_or(|policy| policy.reserved(key).is_some()));
        !counts || !self.is_in_share(pool, ask)
    }

    pub(super) fn times_evicted(&self, run: &JudgedRun) -> u64 {
        let recent = run.ask.evictions.iter();
        recent
            .filter(|at| **at + 24 * HOUR > run.start_time)
            .count() as u64
    }

    /// "A pool may say `priority_preemption: off`. A run that was preempted by priority k times within 24 h is spared by
    /// priority for `min(2^k * 10 min, 8 h)` after its next start."
    pub(super) fn priority_may_take(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        run: &JudgedRun,
    ) -> bool {
        if !self.takes_by_priority(pool, ask) {
            return true;
        }
        let spare = match self.times_evicted(run) {
            0 => 0,
            k => ((10 * MINUTE) << k).min(8 * HOUR),
        };
        let is_spared = self.now < run.start_time + spare;
        !self.pools[pool].no_priority_preemption && !is_spared && self.budget_covers(pool, run)
    }

    pub(super) fn evictions_are_those_by_priority(
        &self,
        step: &StepId,
        pool: &PoolName,
        victims: &BTreeSet<AttemptId>,
        frozen: &BTreeSet<AttemptId>,
        evicted: &BTreeSet<AttemptId>,
    ) -> RuleResult {
        let ask = &self.waiting[step];
        let counts = |id: &&AttemptId| {
            let run = &self.runs[*id];
            let other = run.ask.subject != ask.subject && !run.backfill.contains(step);
            other && !frozen.contains(*id) && self.takes_by_priority(pool, ask)
        };
        self.evicted_fit_the_budget(pool, evicted)?;
        let expected: BTreeSet<AttemptId> = victims.iter().filter(counts).cloned().collect();
        rule(
            "evictions_are_those_by_priority",
            expected == *evicted,
            || format!("{evicted:?} of {victims:?} for {step}"),
        )
    }
}
