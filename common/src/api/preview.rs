//! Result of a dry-run submit, stage by stage.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::StepView;

/// Result of a dry-run submit. Nothing is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Preview")
)]
pub struct PreviewView {
    /// Fate of the step.
    pub outcome: PreviewOutcome,
    /// Every stage, in the order in which a submit passes them.
    pub stages: Vec<StageView>,
    /// The step as it would be stored, with an id of its own; absent if the submit would be refused.
    pub step: Option<StepView>,
    /// Steps that would be preempted at once.
    pub preempts: Vec<String>,
}

/// Fate of a submitted step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreviewOutcome {
    /// The step starts at once.
    Starts,
    /// The step is queued.
    Waits,
    /// The step is stored as rejected.
    Rejected,
    /// The call fails and nothing is stored.
    Refused,
}

/// Stages that a submit passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreviewStage {
    /// Checks the caller's right to submit.
    Access,
    /// Applies templates and defaults.
    Merge,
    /// Checks maxima and validation rules.
    Validation,
    /// Finds hosts that could hold the step.
    Platform,
    /// Decides whether the step starts or waits.
    Queue,
}

impl PreviewStage {
    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            PreviewStage::Access => "access",
            PreviewStage::Merge => "merge",
            PreviewStage::Validation => "validation",
            PreviewStage::Platform => "platform",
            PreviewStage::Queue => "queue",
        }
    }
}

/// Outcome of a stage or of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StageOutcome {
    /// The stage or check passed.
    Passed,
    /// The stage or check failed.
    Failed,
    /// An earlier stage failed.
    NotReached,
}

/// One stage and its checks. A stage passes if at least one candidate pool passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Stage")
)]
pub struct StageView {
    /// The stage that was run.
    pub stage: PreviewStage,
    /// Outcome of the stage.
    pub outcome: StageOutcome,
    /// Checks by pool, most preferred pool first.
    pub checks: Vec<CheckView>,
}

/// One check of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Check")
)]
pub struct CheckView {
    /// The pool that was checked; absent if none.
    pub pool: Option<String>,
    /// Subject of the check: a field, an assertion, a platform or a reason code.
    pub about: String,
    /// Outcome of the check.
    pub outcome: StageOutcome,
    /// Explanation with the numbers.
    pub message: String,
}
