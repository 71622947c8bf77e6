//! Parts of steps that are kept once for steps which were submitted alike.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};

use sluice_common::request::ResourceSettings;
use sluice_common::shared::{Shared, SharedDefault};
use sluice_common::step::StepSpec;

use crate::model::cluster::Route;
use crate::model::step::Step;
use crate::model::template::Provenance;

/// Number of different values that are compared with those of the next step.
const REMEMBERED: usize = 8;

/// Parts of the latest steps. Only memory depends on them, so that any two are equal.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedParts {
    specs: Known<StepSpec>,
    resources: Known<ResourceSettings>,
    routes: Known<Route>,
    provenances: Known<Provenance>,
}

impl SharedParts {
    /// Replaces the parts of a step by equal ones of steps before it.
    pub(super) fn share(&mut self, step: &mut Step) {
        if let Some(known) = self.specs.known(&step.spec) {
            step.spec = known;
        } else if let Some(known) = self.resources.shared(&step.spec.resources) {
            Arc::make_mut(&mut step.spec).resources = known;
        }
        if let Some(known) = self.routes.shared(&step.route) {
            step.route = known;
        }
        if let Some(known) = self.provenances.shared(&step.provenance) {
            step.provenance = known;
        }
    }
}

impl PartialEq for SharedParts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SharedParts {}

/// The latest different values of one part, oldest first. They are gone with the last step that has them: a spec holds the
/// values of variables.
#[derive(Clone, Debug)]
struct Known<T>(VecDeque<Weak<T>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: PartialEq> Known<T> {
    /// The same value as it is in another step; remembers it if there is none.
    fn known(&mut self, value: &Arc<T>) -> Option<Arc<T>> {
        self.0.retain(|known| known.strong_count() > 0);
        let mut known = self.0.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|known| known == value) {
            return Some(known);
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(Arc::downgrade(value));
        None
    }
}

impl<T: SharedDefault> Known<T> {
    /// Does the same with a value that may be the default, of which there is nothing to share.
    fn shared(&mut self, value: &Shared<T>) -> Option<Shared<T>> {
        self.known(value.as_arc()?).map(Shared::from)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_value_is_shared_as_long_as_a_step_has_it_and_gone_after() {
        let mut known = Known::default();
        let first = Arc::new("a");
        assert_eq!(known.known(&first), None);
        let shared = known.known(&Arc::new("a"));
        assert!(shared.is_some_and(|it| Arc::ptr_eq(&it, &first)));
        let gone = Arc::downgrade(&first);
        drop(first);
        assert_eq!(gone.upgrade(), None);
        let again = Arc::new("a");
        assert_eq!(known.known(&again), None);

        let others: Vec<Arc<&str>> = ["b", "c", "d", "e", "f", "g", "h", "i"]
            .map(Arc::new)
            .into();
        assert!(others.iter().all(|other| known.known(other).is_none()));
        assert_eq!(known.known(&again), None, "only the latest are compared");
    }
}
