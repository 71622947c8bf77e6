//! Calls on one step or many at once: which steps, and what came of them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use super::{ErrorView, StepView};
use crate::array::{ArraySpec, PartCounts};
use crate::inputs::InputHash;
use crate::state::StepState;

/// An uploaded file that steps may name as an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Input")
)]
pub struct InputView {
    /// SHA-256 of its contents.
    pub sha256: InputHash,
    /// Size in bytes.
    pub size: u64,
}

/// Answer to a move of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "MovedStep")
)]
pub struct MovedStepView {
    /// Whether the step waited in another pool before; `false` if it waits in this one already.
    pub moved: bool,
    /// The step in its present state.
    pub step: StepView,
}

/// Filters of steps: the query parameters of the list, and the fields of a call on many steps. A step is selected if
/// it matches all that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct StepFilter {
    /// Ids, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Names or ids, separated by commas; `*` stands for any text and `?` for any character.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// States, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The subject of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The user who submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// The pool in which it runs or is queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The node on which it runs, or ran last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The kind of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    /// A selector over its labels: `key=value`, `key!=value`, `key in (a, b)`, `key notin (a, b)`, `key` or `!key`,
    /// with `,` between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// Only steps that had not ended at this time: an RFC 3339 time, or a duration before now such as `2h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Only steps that were submitted by this time, written as `since`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The array whose parts are meant, also those that have not entered the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// `true` for the parts of arrays too, as far as they are queued, run or are remembered as steps. Without it, parts are
    /// only selected by `array`, `id`, `node`, or a `name` that selects them and not their array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<String>,
}

impl StepFilter {
    /// The set filters, by name.
    pub fn set(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let fields = [
            ("id", &self.id),
            ("name", &self.name),
            ("state", &self.state),
            ("subject", &self.subject),
            ("submitted_by", &self.submitted_by),
            ("pool", &self.pool),
            ("node", &self.node),
            ("work", &self.work),
            ("labels", &self.labels),
            ("since", &self.since),
            ("until", &self.until),
            ("array", &self.array),
            ("parts", &self.parts),
        ];
        let set = fields.into_iter();
        set.filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

/// An array in responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Array")
)]
pub struct ArrayView {
    /// Indexes of the parts, and after `%` the most that are at work at once.
    pub indexes: ArraySpec,
    /// Number of parts by phase.
    pub parts: PartCounts,
    /// Indexes of the parts that failed; the first ones if there are many ranges of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failed: String,
}

/// A property by which lists of steps are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOrderKey {
    /// Order of submission.
    Submitted,
    /// Start of the last attempt.
    Started,
    /// Time of the end.
    Ended,
    /// Name of the step.
    Name,
    /// State, from queued to ended.
    State,
    /// Name of the subject.
    Subject,
    /// Name of the pool.
    Pool,
    /// Priority, the lowest first.
    Priority,
}

impl StepOrderKey {
    /// All properties, in display order.
    pub const ALL: [StepOrderKey; 8] = [
        StepOrderKey::Submitted,
        StepOrderKey::Started,
        StepOrderKey::Ended,
        StepOrderKey::Name,
        StepOrderKey::State,
        StepOrderKey::Subject,
        StepOrderKey::Pool,
        StepOrderKey::Priority,
    ];

    /// The word as the API takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            StepOrderKey::Submitted => "submitted",
            StepOrderKey::Started => "started",
            StepOrderKey::Ended => "ended",
            StepOrderKey::Name => "name",
            StepOrderKey::State => "state",
            StepOrderKey::Subject => "subject",
            StepOrderKey::Pool => "pool",
            StepOrderKey::Priority => "priority",
        }
    }
}

/// Formats the set filters as `name=value`, with spaces between them.
impl fmt::Display for StepFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.set().enumerate() {
            let gap = if place == 0 { "" } else { " " };
            write!(f, "{gap}{name}={value}")?;
        }
        Ok(())
    }
}

/// Request body of `/v1/steps:cancel`, `:suspend`, `:resume` and `:requeue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct StepsActionRequest {
    /// Filters of the steps to act on.
    pub filter: StepFilter,
    /// Must be `true` if no filter is set: the call is for every step.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub all: bool,
    /// The `next_cursor` of an answer that stopped before the end. It is opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Response to a call on many steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "StepsActionResult")
)]
pub struct StepsActionView {
    /// Number of steps that the filters select and that the action changes, or would change in a dry run.
    pub matched: u64,
    /// Number of those for which it failed; `steps` has the reasons.
    pub failed: u64,
    /// The first 1,000 of the steps in the order of submission, and up to 1,000 more that failed, with their state after
    /// the action. In a dry run it is their present state.
    pub steps: Vec<StepOutcomeView>,
    /// Present if the call stopped before the end, after some seconds. Pass it as `cursor` of the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One step of a call on many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "StepOutcome")
)]
pub struct StepOutcomeView {
    /// Id of the step.
    pub id: String,
    /// Name of the step.
    pub name: String,
    /// State of the step.
    pub state: StepState,
    /// Whether a caller suspended it, so that it waits for a `:resume`.
    pub held: bool,
    /// Reason why the action failed for this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}
