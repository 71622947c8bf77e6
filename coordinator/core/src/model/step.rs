//! Stored step: its spec, its attempts, its state and the reason. Changed only by `state/apply.rs`.

mod endpoint;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use sluice_common::allocation::Lease;
use sluice_common::array::MAX_ARRAY_INDEX;
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::shared::{Shared, arc};
use sluice_common::state::StepState;
use sluice_common::step::{StepSpec, serialize_without_env_values};
use sluice_common::time::{Span, Time};
use sluice_common::wire::{AttemptEnd, StartedProcess, StopReason, SuspendFailure};
use sluice_reasons::Cause;

pub use endpoint::Endpoint;

use crate::model::array::{Array, ArrayPart};
use crate::model::cluster::Route;
use crate::model::placement::Placement;
use crate::model::template::Provenance;

/// Most attempts that are remembered of one step. Beyond it the oldest whose resources are free are dropped, so that
/// a step with many retries does not grow forever.
pub const MAX_ATTEMPTS_KEPT: usize = 100;

/// The pool of a step that names none.
pub(crate) const DEFAULT_POOL: &str = "default";

/// A submitted step, until it is forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub id: StepId,
    /// The spec. The values of its variables are not stored with it, and are restored by
    /// [`State::give_environments`].
    ///
    /// [`State::give_environments`]: crate::State::give_environments
    #[serde(
        serialize_with = "serialize_without_env_values",
        deserialize_with = "arc::deserialize"
    )]
    pub spec: Arc<StepSpec>,
    /// Place in every queue: the number of the record that accepted it, or its array. A requeued step keeps it.
    pub place: u64,
    /// Time of acceptance or rejection.
    pub submitted_at: Time,
    pub state: StepState,
    /// The reason of the last change of state. [`crate::Core::reason`] tells what a queued step waits for *now*.
    pub reason: Cause,
    /// The attempts, oldest first; at most the last [`MAX_ATTEMPTS_KEPT`].
    pub attempts: Vec<Attempt>,
    /// Number of retries used up.
    pub retries_spent: u32,
    /// When it was last stopped by priority, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Time>,
    /// The end, once it is in a terminal state.
    pub finished: Option<Finished>,
    /// Steps on which it depends and which have not ended as required yet. None once it was granted resources.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unmet: BTreeSet<StepId>,
    /// Time before which it does not start, until that has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// The lease, if it is an allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Whether a caller suspended it: it is not considered until a caller resumes it.
    #[serde(default)]
    pub held: bool,
    /// Time at which it was last queued again, or resumed while it was queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_again_at: Option<Time>,
    /// Time by which the clock was set ahead since it was queued or frozen. That time does not count as waiting.
    #[serde(default, skip_serializing_if = "is_none")]
    pub not_waited: Span,
    /// Pools whose rules excluded it when it was submitted.
    #[serde(rename = "barred", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded_pools: BTreeSet<PoolName>,
    /// Route by the cluster's defaults.
    #[serde(rename = "home", default, skip_serializing_if = "Route::is_empty")]
    pub route: Shared<Route>,
    /// Number of the record that moved it to another pool while it waited. Pools that were created before are open to
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_at: Option<u64>,
    /// Templates under it when it was submitted.
    #[serde(
        rename = "grounds",
        default,
        skip_serializing_if = "Provenance::is_empty"
    )]
    pub provenance: Shared<Provenance>,
    /// Progress of its parts, if it is an array. An array has no attempts: its parts do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<Array>>,
    /// The array of which it is a part, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<ArrayPart>,
}

/// Bits of an order in the queue that tell the parts of an array apart.
const PART_BITS: u32 = 20;
const _: () = assert!(MAX_ARRAY_INDEX < (1 << PART_BITS) - 1);

fn is_none(span: &Span) -> bool {
    *span == Span::ZERO
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Number of the record that ended it; steps are forgotten in this order.
    pub seq: u64,
    /// Time by the coordinator's clock.
    pub at: Time,
}

/// One execution of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Attempt number, starting at 1.
    pub number: u32,
    /// The pool that granted its resources.
    pub pool: PoolName,
    pub allocated_at: Time,
    /// Time at which its first process was seen running, by the coordinator's clock.
    #[serde(default)]
    pub began_at: Option<Time>,
    /// Time of its last reported checkpoint, by the coordinator's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_at: Option<Time>,
    /// The reason of its stop, while it is being stopped and after.
    pub stopping: Option<StopReason>,
    /// Time of the order to stop, by the coordinator's clock.
    #[serde(default)]
    pub stopping_at: Option<Time>,
    /// Grace from then on, if that is shorter than the step's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace: Option<Span>,
    /// The step that preempts it, or preempted it.
    #[serde(default)]
    pub preempted_by: Option<StepId>,
    /// Whether it is stopped because the allocation ends inside which it runs.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub with_allocation: bool,
    /// Queued steps that were passed over for it and may preempt it.
    #[serde(default)]
    pub backfill: BTreeSet<StepId>,
    /// The port at which its parts meet, on the host of rank 0; `None` if it has one part.
    #[serde(default)]
    pub port: Option<u16>,
    /// The part that failed first while nothing was being stopped. Its end decides for the whole attempt.
    #[serde(default)]
    pub broken_by: Option<FailedPart>,
    /// The suspension, from the order to freeze until the attempt is resumed.
    #[serde(default)]
    pub suspension: Option<Suspension>,
    /// Whether it was, or may have been, frozen at any time. Time frozen does not count against its time limit.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub was_frozen: bool,
    /// The reason why it could not be frozen or resumed, if so.
    #[serde(default)]
    pub not_suspended: Option<SuspendFailure>,
    /// The parts, one for each host, by rank.
    pub parts: Vec<Part>,
}

