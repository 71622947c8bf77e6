//! The parts of an explanation. Plain data; the API chooses the JSON.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::time::Time;
use sluice_common::wire::StopReason;
use sluice_reasons::{Cause, Exclusion, StepReason, Wait};
use sluice_scheduler::{Inspection, PreemptionRisk, PreemptionStatus, Request, Scheduler};

use crate::explain::remedies::RemedySearch;
use crate::model::step::{Attempt, Step};

/// The explanation of a step's state.
#[derive(Clone, Debug)]
pub struct Explanation<'a> {
    pub step: Cow<'a, Step>,
    /// The short answer.
    pub reason: StepReason,
    pub at: Time,
    /// The pools in which the step is queued, most preferred first.
    pub pools: Vec<PoolWait<'a>>,
    /// The pools of the subject whose rules exclude the step.
    pub excluded_by: Vec<(PoolName, Exclusion)>,
    /// The resources that it holds.
    pub holding: Option<HeldResources<'a>>,
    /// The attempts, oldest first.
    pub past: Vec<PastAttempt<'a>>,
}

/// A step queued in a pool.
#[derive(Clone, Debug)]
pub struct PoolWait<'a> {
    pub request: &'a Request,
    /// The scheduler's inspection of it there.
    pub inspection: Inspection<'a>,
    /// The first rule that prevents its start.
    pub reason: Wait,
    /// Nomination in this pool.
    pub promised: Option<NominationDetails<'a>>,
    pub(crate) scheduler: &'a Scheduler,
    pub(crate) at: Time,
}

impl PoolWait<'_> {
    /// Copies what a search for remedies needs, in all pools of the step; `None` if its victims are stopping already.
    pub fn remedy_search(&self) -> Option<RemedySearch> {
        let step = self.request.step.clone();
        let is_open = self.inspection.preemption != PreemptionStatus::InProgress;
        is_open.then(|| RemedySearch::new(self.scheduler.clone(), step, self.at))
    }
}

/// A nomination, and the runs it waits for.
#[derive(Clone, Debug)]
pub struct NominationDetails<'a> {
    /// Hosts, by rank.
    pub hosts: &'a [NodeName],
    /// Whether the hosts are held for it alone; otherwise others may backfill.
    pub firm: bool,
    /// Time at which the step starts at the latest, by the time limits of these runs; `None` if that is not known.
    pub starts_by: Option<Time>,
    /// The runs that must end first.
    pub awaits: Vec<AwaitedRun<'a>>,
}

/// A run whose end is awaited.
#[derive(Clone, Debug)]
pub struct AwaitedRun<'a> {
    pub attempt: &'a AttemptId,
    pub subject: Option<&'a Subject>,
    /// The reason of the stop; `None` if the run ends by itself.
    pub stopping: Option<StopReason>,
    pub since: Option<Time>,
    /// End of its grace period, when it is killed.
    pub grace_ends: Option<Time>,
}

/// A step that holds resources, or is giving them back.
#[derive(Clone, Debug)]
pub struct HeldResources<'a> {
    pub attempt: &'a Attempt,
    /// The subjects that could preempt it.
    pub exposure: PreemptionRisk<'a>,
    /// The step that preempts it, and whether that step is still queued.
    pub gives_way: Option<(&'a StepId, bool)>,
    /// End of its grace period, if it is being stopped.
    pub grace_ends: Option<Time>,
}

impl HeldResources<'_> {
    /// Whether another subject's step could preempt it, now or after its `min_runtime`.
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

    /// Time until which the pool's `min_runtime` protects it.
    pub fn protected_until(&self) -> Option<Time> {
        let spared = self.exposure.protected_until;
        spared.filter(|_| self.exposure.preemptible)
    }
}

/// One attempt, and how it ended.
#[derive(Clone, Debug)]
pub struct PastAttempt<'a> {
    pub attempt: &'a Attempt,
    /// The reason for its end; `None` while it has not ended.
    pub outcome: Option<Cause>,
}
