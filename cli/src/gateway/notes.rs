//! Problems that last: each is told once, and again if it comes back.

use std::collections::{BTreeMap, BTreeSet};

use crate::out::Out;

/// The problems that were told and last.
#[derive(Debug, Default)]
pub(super) struct GatewayNotes {
    told: BTreeMap<&'static str, BTreeSet<String>>,
}

impl GatewayNotes {
    /// Replaces the problems of a kind, and tells those that are new.
    pub(super) fn set(&mut self, kind: &'static str, problems: BTreeSet<String>, out: Out) {
        let told = self.told.entry(kind).or_default();
        problems
            .difference(told)
            .for_each(|problem| out.warning(problem));
        *told = problems;
    }

    /// Sets the only problem of a kind, or none; returns whether one is over.
    pub(super) fn set_one(
        &mut self,
        kind: &'static str,
        problem: Option<String>,
        out: Out,
    ) -> bool {
        let told = self.told.entry(kind).or_default();
        let Some(problem) = problem else {
            return !std::mem::take(told).is_empty();
        };
        // Its words may change while it lasts.
        if told.is_empty() {
            out.warning(&problem);
            told.insert(problem);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_lasts_until_it_is_over() {
        let mut notes = GatewayNotes::default();
        let out = Out::plain();
        assert!(!notes.set_one("a", None, out));
        assert!(!notes.set_one("a", Some("down".to_owned()), out));
        assert!(!notes.set_one("a", Some("still down".to_owned()), out));
        assert_eq!(notes.told["a"].first().unwrap(), "down");
        assert!(notes.set_one("a", None, out));
        notes.set("b", BTreeSet::from(["x".to_owned()]), out);
        notes.set("b", BTreeSet::new(), out);
        assert!(notes.told["b"].is_empty());
    }
}
