//! What a submit would come to, stage by stage, with nothing stored.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::StepView;

/// What a submit would come to. Nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Preview")
)]
pub struct PreviewView {
    /// What becomes of it.
    pub outcome: PreviewOutcome,
    /// Every stage, in the order in which a submit goes through them.
    pub stages: Vec<StageView>,
    /// The step as it would be stored, under an id of its own; absent where the submit would be refused.
    pub step: Option<StepView>,
    /// Steps that would give way to it at once.
    pub preempts: Vec<String>,
}

/// What would become of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreviewOutcome {
    /// It starts at once.
    Starts,
    /// It waits.
    Waits,
    /// It is stored as rejected.
    Rejected,
    /// The call is refused, and nothing is stored.
    Refused,
}

/// A stage of a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreviewStage {
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

/// How a stage, or something in it, came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StageOutcome {
    /// It goes on.
    Passed,
    /// It ends here.
    Failed,
    /// It never came so far.
    NotReached,
}

/// A stage, and what was looked at. Of several pools it has passed where one lets the step through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Stage")
)]
pub struct StageView {
    /// Which.
    pub stage: PreviewStage,
    /// How it came out.
    pub outcome: StageOutcome,
    /// What was looked at, pool by pool, the most preferred first.
    pub checks: Vec<CheckView>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Check")
)]
pub struct CheckView {
    /// The pool that was asked; absent where there is none.
    pub pool: Option<String>,
    /// What it is about: a field, an assertion, a platform, a reason code.
    pub about: String,
    /// How it came out.
    pub outcome: StageOutcome,
    /// In words, with the numbers.
    pub message: String,
}
