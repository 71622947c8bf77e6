//! A slow and obvious judge of the scheduler, written from the published semantics alone: it is told of everything that
//! happens, keeps facts of its own, and judges each [`Move`] before it takes effect, and what holds once there is no
//! more to do. It shares no code with what it judges, and walks over everything each time: it is for small schedulers.
//!
//! Each rule is a function named after it, with its sentence of the law; what breaks one is a [`Breach`].
//!
//! ```text
//! trial --(happens, moved)--> Judge facts --(grants, victims, promises)--> Breach: rule, step, numbers
//! ```

mod counting;
mod facts;
mod frozen;
mod grants;
mod promises;
mod ranks;
mod units;
mod victims;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId, Subject};

use crate::{Move, Platforms};

pub(super) use frozen::{Ice, Pin};
pub(super) use units::{GPU, KEYS, LIC, MCPU, MEM, SLOTS, STEP_RUN, Units};

/// A rule is broken.
#[derive(Clone, Debug)]
pub(super) struct Breach {
    pub(super) rule: &'static str,
    pub(super) what: String,
}

/// Whether a rule is kept.
pub(super) type Verdict = Result<(), Breach>;

/// A rule, and whether it is kept.
fn rule(name: &'static str, kept: bool, what: impl FnOnce() -> String) -> Verdict {
    if kept {
        return Ok(());
    }
    Err(Breach {
        rule: name,
        what: what(),
    })
}

/// Whoever asks for units, waiting or running.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ask {
    pub(super) step: StepId,
    pub(super) subject: Subject,
    pub(super) place: u64,
    pub(super) priority: i64,
    pub(super) preemptible: bool,
    pub(super) nodes: u64,
    pub(super) each: Units,
    pub(super) pool: Option<PoolName>,
    pub(super) suspends: bool,
    /// The frozen run for whose units it waits.
    pub(super) pin: Option<Pin>,
    pub(super) platforms: Vec<PlatformName>,
}

impl Ask {
    /// Whether every rule but that of places treats another as it treats this one.
    fn is_like(&self, other: &Self) -> bool {
        let but_for_its_place = Self {
            step: other.step.clone(),
            place: other.place,
            suspends: other.suspends,
            ..self.clone()
        };
        but_for_its_place == *other
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct JudgedPool {
    pub(super) declared: BTreeMap<usize, u64>,
    pub(super) min_runtime: u64,
    pub(super) policies: BTreeMap<Subject, JudgedPolicy>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct JudgedPolicy {
    pub(super) priority: u64,
    pub(super) reserved: BTreeMap<usize, u64>,
    pub(super) limit: BTreeMap<usize, u64>,
}

#[derive(Clone, Debug)]
pub(super) struct JudgedHost {
    pub(super) pool: PoolName,
    pub(super) has: Units,
    pub(super) open: bool,
    /// Every one that its GPUs are of.
    pub(super) platforms: Platforms,
}

#[derive(Clone, Debug)]
pub(super) struct JudgedRun {
    pub(super) ask: Ask,
    pub(super) pool: PoolName,
    pub(super) holding: BTreeSet<NodeName>,
    pub(super) began: u64,
    pub(super) stopping: bool,
    pub(super) backfill: BTreeSet<StepId>,
    pub(super) gpus: BTreeMap<NodeName, BTreeSet<String>>,
    pub(super) ice: Ice,
}

#[derive(Clone, Debug)]
pub(super) struct Promise {
    pub(super) pool: PoolName,
    pub(super) hosts: Vec<NodeName>,
    pub(super) awaits: BTreeSet<AttemptId>,
    pub(super) firm: bool,
    /// Whether something other than the scheduler's own moves may have made it impossible since.
    pub(super) disturbed: bool,
}

/// All that happened, as far as the rules ask.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    pub(super) now: u64,
    pub(super) pools: BTreeMap<PoolName, JudgedPool>,
    pub(super) hosts: BTreeMap<NodeName, JudgedHost>,
    pub(super) waiting: BTreeMap<StepId, Ask>,
    pub(super) runs: BTreeMap<AttemptId, JudgedRun>,
    pub(super) promises: BTreeMap<StepId, Promise>,
    /// Who gave way to whom since something last came from outside.
    pub(super) gave_way: BTreeSet<(StepId, StepId)>,
}

impl Judge {
    /// Judges a move by the facts before it.
    pub(super) fn judge(&self, next: &Move) -> Verdict {
        match next {
            Move::Grant {
                step,
                pool,
                hosts,
                platform: _,
                backfill,
            } => self.judge_grant(step, pool, hosts, backfill),
            Move::Nominate {
                step,
                nomination,
                victims,
                frozen,
            } if nomination.is_firm() => self.judge_preemption(step, nomination, victims, frozen),
            Move::Nominate {
                step,
                nomination,
                victims,
                frozen: _,
            } => self.judge_nomination(step, nomination, victims),
            Move::Withdraw { step } => self.judge_withdrawal(step),
        }
    }

    /// Something came from outside: whoever gave way before may have to again.
    pub(super) fn happens(&mut self) {
        self.gave_way.clear();
    }

    /// What hosts, pools and policies are changes: a promise may not be kept any more.
    pub(super) fn disturb(&mut self) {
        for promise in self.promises.values_mut() {
            promise.disturbed = true;
        }
    }

    pub(super) fn grant(&mut self, attempt: AttemptId, run: JudgedRun) {
        self.leave_queue(&run.ask.step);
        self.runs.insert(attempt, run);
    }

    pub(super) fn leave_queue(&mut self, step: &StepId) {
        self.waiting.remove(step);
        self.promises.remove(step);
    }

    pub(super) fn promise(&mut self, step: &StepId, promise: Promise) {
        if !promise.firm {
            // One head of a pool.
            self.promises
                .retain(|_, other| other.firm || other.pool != promise.pool);
        }
        self.promises.insert(step.clone(), promise);
    }

    pub(super) fn stop(&mut self, attempt: &AttemptId, by: Option<&StepId>) {
        let run = self.runs.get_mut(attempt).expect("what stops runs");
        run.stopping = true;
        if let Some(by) = by {
            // Whoever gives way itself is in the queue anew: the queue is not the same for it, and its victims, kept
            // frozen or back as backfill, may have to go for it again.
            self.gave_way.retain(|(_, waiter)| *waiter != attempt.step);
            self.gave_way.insert((attempt.step.clone(), by.clone()));
        }
    }

    /// Whether that was its last host.
    pub(super) fn release(&mut self, attempt: &AttemptId, node: &NodeName) -> Option<Ask> {
        let run = self.runs.get_mut(attempt)?;
        run.holding.remove(node);
        if !run.holding.is_empty() {
            return None;
        }
        for promise in self.promises.values_mut() {
            promise.awaits.remove(attempt);
        }
        self.runs.remove(attempt).map(|run| run.ask)
    }
}
