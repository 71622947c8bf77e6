//! The result of a submit preview.

use alloc::vec::Vec;

use sluice_common::id::{PoolName, StepId};
use sluice_reasons::{Check, StepReason};

use super::Refusal;
use crate::model::step::Step;

/// The stages of a submit, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Permission of the subject, and the pools it may use.
    Access,
    /// Defaults that pools and templates fill in.
    Merge,
    /// Maxima and assertions, for the filled-in step.
    Validation,
    /// Hosts that could hold the step.
    Platform,
    /// Start time and resources.
    Queue,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 5] = [
        Stage::Access,
        Stage::Merge,
        Stage::Validation,
        Stage::Platform,
        Stage::Queue,
    ];
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// The step passes.
    Passed,
    /// The step fails here.
    Failed,
    /// The step failed in an earlier stage.
    NotReached,
}

/// One check of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckLine {
    /// The checked pool.
    pub pool: Option<PoolName>,
    pub passage: CheckStatus,
    pub check: Check,
}

/// A stage with its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageReport {
    pub stage: Stage,
    pub passage: CheckStatus,
    /// The checks, pool by pool.
    pub lines: Vec<CheckLine>,
}

/// The preview of a submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Every stage, in order.
    pub stages: Vec<StageReport>,
    /// The step as it would be stored, or the reason why it would not be.
    pub outcome: Result<Previewed, Refusal>,
}

/// The state in which a step would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previewed {
    pub step: Step,
    /// The reason for that state.
    pub reason: StepReason,
    /// The pool in which it would run, or its preferred one.
    pub pool: Option<PoolName>,
    /// Steps that would be preempted at once.
    pub preempts: Vec<StepId>,
}