/// The suspension of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    pub phase: SuspensionPhase,
    /// Time since which it is frozen, or since a caller resumed a held one.
    pub since: Time,
    /// Host memory that it holds beyond its request, for what is moved from its GPUs.
    pub moved_mb: u64,
}

/// The phase of a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspensionPhase {
    /// The host was told to freeze the attempt.
    Suspending,
    /// The attempt is frozen and holds only its memory.
    Suspended,
    /// The attempt holds all that it asked for again, and its host was told to resume it.
    Resuming,
}

/// The part of an attempt whose failure ended the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPart {
    pub node: NodeName,
    /// Whether its host was lost.
    pub lost: bool,
}

/// The part of an attempt on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub node: NodeName,
    /// UUIDs of the GPUs, in the order in which the step sees them.
    pub gpus: Vec<String>,
    pub phase: PartPhase,
    /// The process, once one was seen; `at` is by the host's clock.
    pub started: Option<StartedProcess>,
    /// The end, once it has ended; `at` is by the host's clock, or the coordinator's if no host reported.
    pub end: Option<AttemptEnd>,
    /// Time at which its resources were free again, by the coordinator's clock.
    pub released_at: Option<Time>,
    /// Ports and readiness, once the host has reported any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Box<Endpoint>>,
}

/// The phase of a part. Phases only go forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartPhase {
    /// The part holds resources; its host has not reported work on it.
    Allocated,
    /// The host is starting its process.
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

    /// Makes a step as it is when it is accepted or rejected, without anything that its queue or its hosts add.
    pub(crate) fn new(
        id: StepId,
        spec: Arc<StepSpec>,
        place: u64,
        submitted_at: Time,
        (state, reason): (StepState, Cause),
    ) -> Self {
        Self {
            id,
            place,
            submitted_at,
            state,
            reason,
            attempts: Vec::new(),
            retries_spent: 0,
            evictions: Vec::new(),
            finished: None,
            unmet: BTreeSet::new(),
            not_before: None,
            lease: spec.lease.map(|lease| Lease::new(submitted_at, lease)),
            held: false,
            queued_again_at: None,
            not_waited: Span::ZERO,
            excluded_pools: BTreeSet::new(),
            route: Shared::default(),
            moved_at: None,
            provenance: Shared::default(),
            array: spec.array.as_ref().map(|spec| Box::new(Array::new(spec))),
            part_of: None,
            spec,
        }
    }

    /// Whether the scheduler considers it: it is queued and no array, no caller holds it, and it waits for no other step
    /// and for no time.
    pub fn is_schedulable(&self) -> bool {
        self.awaits_resources() && self.spec.inside.is_none()
    }

    /// Whether it waits for resources alone, of its pool or of the allocation inside which it is to run.
    pub fn awaits_resources(&self) -> bool {
        self.state == StepState::Queued && !self.held && self.is_ready() && self.array.is_none()
    }

    /// Position in the order of submission and in every queue. The parts of an array follow it, by index.
    pub fn order(&self) -> u64 {
        let part = self.part_of.as_ref().map_or(0, |part| part.index + 1);
        (self.place << PART_BITS) + u64::from(part)
    }

    /// The place of a step of this order.
    pub(crate) fn place_of(order: u64) -> u64 {
        order >> PART_BITS
    }

    /// The highest position of what was submitted up to a record.
    pub fn last_order_of(seq: u64) -> u64 {
        (seq << PART_BITS) + ((1 << PART_BITS) - 1)
    }

    /// Whether it waits neither for other steps nor for a time.
    pub fn is_ready(&self) -> bool {
        self.unmet.is_empty() && self.not_before.is_none()
    }

    /// Whether an attempt still holds resources on a host. A step may be queued again, or over, while it does.
    pub fn holds_units(&self) -> bool {
        self.attempts.iter().any(|a| !a.is_released())
    }

    /// The first host on which an attempt still holds resources.
    pub fn holding_node(&self) -> Option<&NodeName> {
        let parts = self.attempts.iter().flat_map(|attempt| &attempt.parts);
        let mut held = parts.filter(|part| part.phase != PartPhase::Released);
        held.next().map(|part| &part.node)
    }

    /// The only pool that it may run in: that to which it was moved, or which it names, or its default.
    pub fn only_pool(&self) -> Option<&PoolName> {
        self.route.pool.as_ref().or(self.spec.pool.as_ref())
    }

    /// The subject whose policies it uses.
    pub fn policy_subject(&self) -> &Subject {
        self.route.subject.as_ref().unwrap_or(&self.spec.subject)
    }

    /// The pool to which a caller moved it while it waited.
    pub fn moved_to(&self) -> Option<&PoolName> {
        self.moved_at.and(self.only_pool())
    }

    /// Whether it holds what a pool without hosts counts.
    pub fn is_hostless(&self) -> bool {
        self.live().is_some_and(Attempt::is_hostless)
    }

    /// Changes the time of the order to stop, if it has no host. A host keeps time by itself.
    pub(crate) fn shift_hostless_stop(&mut self, to: impl Fn(Time) -> Time) {
        let live = self.attempts.last_mut();
        let live = live.filter(|attempt| attempt.is_hostless() && !attempt.has_ended());
        if let Some(at) = live.and_then(|attempt| attempt.stopping_at.as_mut()) {
            *at = to(*at);
        }
    }

    /// Whether a part of an attempt runs and its readiness probe succeeds, if there is one. Whether its host can be reached
    /// is not known here: see [`Core::is_ready`](crate::Core::is_ready).
    pub fn is_ready_on(&self, attempt: &Attempt, part: &Part) -> bool {
        let runs = part.phase == PartPhase::Running
            && attempt.stopping.is_none()
            && attempt.suspension.is_none();
        let endpoint = part.endpoint.as_ref();
        let succeeds = endpoint.is_some_and(|endpoint| endpoint.succeeds);
        runs && (succeeds || self.spec.probes.readiness.is_none())
    }

    /// The id of an attempt of this step.
    pub fn attempt_id(&self, number: u32) -> AttemptId {
        AttemptId {
            step: self.id.clone(),
            number,
        }
    }
}

