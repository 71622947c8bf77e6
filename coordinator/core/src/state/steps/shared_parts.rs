//! Parts of steps that are kept once for steps which were submitted alike.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use sluice_common::request::ResourceSettings;
use sluice_common::shared::Shared;
use sluice_common::step::StepSpec;

use crate::model::cluster::Route;
use crate::model::step::Step;
use crate::model::template::Provenance;

/// Number of different values that are compared with those of the next step.
const REMEMBERED: usize = 8;

/// Parts of the latest steps. Only memory depends on them, so that any two are equal.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedParts {
    specs: Known<Arc<StepSpec>>,
    resources: Known<Shared<ResourceSettings>>,
    routes: Known<Shared<Route>>,
    provenances: Known<Shared<Provenance>>,
}

impl SharedParts {
    /// Replaces the parts of a step by equal ones of steps before it.
    pub(super) fn share(&mut self, step: &mut Step) {
        if let Some(known) = self.specs.known(&step.spec) {
            step.spec = known;
        } else if let Some(known) = self.resources.known(&step.spec.resources) {
            Arc::make_mut(&mut step.spec).resources = known;
        }
        if let Some(known) = self.routes.known(&step.route) {
            step.route = known;
        }
        if let Some(known) = self.provenances.known(&step.provenance) {
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

/// The latest different values of one part, oldest first.
#[derive(Clone, Debug)]
struct Known<P>(VecDeque<P>);

impl<P> Default for Known<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<P: Clone + PartialEq> Known<P> {
    /// The same value as it was in a step before; remembers it if there is none.
    fn known(&mut self, value: &P) -> Option<P> {
        if let Some(known) = self.0.iter().find(|known| *known == value) {
            return Some(known.clone());
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(value.clone());
        None
    }
}
