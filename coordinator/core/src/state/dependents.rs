//! The steps that wait for others, so that the end of a step goes through those alone that wait for it.

use alloc::collections::{BTreeMap, BTreeSet};

use sluice_common::array::{IndexSet, parts_in, split_part_id};
use sluice_common::id::StepId;

use super::Steps;
use crate::model::step::Step;

/// Waiting steps, by the step for which they wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dependents {
    waiting: BTreeMap<StepId, BTreeSet<StepId>>,
    /// The steps for which others wait and that have ended. None is left between two inputs.
    ended: BTreeSet<StepId>,
}

impl Dependents {
    /// Adds what a step waits for.
    pub(super) fn add(&mut self, step: &Step) {
        for on in &step.unmet {
            let waiting = self.waiting.entry(on.clone()).or_default();
            waiting.insert(step.id.clone());
        }
    }

    /// Removes a step as one that waits, and as one for which others wait.
    pub(super) fn remove(&mut self, step: &Step) {
        self.ended.remove(&step.id);
        for on in &step.unmet {
            self.remove_one(&step.id, on);
        }
    }

    /// Removes one dependency of a step.
    pub(super) fn remove_one(&mut self, step: &StepId, on: &StepId) {
        let Some(waiting) = self.waiting.get_mut(on) else {
            return;
        };
        waiting.remove(step);
        if waiting.is_empty() {
            self.waiting.remove(on);
            self.ended.remove(on);
        }
    }

    /// Notes the end of a step, if others wait for it.
    pub(super) fn note_end(&mut self, on: &StepId) {
        if self.waiting.contains_key(on) {
            self.ended.insert(on.clone());
        }
    }

    /// Notes the ends of parts of an array that are no steps of their own, if others wait for them.
    pub(super) fn note_part_ends(&mut self, array: &StepId, parts: &IndexSet) {
        let awaited = parts_in(&self.waiting, array);
        let ended = awaited.filter(|(_, index, _)| parts.contains(*index));
        self.ended.extend(ended.map(|(id, ..)| id.clone()));
    }

    /// The steps that wait for a step.
    pub(super) fn waiting_for(&self, on: &StepId) -> impl Iterator<Item = &StepId> {
        self.waiting.get(on).into_iter().flatten()
    }

    /// Notes the ends of all steps for which others wait.
    pub(super) fn note_ends(&mut self, steps: &Steps) {
        let has_ended = |id: &&StepId| {
            if let Some(step) = steps.get(id) {
                return step.state.is_terminal();
            }
            let part = split_part_id(id);
            let array = |array: &StepId| steps.get(array)?.array.as_ref();
            part.is_some_and(|(of, index)| {
                array(&of).is_some_and(|array| array.end_of(index).is_some())
            })
        };
        self.ended = self.waiting.keys().filter(has_ended).cloned().collect();
    }

    /// A step that waits for one that has ended, and the latter.
    pub(crate) fn first_to_resolve(&self) -> Option<(&StepId, &StepId)> {
        let on = self.ended.first()?;
        Some((self.waiting.get(on)?.first()?, on))
    }
}
