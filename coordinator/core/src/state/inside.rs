//! The steps inside each allocation that are not over, or still hold a part of it.

use alloc::collections::{BTreeMap, BTreeSet};

use sluice_common::id::StepId;

use crate::model::step::Step;

/// The open steps inside each allocation, by their order of submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocationIndex(BTreeMap<StepId, BTreeSet<(u64, StepId)>>);

impl AllocationIndex {
    /// Adds a step that runs inside an allocation, or removes it if it is over and holds nothing.
    pub(super) fn follow(&mut self, step: &Step) {
        let Some(allocation) = &step.spec.inside else {
            return;
        };
        if step.state.is_terminal() && !step.holds_units() {
            return self.remove(step);
        }
        let open = self.0.entry(allocation.clone()).or_default();
        open.insert((step.order(), step.id.clone()));
    }

    pub(super) fn remove(&mut self, step: &Step) {
        let allocation = step.spec.inside.as_ref();
        let Some((allocation, open)) = allocation.and_then(|it| Some((it, self.0.get_mut(it)?)))
        else {
            return;
        };
        open.remove(&(step.order(), step.id.clone()));
        if open.is_empty() {
            self.0.remove(allocation);
        }
    }

    /// The allocations inside which something is open.
    pub(crate) fn allocations(&self) -> impl Iterator<Item = &StepId> {
        self.0.keys()
    }

    pub(crate) fn has_any(&self, allocation: &StepId) -> bool {
        self.0.contains_key(allocation)
    }

    pub(super) fn of<'a>(
        &'a self,
        allocation: &StepId,
    ) -> impl Iterator<Item = &'a StepId> + use<'a> {
        let open = self.0.get(allocation).into_iter().flatten();
        open.map(|(_, id)| id)
    }
}
