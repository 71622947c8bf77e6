//! The end of a scenario, the expected end, and the differences.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Case, List};

/// The expected end of a scenario. Absent lists are not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Requests that run.
    pub allocated: Option<BTreeSet<String>>,
    /// Requests that are queued.
    pub queued: Option<BTreeSet<String>>,
    /// Requests that were preempted at least once.
    pub preempted: Option<BTreeSet<String>>,
    /// Requests that could never be granted.
    pub rejected: Option<BTreeSet<String>>,
    /// Requests that are frozen.
    pub suspended: Option<BTreeSet<String>>,
    /// Subjects whose policy was accepted.
    pub policy_accepted: Option<BTreeSet<String>>,
    /// Subjects whose policy was refused.
    pub policy_refused: Option<BTreeSet<String>>,
    /// The host on which a request was started last.
    pub placed: Option<BTreeMap<String, String>>,
}

/// The end of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct End {
    /// Requests that run.
    pub allocated: BTreeSet<String>,
    /// Requests that are queued.
    pub queued: BTreeSet<String>,
    /// Requests that were preempted at least once, whatever happened to them later.
    pub preempted: BTreeSet<String>,
    /// Requests that could never be granted.
    pub rejected: BTreeSet<String>,
    /// Requests that are frozen.
    pub suspended: BTreeSet<String>,
    /// Requests that ended with their host.
    pub failed: BTreeSet<String>,
    /// Subjects whose policy was accepted.
    pub policy_accepted: BTreeSet<String>,
    /// Subjects whose policy was refused.
    pub policy_refused: BTreeSet<String>,
    /// The hosts on which each request was started last.
    pub placed: BTreeMap<String, Vec<String>>,
    /// Reasons of rejected requests and refused policies.
    pub reasons: BTreeMap<String, String>,
}

/// One list that differs from the expected one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub list: List,
    pub expected: Vec<String>,
    pub got: Vec<String>,
}

impl Case {
    /// The differences from the expected end, or from the nearest of several. Empty if nothing was expected.
    pub fn differences(&self, end: &End) -> Vec<Difference> {
        let options = self.expected.iter().chain(&self.expected_any_of);
        let differences = options.map(|expected| expected.differences(end));
        differences.min_by_key(Vec::len).unwrap_or_default()
    }
}

impl Expected {
    fn differences(&self, end: &End) -> Vec<Difference> {
        let sets = [
            (List::Allocated, &self.allocated, &end.allocated),
            (List::Queued, &self.queued, &end.queued),
            (List::Preempted, &self.preempted, &end.preempted),
            (List::Rejected, &self.rejected, &end.rejected),
            (List::Suspended, &self.suspended, &end.suspended),
            (
                List::PolicyAccepted,
                &self.policy_accepted,
                &end.policy_accepted,
            ),
            (
                List::PolicyRefused,
                &self.policy_refused,
                &end.policy_refused,
            ),
        ];
        let sets = sets.into_iter().filter_map(|(list, expected, got)| {
            let expected = expected.as_ref().filter(|expected| *expected != got)?;
            Some(Difference {
                list,
                expected: expected.iter().cloned().collect(),
                got: got.iter().cloned().collect(),
            })
        });
        sets.chain(self.misplaced(end)).collect()
    }

    fn misplaced(&self, end: &End) -> Option<Difference> {
        let wanted = self.placed.iter().flatten();
        let wrong = wanted.filter_map(|(request, node)| {
            let got = end.placed.get(request).map(|nodes| nodes.join("+"));
            (got.as_ref() != Some(node)).then(|| {
                let got = got.unwrap_or_else(|| "nowhere".to_owned());
                (
                    format!("{request} on {node}"),
                    format!("{request} on {got}"),
                )
            })
        });
        let (expected, got): (Vec<String>, Vec<String>) = wrong.unzip();
        (!expected.is_empty()).then_some(Difference {
            list: List::Placed,
            expected,
            got,
        })
    }
}

pub(super) fn names<'a, T: ToString + 'a>(things: impl Iterator<Item = &'a T>) -> BTreeSet<String> {
    things.map(ToString::to_string).collect()
}
