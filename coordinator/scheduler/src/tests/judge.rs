//! A slow and obvious judge of the scheduler, written from the published semantics alone: it is told of everything that
//! happens, keeps facts of its own, and judges each [`Decision`] before it takes effect, and what holds once there is no
//! more to do. It shares no code with what it judges, and walks over everything each time: it is for small schedulers.
//!
//! Each rule is a function named after it, with its sentence of the law; what breaks one is a [`RuleViolation`].
//!
//! ```text
//! trial --(happens, moved)--> Judge facts --(grants, victims, promises)--> Breach: rule, step, numbers
//! ```

mod amounts;
mod counting;
mod facts;
mod frozen;
mod grants;
mod nominations;
mod queue_order;
mod victims;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId, Subject};

use crate::{Decision, PlatformSet};

pub(super) use amounts::{GPU, JudgedAmounts, KEYS, LIC, MCPU, MEM, SLOTS, STEP_RUN};
pub(super) use frozen::{FreezePhase, FrozenRun};

/// A rule is broken.
#[derive(Clone, Debug)]
pub(super) struct RuleViolation {
    pub(super) rule: &'static str,
    pub(super) what: String,
}

/// Whether a rule is kept.
pub(super) type RuleResult = Result<(), RuleViolation>;

/// A rule, and whether it is kept.
fn rule(name: &'static str, reservations: bool, what: impl FnOnce() -> String) -> RuleResult {
    if reservations {
        return Ok(());
    }
    Err(RuleViolation {
        rule: name,
        what: what(),
    })
}

/// Whoever asks for units, waiting or running.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JudgedRequest {
    pub(super) step: StepId,
    pub(super) subject: Subject,
    pub(super) place: u64,
    pub(super) priority: i64,
    pub(super) preemptible: bool,
    pub(super) nodes: u64,
    pub(super) each: JudgedAmounts,
    pub(super) pool: Option<PoolName>,
    pub(super) suspends: bool,
    /// The frozen run for whose units it waits.
    pub(super) frozen_run: Option<FrozenRun>,
    pub(super) platforms: Vec<PlatformName>,
}

impl JudgedRequest {
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
    pub(super) has: JudgedAmounts,
    pub(super) schedulable: bool,
    /// Every one that its GPUs are of.
    pub(super) platforms: PlatformSet,
}

#[derive(Clone, Debug)]
pub(super) struct JudgedRun {
    pub(super) ask: JudgedRequest,
    pub(super) pool: PoolName,
    pub(super) holding: BTreeSet<NodeName>,
    pub(super) start_time: u64,
    pub(super) stopping: bool,
    pub(super) backfill: BTreeSet<StepId>,
    pub(super) gpus: BTreeMap<NodeName, BTreeSet<String>>,
    pub(super) freeze_phase: FreezePhase,
}

#[derive(Clone, Debug)]
pub(super) struct JudgedNomination {
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
    pub(super) waiting: BTreeMap<StepId, JudgedRequest>,
    pub(super) runs: BTreeMap<AttemptId, JudgedRun>,
    pub(super) nominations: BTreeMap<StepId, JudgedNomination>,
    /// Who gave way to whom since something last came from outside.
    pub(super) gave_way: BTreeSet<(StepId, StepId)>,
}

impl Judge {
    /// Judges a move by the facts before it.
    pub(super) fn judge(&self, next: &Decision) -> RuleResult {
        match next {
            Decision::Grant {
                step,
                pool,
                hosts,
                platform: _,
                backfill,
            } => self.judge_grant(step, pool, hosts, backfill),
            Decision::Nominate {
                step,
                nomination,
                victims,
                frozen,
            } if nomination.is_firm() => self.judge_preemption(step, nomination, victims, frozen),
            Decision::Nominate {
                step,
                nomination,
                victims,
                frozen: _,
            } => self.judge_nomination(step, nomination, victims),
            Decision::Withdraw { step } => self.judge_withdrawal(step),
        }
    }

    /// Something came from outside: whoever gave way before may have to again.
    pub(super) fn happens(&mut self) {
        self.gave_way.clear();
    }

    /// What hosts, pools and policies are changes: a promise may not be kept any more.
    pub(super) fn disturb(&mut self) {
        for nomination in self.nominations.values_mut() {
            nomination.disturbed = true;
        }
    }

    pub(super) fn grant(&mut self, attempt: AttemptId, run: JudgedRun) {
        self.leave_queue(&run.ask.step);
        self.runs.insert(attempt, run);
    }

    pub(super) fn leave_queue(&mut self, step: &StepId) {
        self.waiting.remove(step);
        self.nominations.remove(step);
    }

    pub(super) fn nomination(&mut self, step: &StepId, nomination: JudgedNomination) {
        if !nomination.firm {
            // One head of a pool.
            self.nominations
                .retain(|_, other| other.firm || other.pool != nomination.pool);
        }
        self.nominations.insert(step.clone(), nomination);
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
    pub(super) fn release(
        &mut self,
        attempt: &AttemptId,
        node: &NodeName,
    ) -> Option<JudgedRequest> {
        let run = self.runs.get_mut(attempt)?;
        run.holding.remove(node);
        if !run.holding.is_empty() {
            return None;
        }
        for nomination in self.nominations.values_mut() {
            nomination.awaits.remove(attempt);
        }
        self.runs.remove(attempt).map(|run| run.ask)
    }
}
