//! Stored step: its spec, its attempts, its state and the reason. Changed only by `state/apply.rs`.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::state::StepState;
use sluice_common::step::{StepSpec, serialize_without_env_values};
use sluice_common::time::{Span, Time};
use sluice_common::wire::{AttemptEnd, StartedProcess, StopReason, SuspendFailure};
use sluice_reasons::Cause;

use crate::model::cluster::Route;
use crate::model::placement::Placement;
use crate::model::template::Provenance;

/// Attempts that are remembered of one step; beyond them the oldest whose resources are free are dropped, so that a
/// step with many retries does not grow forever.
pub const MAX_ATTEMPTS_KEPT: usize = 100;

/// The pool of a step that names none.
pub(crate) const DEFAULT_POOL: &str = "default";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub id: StepId,
    /// What to run. The values of its variables are not written with it, and are given back by
    /// [`State::give_environments`].
    ///
    /// [`State::give_environments`]: crate::State::give_environments
    #[serde(serialize_with = "serialize_without_env_values")]
    pub spec: StepSpec,
    /// The place in every queue: the number of the record that accepted it. A requeued step keeps it.
    pub place: u64,
    /// When it was accepted or rejected.
    pub submitted_at: Time,
    /// Where it is in its life.
    pub state: StepState,
    /// Why it came there. What a queued step waits for *now* is told by [`crate::Core::reason`].
    pub reason: Cause,
    /// The attempts, oldest first; the last [`MAX_ATTEMPTS_KEPT`] of them.
    pub attempts: Vec<Attempt>,
    /// How many of its retries are used up.
    pub retries_spent: u32,
    /// When it was last stopped by priority, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Time>,
    /// The end, once it is in a terminal state.
    pub finished: Option<Finished>,
    /// Whether a caller suspended it: then it is not considered until a caller resumes it.
    #[serde(default)]
    pub held: bool,
    /// When it was queued again last, or let go while it was queued, if it ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_again_at: Option<Time>,
    /// By how much the clock was set ahead since it began to wait, or to be frozen: it has not waited for that time.
    #[serde(default, skip_serializing_if = "is_none")]
    pub not_waited: Span,
    /// Pools whose rules did not let it in when it was submitted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub barred: BTreeSet<PoolName>,
    /// Where the cluster's defaults sent it.
    #[serde(default, skip_serializing_if = "Route::is_empty")]
    pub home: Route,
    /// What templates lay under it when it was submitted.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub grounds: Provenance,
}

fn is_none(span: &Span) -> bool {
    *span == Span::ZERO
}

/// When a step came to its terminal state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The number of the record that ended it; the order in which steps are forgotten.
    pub seq: u64,
    /// By the coordinator's clock.
    pub at: Time,
}

/// One execution of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Counted from 1.
    pub number: u32,
    /// The pool that granted its resources.
    pub pool: PoolName,
    /// When they were granted.
    pub allocated_at: Time,
    /// When its first process was seen to run, by the coordinator's clock.
    #[serde(default)]
    pub began_at: Option<Time>,
    /// When it last saved its work, as far as its hosts have told, by the coordinator's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_at: Option<Time>,
    /// Why it is being stopped, or was when it ended.
    pub stopping: Option<StopReason>,
    /// When it was told to stop, by the coordinator's clock.
    #[serde(default)]
    pub stopping_at: Option<Time>,
    /// After how long from then what is left of it is killed, if that is sooner than its step has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace: Option<Span>,
    /// The step that it is preempted for, or gave.
    #[serde(default)]
    pub preempted_by: Option<StepId>,
    /// The waiters around which it was granted: these may take its resources back.
    #[serde(default)]
    pub backfill: BTreeSet<StepId>,
    /// The port at which its parts meet, on the host of rank 0; `None` if it has one part.
    #[serde(default)]
    pub port: Option<u16>,
    /// The part that ended badly first while nothing was being stopped: what became of it is what became of all.
    #[serde(default)]
    pub broken_by: Option<FailedPart>,
    /// How it stands with being frozen, where it was told to be and has not been brought back.
    #[serde(default)]
    pub suspension: Option<Suspension>,
    /// Why it could not be frozen or brought back, if it could not.
    #[serde(default)]
    pub not_suspended: Option<SuspendFailure>,
    /// The parts, one for each host, by rank.
    pub parts: Vec<Part>,
}

/// How an attempt stands with being frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// Progress.
    pub phase: SuspensionPhase,
    /// Since when; of one that was let go again after a caller held it, since then.
    pub since: Time,
    /// Host memory that it holds beyond what it asked for: for what is moved from its GPUs.
    pub moved_mb: u64,
}

/// Progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspensionPhase {
    /// The host was told to freeze it.
    Suspending,
    /// The attempt is frozen and holds its memory alone.
    Suspended,
    /// The attempt holds all that it asked for again, and its host was told to bring it back.
    Resuming,
}

