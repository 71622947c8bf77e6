//! Response of `explain`: why a step is in its state and what would let it start. Sentences are for people; every
//! number and name in them is also a field.

use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ExitView, PlacementView};
use crate::amount::table::DocumentAmount;
use crate::directory_refusal::DirectoryRefusal;
use crate::reason::Reason;
use crate::state::StepState;

/// Explanation of a step's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Explanation")
)]
pub struct ExplainView {
    /// Id of the step.
    pub id: String,
    /// Current state of the step.
    pub state: StepState,
    /// The subject on whose behalf the step was submitted.
    pub subject: String,
    /// The short answer: reason for the current state.
    pub reason: Reason,
    /// The pool to which the step was moved while it waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// Pools in which the step waits, most preferred first; empty unless queued.
    pub pools: Vec<PoolExplanation>,
    /// Pools that refuse the step, with reasons: all candidate pools if it was rejected, otherwise those whose rules
    /// exclude it.
    pub refused: Vec<RefusalView>,
    /// Resources that the step holds; absent if none.
    pub holding: Option<HoldingView>,
    /// Every attempt, oldest first, with its outcome.
    pub attempts: Vec<AttemptOutcomeView>,
}

/// Explanation of why a step waits in one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolExplanation {
    /// Name of the pool.
    pub pool: String,
    /// Priority of the subject's policy in the pool.
    pub priority: u64,
    /// Whether the step fits in the unused part of its subject's reserved share; if not, it must borrow.
    pub in_share: bool,
    /// The first rule that keeps the step from starting, with its numbers.
    pub reason: Reason,
    /// Position in the queue, starting at 1.
    pub place: u64,
    /// Number of queued steps in the pool.
    pub waiting: u64,
    /// Fair share over time, if the pool has it: the step's own subject, then the subject of the step ahead if that is
    /// another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fair_share: Vec<FairShareView>,
    /// The step directly ahead in the queue.
    pub behind: Option<String>,
    /// Usage and bounds of each resource key that the step requests.
    pub keys: Vec<KeyUsageView>,
    /// Hosts nominated for the step.
    pub promised: Option<NominationView>,
    /// Runs that would be preempted for the step, or the reason why none would.
    pub preemption: String,
    /// Runs that hold the missing resources; at most 16.
    pub holders: Vec<HolderView>,
    /// Number of all such runs.
    pub holders_total: u64,
    /// Changes that would let the step start, smallest first.
    pub would_start_if: Vec<RemedyView>,
}

/// Borrowed use of a subject in a pool with fair share. The subject with the least per weight goes first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "FairShareUse")
)]
pub struct FairShareView {
    /// Name of the subject.
    pub subject: String,
    /// GPU-seconds beyond its reserved share, halved after each half-life; core-seconds for runs without GPUs.
    pub borrowed_gpu_seconds: u64,
    /// Weight in its policy.
    pub weight: u64,
    /// The step's user, if users share fairly too and the step has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// All use by that user, halved in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_gpu_seconds: Option<u64>,
}

/// Usage and bounds of one resource key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "KeyTerms")
)]
pub struct KeyUsageView {
    /// The resource key, as in documents: `cpu`, `memory`.
    pub key: String,
    /// Amount that the step requests on all its hosts together.
    pub asked: DocumentAmount,
    /// Amount that the subject uses in the pool.
    pub used: DocumentAmount,
    /// The part of `used` that is not preemptible.
    pub used_firmly: DocumentAmount,
    /// Amount reserved for the subject; absent if the key does not count in shares.
    pub reserved: Option<DocumentAmount>,
    /// The subject's limit; absent if only the pool bounds it.
    pub limit: Option<DocumentAmount>,
    /// Amount free in the pool, if the key is declared.
    pub free: Option<DocumentAmount>,
    /// The host with the most free among those that take work.
    pub freest_node: Option<String>,
    /// Amount free on `freest_node`.
    pub free_there: Option<DocumentAmount>,
    /// Amount nominated for other steps of the subject beyond what it uses.
    #[serde(default = "nothing")]
    pub promised: DocumentAmount,
}

fn nothing() -> DocumentAmount {
    DocumentAmount::Count(0)
}

/// Hosts nominated for a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Promise")
)]
pub struct NominationView {
    /// The hosts, ordered by rank.
    pub nodes: Vec<String>,
    /// Whether the hosts are kept for the step alone; if not, preemptible steps may be backfilled on them.
    pub firm: bool,
    /// Time at which the step starts at the latest: the time limits of these runs have ended then. Absent if that is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_by: Option<Timestamp>,
    /// Runs that must end before the step can start.
    pub awaits: Vec<AwaitedRunView>,
}

