//! Judges the budget for work that preemption by priority loses.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, PoolName};

use super::amounts::{GPU, MCPU};
use super::frozen::FreezePhase;
use super::victims::JudgedPreemption;
use super::{Judge, JudgedRun, RuleResult, rule};

const DAY: u64 = 24 * 3_600_000;
const TEN_MINUTES: u64 = 600_000;

/// Losses by pool: when, and how many microseconds of the time of the whole pool.
pub(super) type JudgedLosses = BTreeMap<PoolName, Vec<(u64, u64)>>;

impl Judge {
    /// Notes what a run that is stopped by priority loses.
    pub(super) fn lose(&mut self, id: &AttemptId) {
        let run = &self.runs[id];
        let loss = (self.now, self.loss_of(run));
        let pool = run.pool.clone();
        self.losses.entry(pool).or_default().push(loss);
    }

    /// The work of a run beside all GPUs of its pool; beside all cores if it holds no GPU.
    fn loss_of(&self, run: &JudgedRun) -> u64 {
        let key = match run.ask.each[GPU] {
            0 => MCPU,
            _ => GPU,
        };
        let hosts = self.hosts.values().filter(|host| host.pool == run.pool);
        let detected: u64 = hosts.map(|host| host.has[key]).sum();
        let declared = self.pools[&run.pool].declared.get(&key);
        let units = declared.map_or(detected, |declared| detected.min(*declared));
        let units = match key {
            MCPU => units - units % 1000,
            _ => units,
        };
        (self.work_lost(run) * 1_000_000).div_ceil(units.max(1000))
    }

    /// "What is lost spends it, and time pays it back", every ten minutes: what is left; `None` if nothing is spent, or there is no budget.
    fn budget_left(&self, pool: &PoolName) -> Option<u64> {
        let percent = self.pools[pool].budget?;
        let paid_in = |millis: u64| millis * 10 * percent;
        let (mut lost, mut paid) = (0u64, 0);
        let now = [(self.now, 0)];
        for (at, loss) in self.losses.get(pool).into_iter().flatten().chain(&now) {
            while lost > 0 && paid + TEN_MINUTES <= *at {
                paid += TEN_MINUTES;
                lost = lost.saturating_sub(paid_in(TEN_MINUTES));
            }
            if lost == 0 {
                paid = *at;
            }
            lost = (lost + loss).min(paid_in(DAY));
        }
        (lost > 0).then(|| paid_in(DAY) - lost)
    }

    fn may_be_frozen(run: &JudgedRun) -> bool {
        run.ask.suspends && run.ask.nodes == 1 && run.freeze_phase == FreezePhase::No
    }

    /// Runs that would be lost by priority.
    fn lost_by_priority<'a>(
        &'a self,
        JudgedPreemption { ask, pool, .. }: JudgedPreemption<'a>,
        ids: impl Iterator<Item = &'a AttemptId>,
    ) -> impl Iterator<Item = &'a JudgedRun> {
        let by_priority = self.takes_by_priority(pool, ask);
        let runs = ids.map(|id| &self.runs[id]);
        runs.filter(move |run| {
            let other = run.ask.subject != ask.subject && !run.backfill.contains(&ask.step);
            other && by_priority
        })
    }

    /// Whether the budget covers a run alone. One that may be frozen loses nothing. While nothing is spent, "one preemption
    /// is allowed whatever it costs" of runs that are not older than a day.
    pub(super) fn budget_covers(&self, pool: &PoolName, run: &JudgedRun) -> bool {
        let is_old = self.now - run.start_time > DAY;
        let whole = self.pools[pool].budget.filter(|_| is_old);
        let left = self.budget_left(pool);
        let left = left.or(whole.map(|percent| DAY * 10 * percent));
        Self::may_be_frozen(run) || left.is_none_or(|left| self.loss_of(run) <= left)
    }

    /// The same for a set of victims.
    pub(super) fn victims_fit_the_budget(&self, preemption: JudgedPreemption<'_>) -> RuleResult {
        let lost = self.lost_by_priority(preemption, preemption.victims.iter());
        let lost = lost.filter(|run| !Self::may_be_frozen(run));
        let sum: u64 = lost.map(|run| self.loss_of(run)).sum();
        let left = self.budget_left(preemption.pool);
        let fits = left.is_none_or(|left| sum <= left);
        rule("victims_fit_the_budget", fits, || {
            format!("{:?} lose {sum} of {left:?}", preemption.victims)
        })
    }

    /// The same for those that are stopped in the end.
    pub(super) fn evicted_fit_the_budget(
        &self,
        pool: &PoolName,
        evicted: &BTreeSet<AttemptId>,
    ) -> RuleResult {
        let sum: u64 = evicted.iter().map(|id| self.loss_of(&self.runs[id])).sum();
        let left = self.budget_left(pool);
        let fits = left.is_none_or(|left| sum <= left);
        rule("evicted_fit_the_budget", fits, || {
            format!("{evicted:?} lose {sum} of {left:?}")
        })
    }

    /// Whether the order of victims may lead to a set that the budget does not cover, before the last of those in the
    /// given set: then nobody is touched, even if that set would fit.
    pub(super) fn order_may_exceed_the_budget(
        &self,
        preemption: JudgedPreemption<'_>,
        ids: &[&AttemptId],
    ) -> bool {
        let Some(left) = self.budget_left(preemption.pool) else {
            return false;
        };
        let order = |id: &AttemptId| self.victim_order(preemption, id);
        let last = preemption.victims.iter().map(order).max();
        let counted = ids.iter().copied().filter(|id| Some(order(id)) <= last);
        let counted = self.lost_by_priority(preemption, counted);
        let counted = counted.filter(|run| self.budget_covers(preemption.pool, run));
        counted.map(|run| self.loss_of(run)).sum::<u64>() > left
    }
}
