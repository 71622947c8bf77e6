//! What an explanation is made of. Plain data: the API gives it the shape that callers read.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::reason::Reason;
use sluice_common::time::Time;
use sluice_common::wire::StopWhy;
use sluice_scheduler::{KeyTerms, Remedy};

use crate::model::step::{Attempt, Step};

/// Why a step is where it is, whole.
#[derive(Clone, Debug)]
pub struct Explanation<'a> {
    /// The step.
    pub step: &'a Step,
    /// The short answer.
    pub reason: Reason,
    /// When it was answered.
    pub at: Time,
    /// Where it waits: the pools in which it does, most preferred first.
    pub pools: Vec<InPool<'a>>,
    /// Where it was rejected: each pool that refused it, and why. Where it waits: each pool of its subject whose rules
    /// keep it out.
    pub refused: Vec<(String, String)>,
    /// What it holds.
    pub holding: Option<Holding<'a>>,
    /// Its attempts, oldest first.
    pub past: Vec<Past<'a>>,
}

/// A step that waits in a pool.
#[derive(Clone, Debug)]
pub struct InPool<'a> {
    /// The pool.
    pub pool: &'a PoolName,
    /// Of its subject's policy there.
    pub priority: u64,
    /// Whether it fits into what is unused of its subject's reserved share.
    pub in_share: bool,
    /// What the rules read of each key that it asks for.
    pub keys: Vec<KeyTerms<'a>>,
    /// The first rule that keeps it from starting.
    pub reason: Reason,
    /// How many go before it.
    pub ahead: usize,
    /// How many wait.
    pub waiting: usize,
    /// Who is just ahead of it.
    pub behind: Option<&'a StepId>,
    /// What it is promised here.
    pub promised: Option<Promised<'a>>,
    /// Whom it would stop, or why nobody is stopped for it.
    pub stops: String,
    /// The runs that hold what it is short of: the first of them.
    pub spares: Vec<Spare<'a>>,
    /// How many there are.
    pub holders: usize,
    /// What would let it start, the smallest first.
    pub would_start_if: Vec<WouldStart>,
}

/// A promise, and what it waits for.
#[derive(Clone, Debug)]
pub struct Promised<'a> {
    /// On which hosts, by rank.
    pub hosts: &'a [NodeName],
    /// Whether nobody else may have it; else others may be started around it.
    pub firm: bool,
    /// The runs that must be gone first.
    pub awaits: Vec<Awaited<'a>>,
}

/// A run whose end is awaited.
#[derive(Clone, Debug)]
pub struct Awaited<'a> {
    /// Which.
    pub attempt: &'a AttemptId,
    /// Whose.
    pub subject: Option<&'a Subject>,
    /// Why it is being stopped; `None` where it is left to end by itself.
    pub stopping: Option<StopWhy>,
    /// Since when.
    pub since: Option<Time>,
    /// When its grace ends: what is left of it then is killed.
    pub grace_ends: Option<Time>,
}

/// A run that holds what the step is short of.
#[derive(Clone, Debug)]
pub struct Spare<'a> {
    /// Which.
    pub attempt: &'a AttemptId,
    /// Whose.
    pub subject: &'a Subject,
    /// Why it is not stopped; `None` where it may be.
    pub why: Option<String>,
}

/// What would let the step start.
#[derive(Clone, Debug)]
pub struct WouldStart {
    /// In words.
    pub message: String,
    /// In numbers.
    pub remedy: Remedy,
}

/// A step that holds units, or is on its way to give them back.
#[derive(Clone, Debug)]
pub struct Holding<'a> {
    /// Its attempt.
    pub attempt: &'a Attempt,
    /// Whether its subject is within its reserved share of every metered key that it holds.
    pub in_share: bool,
    /// Keys of which its subject uses more than is reserved: what it uses, and what is reserved.
    pub beyond: Vec<(&'a str, u64, u64)>,
    /// When its grace ends, where it is being stopped.
    pub grace_ends: Option<Time>,
    /// Whether another subject's step could stop it, now or after `spared_until`.
    pub exposed: bool,
    /// Until then the pool's `min_runtime` spares it.
    pub spared_until: Option<Time>,
    /// By whom it could be made to give way, in words.
    pub exposure: Vec<String>,
}

/// One attempt, and how it ended.
#[derive(Clone, Debug)]
pub struct Past<'a> {
    /// The attempt.
    pub attempt: &'a Attempt,
    /// How it ended; `None` while it has not.
    pub outcome: Option<Reason>,
}
