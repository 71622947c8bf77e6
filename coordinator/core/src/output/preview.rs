//! The result of a submit preview.

use alloc::vec::Vec;

use sluice_common::id::{PoolName, StepId};
use sluice_reasons::{Check, StepReason};

use super::Refusal;
use crate::model::step::Step;

/// A stage of a submit, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Who may submit it, and where.
    Access,
    /// What is filled in where it says nothing.
    Merge,
    /// Maxima and assertions, over what that makes of it.
    Validation,
    /// Which hosts could hold it.
    Platform,
    /// What it gets, and when.
    Queue,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 5] = [
        Stage::Access,
        Stage::Merge,
        Stage::Validation,
        Stage::Platform,
        Stage::Queue,
    ];
}

/// How something came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// The step goes on.
    Passed,
    /// The step ends here.
    Failed,
    /// The step never came so far.
    NotReached,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckLine {
    /// The pool that was asked.
    pub pool: Option<PoolName>,
    pub passage: CheckStatus,
    pub check: Check,
}

/// A stage, and what was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageReport {
    pub stage: Stage,
    pub passage: CheckStatus,
    /// What was checked, pool by pool.
    pub lines: Vec<CheckLine>,
}

/// What a submit would come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Every stage, in order.
    pub stages: Vec<StageReport>,
    /// The step as it would be stored, or why it would not be.
    pub outcome: Result<Previewed, Refusal>,
}

/// A step as it would stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previewed {
    pub step: Step,
    /// Why it would be there.
    pub reason: StepReason,
    /// Where it would run, wait or prefer to.
    pub pool: Option<PoolName>,
    /// Steps that would be preempted to it at once.
    pub preempts: Vec<StepId>,
}
