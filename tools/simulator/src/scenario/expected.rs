//! What became of a scenario, what should have, and in what the two differ.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Case, List};

/// What must have become of it. What is absent is not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Requests that run.
    pub allocated: Option<BTreeSet<String>>,
    /// Requests that wait.
    pub queued: Option<BTreeSet<String>>,
    /// Requests that was preempted at least once.
    pub preempted: Option<BTreeSet<String>>,
    /// Requests that could never be granted.
    pub rejected: Option<BTreeSet<String>>,
    /// Requests that are frozen.
    pub suspended: Option<BTreeSet<String>>,
    /// Subjects whose policy was kept.
    pub policy_accepted: Option<BTreeSet<String>>,
    /// Subjects whose policy was refused.
    pub policy_refused: Option<BTreeSet<String>>,
    /// The host on which a request was started last.
    pub placed: Option<BTreeMap<String, String>>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct End {
    /// Requests that run.
    pub allocated: BTreeSet<String>,
    /// Requests that wait.
    pub queued: BTreeSet<String>,
    /// Requests that was preempted at least once, whatever became of them.
    pub preempted: BTreeSet<String>,
    /// Requests that could never be granted.
    pub rejected: BTreeSet<String>,
    /// Requests that are frozen.
    pub suspended: BTreeSet<String>,
    /// Requests that ended with their host.
    pub failed: BTreeSet<String>,
    /// Subjects whose policy was kept.
    pub policy_accepted: BTreeSet<String>,
    /// Subjects whose policy was refused.
    pub policy_refused: BTreeSet<String>,
    /// The hosts on which each request was started last.
    pub placed: BTreeMap<String, Vec<String>>,
    /// Why requests were rejected and policies refused.
    pub reasons: BTreeMap<String, String>,
}

/// One list that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub list: List,
    /// What should be in it.
    pub expected: Vec<String>,
    /// What is in it.
    pub got: Vec<String>,
}

impl Case {
    /// In what an end differs from the one that was expected: from the nearest of them, if there are several. Empty
    /// where nothing was expected.
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
