//! A slow and simple judge of the scheduler, written from the published rules alone: it keeps its own facts, judges
//! each [`Decision`] before it takes effect, and checks what must hold when none is left. It shares no code with the
//! scheduler and goes through everything each time, so it is for small tests.
//!
//! Each rule is a function named after it, with the sentence of the published semantics; a broken rule is a
//! [`RuleViolation`].
//!
//! ```text
//! harness --(events, decisions)--> Judge facts --(grants, victims, nominations)--> RuleViolation: rule, step, numbers
//! ```

mod amounts;
mod counting;
mod entitlement;
mod eviction;
mod facts;
mod fair_share;
mod frozen;
mod grants;
mod loss_budget;
mod nominations;
mod queue_order;
mod victims;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId, Subject};

use crate::{Decision, PlatformSet};

pub(super) use amounts::{
    GPU, GPU_PARTS, JudgedAmounts, JudgedClass, KEYS, LIC, MCPU, MEM, SLOTS, STEP_RUN, counted,
    counted_table, with_gpus,
};
pub(super) use frozen::{FreezePhase, FrozenRun};

/// A broken rule.
#[derive(Clone, Debug)]
pub(super) struct RuleViolation {
    pub(super) rule: &'static str,
    pub(super) what: String,
}

pub(super) type RuleResult = Result<(), RuleViolation>;

/// Checks one rule.
fn rule(name: &'static str, holds: bool, what: impl FnOnce() -> String) -> RuleResult {
    if holds {
        return Ok(());
    }
    Err(RuleViolation {
        rule: name,
        what: what(),
    })
}

/// A step that asks for resources, waiting or running.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JudgedRequest {
    pub(super) step: StepId,
    pub(super) subject: Subject,
    pub(super) place: u64,
    /// Number of the user; `None` if the pools share among subjects alone.
    pub(super) user: Option<usize>,
    pub(super) priority: i64,
    pub(super) preemptible: bool,
    pub(super) nodes: u64,
    pub(super) each: JudgedAmounts,
    /// Class of its GPUs.
    pub(super) class: JudgedClass,
    pub(super) pool: Option<PoolName>,
    pub(super) suspends: bool,
    /// The frozen run that it waits to resume.
    pub(super) frozen_run: Option<FrozenRun>,
    pub(super) platforms: Vec<PlatformName>,
    /// Whether all its hosts must be of one rack; `None` if that does not matter.
    pub(super) one_rack: Option<bool>,
    /// Longest time from its start to its end, in milliseconds.
    pub(super) time_limit: Option<u64>,
    /// Times at which it was stopped by priority, in milliseconds.
    pub(super) evictions: Vec<u64>,
}

impl JudgedRequest {
    /// Whether every rule but the queue order treats both alike.
    fn is_like(&self, other: &Self) -> bool {
        let but_for_its_place = Self {
            step: other.step.clone(),
            place: other.place,
            suspends: other.suspends,
            evictions: other.evictions.clone(),
            ..self.clone()
        };
        but_for_its_place == *other
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct JudgedPool {
    pub(super) declared: BTreeMap<usize, u64>,
    pub(super) min_runtime: u64,
    /// Whether the pool has `gpu_hosts: open`.
    pub(super) open_gpu_hosts: bool,
    /// Whether the pool has `priority_preemption: off`.
    pub(super) no_priority_preemption: bool,
    /// Percent of the pool's time in 24 hours that priority may lose, if that is bounded.
    pub(super) budget: Option<u64>,
    /// Whether the pool has `fair_share`, of a half-life in which nothing decays.
    pub(super) fair_share: bool,
    pub(super) fair_users: bool,
    /// Whether the pool has `placement: spread`; no rule of the judge depends on it.
    pub(super) spread: bool,
    pub(super) policies: BTreeMap<Subject, JudgedPolicy>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct JudgedPolicy {
    pub(super) priority: u64,
    pub(super) weight: u32,
    pub(super) reserved: BTreeMap<usize, u64>,
    pub(super) limit: BTreeMap<usize, u64>,
}

#[derive(Clone, Debug)]
pub(super) struct JudgedHost {
    pub(super) pool: PoolName,
    pub(super) has: JudgedAmounts,
    pub(super) schedulable: bool,
    /// Platforms of its whole GPUs, or of the host if it has no GPU.
    pub(super) platforms: PlatformSet,
    /// Number of its rack, if it is in one.
    pub(super) rack: Option<usize>,
    /// Number of its GPUs that are cut into its slices.
    pub(super) cut: u64,
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
    /// Whether something other than a decision may have made the nomination impossible.
    pub(super) disturbed: bool,
}

/// All facts that the rules need.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    pub(super) now: u64,
    pub(super) pools: BTreeMap<PoolName, JudgedPool>,
    pub(super) hosts: BTreeMap<NodeName, JudgedHost>,
    pub(super) waiting: BTreeMap<StepId, JudgedRequest>,
    pub(super) runs: BTreeMap<AttemptId, JudgedRun>,
    pub(super) nominations: BTreeMap<StepId, JudgedNomination>,
    /// Victims and the steps that they were preempted for, since the last external event.
    pub(super) gave_way: BTreeSet<(StepId, StepId)>,
    fair_uses: fair_share::JudgedUses,
    losses: loss_budget::JudgedLosses,
}

impl Judge {
    /// Judges a decision by the facts before it.
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
                evicted,
            } if nomination.is_firm() => {
                self.judge_preemption(step, nomination, victims, frozen)?;
                self.evictions_are_those_by_priority(
                    step,
                    &nomination.pool,
                    victims,
                    frozen,
                    evicted,
                )
            }
            Decision::Nominate {
                step,
                nomination,
                victims,
                frozen: _,
                evicted: _,
            } => self.judge_nomination(step, nomination, victims),
            Decision::Withdraw { step } => self.judge_withdrawal(step),
        }
    }

    /// An external event: steps that were preempted before may be preempted again.
    pub(super) fn happens(&mut self) {
        self.gave_way.clear();
    }

    /// Hosts, pools or policies changed: nominations may no longer be possible.
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
            // A pool has one head.
            self.nominations
                .retain(|_, other| other.firm || other.pool != nomination.pool);
        }
        self.nominations.insert(step.clone(), nomination);
    }

    pub(super) fn stop(&mut self, attempt: &AttemptId, by: Option<&StepId>) {
        let run = self.runs.get_mut(attempt).expect("what stops runs");
        run.stopping = true;
        if let Some(by) = by {
            // A step that is preempted itself is queued anew: its former victims, frozen or running as backfill, may
            // be preempted for it again.
            self.gave_way.retain(|(_, waiter)| *waiter != attempt.step);
            self.gave_way.insert((attempt.step.clone(), by.clone()));
        }
    }

    /// Returns the request if that was its last host.
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
