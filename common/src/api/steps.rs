//! Filters of steps.

use alloc::string::String;
use serde::{Deserialize, Serialize};

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
        ];
        let set = fields.into_iter();
        set.filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}
