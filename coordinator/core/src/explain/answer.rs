//! The parts of an explanation. Plain data; the API gives it the shape that callers read.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::time::Time;
use sluice_common::wire::StopReason;
use sluice_reasons::{Cause, Exclusion, StepReason, Wait};
use sluice_scheduler::{Inspection, PreemptionRisk, Remedy, Request};

use crate::model::step::{Attempt, Step};

/// Why a step is in its state, whole.
#[derive(Clone, Debug)]
pub struct Explanation<'a> {
    pub step: &'a Step,
    /// The short answer.
    pub reason: StepReason,
    /// When it was answered.
    pub at: Time,
    /// Where it waits: the pools in which it does, most preferred first.
    pub pools: Vec<PoolWait<'a>>,
    /// Where it waits: each pool of its subject whose rules keep it out.
    pub barred: Vec<(PoolName, Exclusion)>,
    /// What it holds.
    pub holding: Option<HeldResources<'a>>,
    /// The attempts, oldest first.
    pub past: Vec<PastAttempt<'a>>,
}

/// A step that waits in a pool.
#[derive(Clone, Debug)]
pub struct PoolWait<'a> {
    pub request: &'a Request,
    /// As the scheduler sees it there.
    pub inspection: Inspection<'a>,
    /// The first rule that keeps it from starting.
    pub reason: Wait,
    /// What it is promised here.
    pub promised: Option<NominationDetails<'a>>,
    /// What would let it start, the smallest first.
    pub would_start_if: Vec<Remedy>,
}

/// A promise, and what it waits for.
#[derive(Clone, Debug)]
pub struct NominationDetails<'a> {
    /// On which hosts, by rank.
    pub hosts: &'a [NodeName],
    /// Whether nobody else may have it; else others may be started around it.
    pub firm: bool,
    /// The runs that must be gone first.
    pub awaits: Vec<AwaitedRun<'a>>,
}

/// A run whose end is awaited.
#[derive(Clone, Debug)]
pub struct AwaitedRun<'a> {
    pub attempt: &'a AttemptId,
    pub subject: Option<&'a Subject>,
    /// Why it is being stopped; `None` if it is left to end by itself.
    pub stopping: Option<StopReason>,
    pub since: Option<Time>,
    /// When its grace ends: what is left of it then is killed.
    pub grace_ends: Option<Time>,
}

/// A step that holds resources, or is on its way to give them back.
#[derive(Clone, Debug)]
pub struct HeldResources<'a> {
    pub attempt: &'a Attempt,
    /// By whom it could be preempted.
    pub exposure: PreemptionRisk<'a>,
    /// The step that it is preempted for, and whether that waits still, if it is being stopped for one.
    pub gives_way: Option<(&'a StepId, bool)>,
    /// When its grace ends, if it is being stopped.
    pub grace_ends: Option<Time>,
}

impl HeldResources<'_> {
    /// Whether another subject's step could stop it, now or once it is spared no longer.
    pub fn is_exposed(&self) -> bool {
        let PreemptionRisk {
            preemptible,
            above_reserved,
            backfill,
            borrowed_from_gpus,
            ..
        } = &self.exposure;
        let nobody_may =
            above_reserved.is_empty() && backfill.is_empty() && borrowed_from_gpus.is_empty();
        let somebody_may = *preemptible && !nobody_may;
        somebody_may && self.attempt.stopping.is_none()
    }

    /// Until then the pool's `min_runtime` spares it.
    pub fn protected_until(&self) -> Option<Time> {
        let spared = self.exposure.protected_until;
        spared.filter(|_| self.exposure.preemptible)
    }
}

/// One attempt, and how it ended.
#[derive(Clone, Debug)]
pub struct PastAttempt<'a> {
    pub attempt: &'a Attempt,
    /// How it ended; `None` while it has not.
    pub outcome: Option<Cause>,
}