/// The part of an attempt that brought the others down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPart {
    pub node: NodeName,
    /// Whether that host was lost with it.
    pub lost: bool,
}

/// What an attempt has on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub node: NodeName,
    /// UUIDs of the GPUs, in the order in which the step sees them.
    pub gpus: Vec<String>,
    /// Progress.
    pub phase: PartPhase,
    /// The process, once one was seen; `at` is by the host's clock.
    pub started: Option<StartedProcess>,
    /// How it ended, once it has; `at` is by the host's clock, or the coordinator's where no host told.
    pub end: Option<AttemptEnd>,
    /// When its resources were free again, by the coordinator's clock.
    pub released_at: Option<Time>,
}

/// Progress. Phases only go forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartPhase {
    /// The attempt holds resources; its host has not said that it works on it.
    Allocated,
    /// The host makes its process.
    Starting,
    /// The process runs.
    Running,
    /// The process has ended; its resources are not free yet.
    Ended,
    /// The resources are free.
    Released,
}

impl Step {
    /// The latest attempt.
    pub fn latest(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// The attempt with this number, if it is remembered.
    pub fn attempt(&self, number: u32) -> Option<&Attempt> {
        self.attempts.iter().find(|a| a.number == number)
    }

    /// The attempt that has not ended, if there is one.
    pub fn live(&self) -> Option<&Attempt> {
        self.latest().filter(|attempt| !attempt.has_ended())
    }

    /// Whether an attempt still holds resources on a host. A step may be queued again, or over, while it does.
    pub fn holds_units(&self) -> bool {
        self.attempts.iter().any(|a| !a.is_released())
    }

    /// The id of one of its attempts.
    pub fn attempt_id(&self, number: u32) -> AttemptId {
        AttemptId {
            step: self.id.clone(),
            number,
        }
    }
}

impl Attempt {
    /// Time for which it has to end once it was told to.
    pub fn grace(&self, step: &Step) -> Span {
        self.grace_within(step.spec.grace)
    }

    fn grace_within(&self, own: Span) -> Span {
        self.stop_grace.map_or(own, |grace| grace.min(own))
    }

    /// When what is left of it is killed, where it was told to stop.
    pub fn grace_ends(&self, step: &Step) -> Option<Time> {
        Some(self.stopping_at? + self.grace(step))
    }

    /// The attempt was told to stop at `at`, perhaps not for the first time: what ends sooner holds, as it does on
    /// its hosts. `own` is the grace that its step has.
    pub(crate) fn on_told_to_stop(&mut self, at: Time, grace: Option<Span>, own: Span) {
        let before = self.stopping_at.map(|told| told + self.grace_within(own));
        let ends = at + grace.map_or(own, |grace| grace.min(own));
        if before.is_none_or(|before| ends < before) {
            self.stopping_at = Some(at);
            self.stop_grace = grace;
        }
    }

    /// Whether every part has ended.
    pub fn has_ended(&self) -> bool {
        self.parts.iter().all(|p| p.phase >= PartPhase::Ended)
    }

    /// Whether every part's resources are free.
    pub fn is_released(&self) -> bool {
        self.parts.iter().all(|p| p.phase == PartPhase::Released)
    }

    /// Progress with being frozen.
    pub fn suspension(&self) -> Option<SuspensionPhase> {
        self.suspension.as_ref().map(|it| it.phase)
    }

    /// Whether it is frozen and holds its memory alone.
    pub fn is_frozen(&self) -> bool {
        self.suspension() == Some(SuspensionPhase::Suspended)
    }

    /// The parts that have not ended.
    pub fn unended(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|p| p.phase < PartPhase::Ended)
    }

    /// The part whose end stands for that of the whole: the one that brought the others down, else the first that did
    /// not end well, else the first.
    pub fn decisive_part(&self) -> Option<&Part> {
        let broken = self.broken_by.as_ref();
        let ended_badly = |part: &&Part| part.end.as_ref().is_some_and(|end| !end.is_clean());
        broken
            .and_then(|broken| self.on(&broken.node))
            .or_else(|| self.parts.iter().find(ended_badly))
            .or_else(|| self.parts.first())
    }

    /// The part on a host.
    pub fn on(&self, node: &NodeName) -> Option<&Part> {
        self.parts.iter().find(|p| p.node == *node)
    }
}

impl Part {
    /// A part whose resources were just granted.
    pub(crate) fn new(placement: &Placement) -> Self {
        Self {
            node: placement.node.clone(),
            gpus: placement.gpus.clone(),
            phase: PartPhase::Allocated,
            started: None,
            end: None,
            released_at: None,
        }
    }
}

/// The pool that always exists.
pub(crate) fn default_pool() -> PoolName {
    PoolName::new(DEFAULT_POOL).expect("the constant is a well-formed name")
}

/// The subject of a step that names none. It is bound to the pool that always exists, on all of it.
pub(crate) fn default_subject() -> Subject {
    Subject::new(DEFAULT_POOL).expect("the constant is a well-formed name")
}