/// A run that must end before a nominated step can start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AwaitedRun")
)]
pub struct AwaitedRunView {
    /// Step of the run.
    pub step: String,
    /// Attempt number of the run.
    pub attempt: u32,
    /// Subject of the run.
    pub subject: Option<String>,
    /// Time when the stop began; absent if the run is left to finish.
    pub stopping_since: Option<Timestamp>,
    /// Time when the grace period ends and the rest is killed.
    pub grace_ends_at: Option<Timestamp>,
}

/// A run that holds missing resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Holder")
)]
pub struct HolderView {
    /// Step of the run.
    pub step: String,
    /// Attempt number of the run.
    pub attempt: u32,
    /// Subject of the run.
    pub subject: String,
    /// Why the run cannot be preempted; absent if it can.
    pub spared: Option<String>,
}

/// A set of changes that would let a step start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "WouldStartIf")
)]
pub struct RemedyView {
    /// Text that follows "would start if".
    pub message: String,
    /// Changes that are needed together.
    pub changes: Vec<RemedyChange>,
    /// Number of runs that would have to be preempted first.
    pub stops: u64,
    /// Whether steps ahead in the queue could take the resources instead.
    pub after_others: bool,
}

/// One change of a remedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "RemedyChange")
)]
pub struct RemedyChange {
    /// Kind of change.
    pub kind: RemedyKind,
    /// Resource key that the change concerns.
    pub key: Option<String>,
    /// Host that the change concerns.
    pub node: Option<String>,
    /// Additional amount for `free` and `declared`; new value otherwise.
    pub amount: Option<DocumentAmount>,
}

/// Kinds of changes that would let a step start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RemedyKind {
    /// More of a key is freed on a host.
    Free,
    /// More of a declared key is freed in the pool, or more is declared.
    Declared,
    /// A cordoned or drained host is uncordoned.
    Open,
    /// The limit of the subject's policy is raised.
    Limit,
    /// The reserved share of the subject's policy is raised.
    Reserved,
    /// The step requests at most this amount per host.
    Ask,
    /// The step is made preemptible.
    Preemptible,
}

/// A pool that refuses a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolRefusal")
)]
pub struct RefusalView {
    /// Name of the pool.
    pub pool: String,
    /// Why the pool refuses the step.
    pub message: String,
}

/// Resources that a step holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Holding")
)]
pub struct HoldingView {
    /// Number of the attempt.
    pub attempt: u32,
    /// The pool that granted the resources.
    pub pool: String,
    /// Hosts and GPUs of the attempt.
    pub placements: Vec<PlacementView>,
    /// Time when the resources were granted.
    pub since: Timestamp,
    /// Time when the process started.
    pub started_at: Option<Timestamp>,
    /// Whether the subject is within its reserved share of everything that the step holds; if not, the step borrows.
    pub in_share: bool,
    /// Keys of which the subject uses more than is reserved.
    pub beyond_share: Vec<BeyondShareView>,
    /// Queued steps ahead of which this one was backfilled; they may preempt it.
    pub backfill_to: Vec<String>,
    /// Whether a step of another subject could preempt this one.
    pub exposed: bool,
    /// Time until which the pool's `min_runtime` protects the step.
    pub spared_until: Option<Timestamp>,
    /// One sentence each about who could preempt the step and who could not.
    pub exposure: Vec<String>,
    /// Time when the stop began.
    pub stopping_since: Option<Timestamp>,
    /// The step that preempts this one.
    pub gives_way_to: Option<String>,
    /// Time when the grace period ends.
    pub grace_ends_at: Option<Timestamp>,
}

/// A key of which a subject uses more than is reserved for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "BeyondShare")
)]
pub struct BeyondShareView {
    /// The resource key.
    pub key: String,
    /// Amount that the subject uses.
    pub used: DocumentAmount,
    /// Amount reserved for the subject.
    pub reserved: DocumentAmount,
}

/// One attempt and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AttemptOutcome")
)]
pub struct AttemptOutcomeView {
    /// Attempt number, starting at 1.
    pub number: u32,
    /// The pool that granted the resources.
    pub pool: String,
    /// The hosts, ordered by rank.
    pub nodes: Vec<String>,
    /// Time when the resources were granted.
    pub allocated_at: Timestamp,
    /// Time when the attempt ended.
    pub ended_at: Option<Timestamp>,
    /// Why the attempt ended; absent while it runs.
    pub reason: Option<Reason>,
    /// Exit of the process.
    pub exit: Option<ExitView>,
    /// The step that preempted the attempt.
    pub preempted_by: Option<String>,
    /// Why it ran in a directory of its own and not in the one that the step prefers, if so on one of its hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir_refused: Option<DirectoryRefusal>,
}
