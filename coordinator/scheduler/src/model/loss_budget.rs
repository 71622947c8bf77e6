//! The budget of a pool for work that preemption by priority loses: a part of the pool's time. What is lost spends it, and
//! time pays it back at that part of its own speed, so that a spent budget is whole again after 24 hours. It is paid back
//! every ten minutes, so that what a waiting request may preempt changes at known times.
//!
//! One preemption is allowed whatever it costs if nothing is spent: otherwise a small pool could preempt no long run. Runs
//! that saved nothing for 24 hours are left out: a few of these would cost more than all others.

use serde::{Deserialize, Serialize};

use sluice_common::amount::{MCPU, MGPU};
use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::time::{Span, Time};

use crate::model::pool::Pool;
use crate::model::request::{Run, RunWork};

/// Time in which a spent budget becomes whole again.
const WINDOW: Span = Span::from_secs(24 * 60 * 60);
/// Time between two payments.
const STEP: Span = Span::from_secs(10 * 60);
/// Amount of a GPU or of a core.
const THOUSANDTHS: u64 = 1000;
/// Microseconds in one percent of a millisecond.
const MICROS_PER_PERCENT: u64 = 10;

/// Work lost by priority in a pool, as far as it is not paid back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWork {
    /// Time of the last payment.
    pub at: Time,
    /// Microseconds of the time of the whole pool.
    pub micros: u64,
}

impl LostWork {
    /// The rest of it at a later time.
    fn later(self, percent: u8, at: Time) -> Self {
        let steps = at.since(self.at).millis() / STEP.millis();
        let span = Span::from_millis(steps * STEP.millis());
        let most = micros_in(percent, WINDOW);
        let left = self.micros.min(most);
        match left.saturating_sub(micros_in(percent, span)) {
            0 => Self { at, micros: 0 },
            micros => Self {
                at: self.at + span,
                micros,
            },
        }
    }
}

/// A percentage of a span in microseconds.
fn micros_in(percent: u8, span: Span) -> u64 {
    let per_milli = MICROS_PER_PERCENT * u64::from(percent);
    span.millis().saturating_mul(per_milli)
}

/// Work that preemption by priority may still lose in a pool, in microseconds of the time of the whole pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LossBudget {
    pub(crate) left: u64,
}

impl LossBudget {
    /// Whether the loss of this work is allowed.
    pub(crate) fn covers(self, micros: u64) -> bool {
        micros <= self.left
    }
}

/// A preemption by priority that would lose more than its pool's budget has left. In GPU-seconds, or core-seconds for a
/// run without GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondBudget {
    pub lost: u64,
    pub left: u64,
    /// Whether both are GPU-seconds.
    pub has_gpus: bool,
}

impl Pool {
    /// Work that preemption by priority may still lose; `None` if nothing bounds it now.
    pub(crate) fn loss_budget(&self, now: Time) -> Option<LossBudget> {
        let PriorityPreemption::Budget(percent) = self.terms().priority_preemption else {
            return None;
        };
        let lost = self.lost_work.later(percent, now).micros;
        let whole = micros_in(percent, WINDOW);
        (lost > 0).then_some(LossBudget { left: whole - lost })
    }

    /// The budget of a pool that lost nothing by priority; `None` if nothing bounds it.
    fn whole_budget(&self) -> Option<LossBudget> {
        match self.terms().priority_preemption {
            PriorityPreemption::Budget(percent) => Some(LossBudget {
                left: micros_in(percent, WINDOW),
            }),
            PriorityPreemption::Off | PriorityPreemption::Unlimited => None,
        }
    }

    /// Spends the budget for a run that is stopped by priority.
    pub(in crate::model) fn spend_budget(&mut self, run: &Run, at: Time) {
        if let PriorityPreemption::Budget(percent) = self.terms().priority_preemption {
            let before = self.lost_work.later(percent, at);
            let lost = before
                .micros
                .saturating_add(self.loss_of(run.unsaved_work(), at));
            let most = micros_in(percent, WINDOW);
            self.lost_work = LostWork {
                micros: lost.min(most),
                ..before
            };
        }
    }

    /// Work that would be lost by stopping a run, in microseconds of the time of the whole pool, rounded up.
    pub(crate) fn loss_of(&self, work: RunWork, now: Time) -> u64 {
        let micros = work.until(now).saturating_mul(1_000_000);
        let micros = micros.div_ceil(u128::from(self.units_like(work)));
        u64::try_from(micros).unwrap_or(u64::MAX)
    }

    /// Thousandths of the pool's GPUs; of its whole cores if a run holds no GPU. At least one.
    fn units_like(&self, work: RunWork) -> u64 {
        let (key, step) = match work.has_gpus {
            false => (MCPU, THOUSANDTHS),
            true => (MGPU, 1),
        };
        let detected = self.detected(key).unwrap_or(0);
        let declared = self.declared(key).unwrap_or(detected);
        let there = declared.min(detected);
        (there - there % step).max(THOUSANDTHS)
    }

    /// Whether the budget protects a run. One that can be frozen loses nothing.
    pub(crate) fn beyond_budget(&self, work: RunWork, now: Time) -> Option<BeyondBudget> {
        if work.is_kept_frozen {
            return None;
        }
        let budget = match self.loss_budget(now) {
            None if work.elapsed(now) > WINDOW => self.whole_budget()?,
            budget => budget?,
        };
        let left = budget.left.saturating_mul(self.units_like(work)) / (1_000_000 * THOUSANDTHS);
        let covers = budget.covers(self.loss_of(work, now));
        (!covers).then(|| BeyondBudget {
            lost: u64::try_from(work.until(now) / u128::from(THOUSANDTHS)).unwrap_or(u64::MAX),
            left,
            has_gpus: work.has_gpus,
        })
    }

    /// Time of the next payment; `None` if nothing is spent.
    pub(crate) fn next_payment(&self, now: Time) -> Option<Time> {
        let PriorityPreemption::Budget(percent) = self.terms().priority_preemption else {
            return None;
        };
        let lost = self.lost_work.later(percent, now);
        (lost.micros > 0).then(|| lost.at + STEP)
    }
}
