//! The answer to "why is this step where it is?": the same decision that keeps it there, with the numbers and with what
//! would let it start. Sentences are for people; everything in them stands beside them for programs.

use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ExitView, PlacementView};
use crate::amount::ResourceKey;
use crate::reason::Reason;
use crate::state::StepState;

/// Why a step is where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Explanation")
)]
pub struct ExplainView {
    /// The step.
    pub id: String,
    /// Where it is in its life.
    pub state: StepState,
    /// On whose behalf.
    pub subject: String,
    /// The short answer.
    pub reason: Reason,
    /// The pools in which it waits, most preferred first; empty unless it is queued.
    pub pools: Vec<PoolExplanation>,
    /// The pools that refused it, each with why: of one that was rejected all, of one that waits those whose rules keep
    /// it out.
    pub refused: Vec<RefusalView>,
    /// What it holds; absent where it holds nothing.
    pub holding: Option<HoldingView>,
    /// Every attempt, oldest first, with how it ended.
    pub attempts: Vec<AttemptOutcomeView>,
}

/// A step that waits in a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolExplanation {
    /// The pool.
    pub pool: String,
    /// Of the subject's policy there.
    pub priority: u64,
    /// Whether the step fits into what is unused of its subject's reserved share; else it must borrow.
    pub in_share: bool,
    /// The first rule that keeps it from starting, with its numbers.
    pub reason: Reason,
    /// Its place in the queue, from 1.
    pub place: u64,
    /// How many steps wait.
    pub waiting: u64,
    /// The step just ahead of it.
    pub behind: Option<String>,
    /// What the rules read of each key that it asks for.
    pub keys: Vec<KeyUsageView>,
    /// The place that it is promised here.
    pub promised: Option<NominationView>,
    /// Whom it would stop, or why nobody is stopped for it.
    pub preemption: String,
    /// The runs that hold what it is short of, the first 16.
    pub holders: Vec<HolderView>,
    /// How many such runs there are.
    pub holders_total: u64,
    /// What would let it start, the smallest first.
    pub would_start_if: Vec<RemedyView>,
}

/// One key of a request, as the rules read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "KeyTerms")
)]
pub struct KeyUsageView {
    /// Which.
    pub key: ResourceKey,
    /// What the step asks for, on all its hosts.
    pub asked: u64,
    /// What its subject uses in the pool.
    pub used: u64,
    /// The part of that which is not preemptible.
    pub used_firmly: u64,
    /// What is reserved for the subject; absent where the key is not metered.
    pub reserved: Option<u64>,
    /// What the subject may use; absent where the pool alone bounds it.
    pub limit: Option<u64>,
    /// What is free in the pool, where the key is declared.
    pub free: Option<u64>,
    /// The host with most of it free, of those that take work.
    pub freest_node: Option<String>,
    /// What is free there.
    pub free_there: Option<u64>,
    /// What others of its subject are promised beside what it uses: runs go for them.
    #[serde(default)]
    pub promised: u64,
}

/// A place that a step is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Promise")
)]
pub struct NominationView {
    /// The hosts, by rank.
    pub nodes: Vec<String>,
    /// Whether nobody else gets it; else preemptible steps may be started around the one that waits.
    pub firm: bool,
    /// The runs that must be gone first.
    pub awaits: Vec<AwaitedRunView>,
}

/// A run whose end is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AwaitedRun")
)]
pub struct AwaitedRunView {
    /// Its step.
    pub step: String,
    /// Which attempt of it.
    pub attempt: u32,
    /// Whose.
    pub subject: Option<String>,
    /// Since when it is being stopped; absent where it is left to end by itself.
    pub stopping_since: Option<Timestamp>,
    /// When its grace ends: what is left of it then is killed.
    pub grace_ends_at: Option<Timestamp>,
}

/// A run that holds what a step is short of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Holder")
)]
pub struct HolderView {
    /// Its step.
    pub step: String,
    /// Which attempt of it.
    pub attempt: u32,
    /// Whose.
    pub subject: String,
    /// Why it is not stopped; absent where it may be.
    pub spared: Option<String>,
}

/// What would let a step start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "WouldStartIf")
)]
pub struct RemedyView {
    /// What follows "would start if".
    pub message: String,
    /// All of these together.
    pub changes: Vec<RemedyChange>,
    /// How many runs would have to give way first.
    pub stops: u64,
    /// Whether steps ahead of it could take what comes free.
    pub after_others: bool,
}

/// One thing to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "RemedyChange")
)]
pub struct RemedyChange {
    /// Which kind of change.
    pub kind: RemedyKind,
    /// Of which key.
    pub key: Option<String>,
    /// On which host.
    pub node: Option<String>,
    /// How much: of `free` and `declared` how much more, of the others the new value.
    pub amount: Option<u64>,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RemedyKind {
    /// More of a key comes free on a host.
    Free,
    /// More of a declared key comes free in the pool, or more is declared.
    Declared,
    /// A host that is closed takes work.
    Open,
    /// A higher limit in the subject's policy.
    Limit,
    /// A larger reservation in the subject's policy.
    Reserved,
    /// The step asks for no more than this, on each host.
    Ask,
    /// The step is preemptible.
    Preemptible,
}

/// A pool that refused a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "PoolRefusal")
)]
pub struct RefusalView {
    /// The pool.
    pub pool: String,
    /// Why.
    pub message: String,
}

/// What a step holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Holding")
)]
pub struct HoldingView {
    /// Which attempt.
    pub attempt: u32,
    /// The pool that granted it.
    pub pool: String,
    /// Where.
    pub placements: Vec<PlacementView>,
    /// When its units were granted.
    pub since: Timestamp,
    /// When its process started.
    pub started_at: Option<Timestamp>,
    /// Whether its subject is now within its reserved share of all that the step holds; else it borrows.
    pub in_share: bool,
    /// The keys of which its subject uses more than is reserved.
    pub beyond_share: Vec<BeyondShareView>,
    /// The waiting steps around which it was started: these may take its place.
    pub backfill_to: Vec<String>,
    /// Whether a step of another subject could stop it.
    pub exposed: bool,
    /// Until then the pool's `min_runtime` spares it, where it does.
    pub spared_until: Option<Timestamp>,
    /// By whom it could be stopped, and by whom not.
    pub exposure: Vec<String>,
    /// Since when it is being stopped.
    pub stopping_since: Option<Timestamp>,
    /// The step that it gives way to.
    pub gives_way_to: Option<String>,
    /// When its grace ends.
    pub grace_ends_at: Option<Timestamp>,
}

/// A key of which a subject uses more than is reserved for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "BeyondShare")
)]
pub struct BeyondShareView {
    /// Which.
    pub key: String,
    /// What it uses.
    pub used: u64,
    /// What is reserved.
    pub reserved: u64,
}

/// One attempt, and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AttemptOutcome")
)]
pub struct AttemptOutcomeView {
    /// From 1.
    pub number: u32,
    /// The pool that granted it.
    pub pool: String,
    /// The hosts, by rank.
    pub nodes: Vec<String>,
    /// When its units were granted.
    pub allocated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why it ended; absent while it has not.
    pub reason: Option<Reason>,
    /// How its process ended.
    pub exit: Option<ExitView>,
    /// The step that it gave way to.
    pub preempted_by: Option<String>,
}