impl Attempt {
    /// Grace period after an order to stop.
    pub fn grace(&self, step: &Step) -> Span {
        self.grace_within(step.spec.grace)
    }

    fn grace_within(&self, own: Span) -> Span {
        self.stop_grace.map_or(own, |grace| grace.min(own))
    }

    /// End of the grace period, if it was told to stop.
    pub fn grace_ends(&self, step: &Step) -> Option<Time> {
        Some(self.stopping_at? + self.grace(step))
    }

    /// Notes an order to stop at `at`, perhaps not the first: the earlier end holds, as it does on its hosts. `own`
    /// is the grace of the step.
    pub(crate) fn on_told_to_stop(&mut self, at: Time, grace: Option<Span>, own: Span) {
        let before = self.stopping_at.map(|at| at + self.grace_within(own));
        let ends = at + grace.map_or(own, |grace| grace.min(own));
        if before.is_none_or(|before| ends < before) {
            self.stopping_at = Some(at);
            self.stop_grace = grace;
        }
    }

    /// Whether it is of a pool without hosts.
    pub fn is_hostless(&self) -> bool {
        self.parts.iter().any(|part| part.node.is_of_pool())
    }

    /// Takes its readiness back, because it is about to be stopped or frozen: its hosts report it again if it runs on.
    pub(crate) fn lose_readiness(&mut self) {
        let endpoints = self
            .parts
            .iter_mut()
            .filter_map(|part| part.endpoint.as_mut());
        endpoints.for_each(|endpoint| endpoint.succeeds = false);
    }

    /// Whether every part has ended.
    pub fn has_ended(&self) -> bool {
        self.parts.iter().all(|p| p.phase >= PartPhase::Ended)
    }

    /// Whether the process of every part has run.
    pub fn has_run(&self) -> bool {
        self.parts.iter().all(|part| part.started.is_some())
    }

    /// Whether every part's resources are free.
    pub fn is_released(&self) -> bool {
        self.parts.iter().all(|p| p.phase == PartPhase::Released)
    }

    /// The phase of its suspension.
    pub fn suspension(&self) -> Option<SuspensionPhase> {
        self.suspension.as_ref().map(|it| it.phase)
    }

    /// Whether it is frozen and holds only its memory.
    pub fn is_frozen(&self) -> bool {
        self.suspension() == Some(SuspensionPhase::Suspended)
    }

    /// The parts that have not ended.
    pub fn unended(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|p| p.phase < PartPhase::Ended)
    }

    /// The part whose end decides for the whole: the one whose failure ended the others, or else the first that
    /// failed, or else the first.
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
    /// Makes a part whose resources were just granted.
    pub(crate) fn new(placement: &Placement) -> Self {
        Self {
            node: placement.node.clone(),
            gpus: placement.gpus.clone(),
            phase: PartPhase::Allocated,
            started: None,
            end: None,
            released_at: None,
            endpoint: None,
        }
    }
}

/// The pool that always exists.
pub(crate) fn default_pool() -> PoolName {
    PoolName::new(DEFAULT_POOL).expect("the constant is a well-formed name")
}

/// The subject of a step that names none. It is bound to all of the pool that always exists.
pub(crate) fn default_subject() -> Subject {
    Subject::new(DEFAULT_POOL).expect("the constant is a well-formed name")
}
