//! The arrays of the state: which of them have something to do next, and parts by their ids.

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::array::{IndexSet, PartCounts, part_id, split_part_id};
use sluice_common::dependency::Dependency;
use sluice_common::id::StepId;
use sluice_common::state::StepState;

use super::{State, StoredState};
use crate::model::array::Array;
use crate::model::step::Step;

/// Parts of an array that are in the queue for the first time. The scheduler looks at most at the first two requests of a
/// kind, so the rest of an array changes none of its decisions until one of these has started.
pub(crate) const PARTS_IN_QUEUE: usize = 2;

/// The next change of an array that follows from its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArrayAction {
    /// Parts end because their counterparts have not ended as required.
    EndUnmet(Dependency, IndexSet),
    /// A part enters the queue.
    Enter(u32),
    /// The array ends, because all its parts have.
    End,
}

/// The indexes of arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrayIndex {
    /// The parts of each array that the scheduler considers before they start.
    queued: BTreeMap<StepId, BTreeSet<u32>>,
    /// Arrays with a next change. None is left between two inputs.
    due: BTreeSet<StepId>,
}

impl ArrayIndex {
    /// An array with a next change.
    pub(crate) fn first_due(&self) -> Option<&StepId> {
        self.due.first()
    }

    /// The parts of an array that are in the queue.
    pub(crate) fn queued(&self, array: &StepId) -> impl Iterator<Item = u32> {
        self.queued.get(array).into_iter().flatten().copied()
    }

    fn set_queued(&mut self, array: &StepId, index: u32, is_queued: bool) {
        if is_queued {
            self.queued.entry(array.clone()).or_default().insert(index);
        } else if let Some(queued) = self.queued.get_mut(array) {
            queued.remove(&index);
            if queued.is_empty() {
                self.queued.remove(array);
            }
        }
    }
}

impl StoredState {
    /// The next change of an array, if more parts are let into the queue while fewer than [`PARTS_IN_QUEUE`] of
    /// `queued` are there.
    pub(super) fn next_array_action(&self, id: &StepId, queued: usize) -> Option<ArrayAction> {
        let step = self
            .steps
            .get(id)
            .filter(|step| !step.state.is_terminal())?;
        let array = step.array.as_ref()?;
        if array.waiting.is_empty() {
            return array.open.is_empty().then_some(ArrayAction::End);
        }
        let paired = self.pairs_of(step);
        let unmet = paired.iter().find_map(|(dependency, on)| {
            let failed = on.ended(dependency.end, false);
            array.waiting.first_common(&failed)?;
            Some(ArrayAction::EndUnmet(
                (*dependency).clone(),
                array.waiting.and(&failed),
            ))
        });
        if unmet.is_some() {
            return unmet;
        }
        let most = step.spec.array.as_ref()?.most_at_once();
        if !step.lets_parts_enter() || array.open.len() >= most || queued >= PARTS_IN_QUEUE {
            return None;
        }
        let next = match &paired[..] {
            [] => array.waiting.first(),
            [(dependency, on)] => array.waiting.first_common(&on.ended(dependency.end, true)),
            [(dependency, on), rest @ ..] => {
                let mut met = on.ended(dependency.end, true).into_owned();
                for (dependency, on) in rest {
                    met = met.and(&on.ended(dependency.end, true));
                }
                array.waiting.first_common(&met)
            }
        };
        next.map(ArrayAction::Enter)
    }

    /// The arrays with whose parts those of an array are paired and that have not ended.
    fn pairs_of<'a>(&'a self, step: &'a Step) -> Vec<(&'a Dependency, &'a Array)> {
        let paired = step.spec.after.iter();
        let paired = paired.filter(|it| it.each && step.unmet.contains(&it.step));
        let arrays =
            paired.filter_map(|it| Some((it, self.steps.get(&it.step)?.array.as_deref()?)));
        arrays.collect()
    }
}

impl State {
    /// The step with this id as it is now, whether it is a step of its own or a part of an array that has not entered
    /// the queue or is remembered by its array alone.
    pub fn find(&self, id: &StepId) -> Option<Cow<'_, Step>> {
        if let Some(step) = self.step(id) {
            return Some(Cow::Borrowed(step));
        }
        let (array, index) = self.array_of(id)?;
        array.part(index).map(Cow::Owned)
    }

    /// The array and the index that the id of a part names, if there is such an array. It need not have the index.
    pub fn array_of(&self, id: &StepId) -> Option<(&Step, u32)> {
        let (array, index) = split_part_id(id)?;
        let array = self.step(&array).filter(|step| step.array.is_some())?;
        Some((array, index))
    }

    /// The remembered steps that are parts of the array with this id, which may be unknown: a part can be adopted
    /// before its array is submitted again.
    pub(crate) fn parts_of(&self, array: &StepId) -> impl Iterator<Item = (u32, &Step)> {
        let steps = self.stored.steps.with_ids_of(array);
        steps.filter(|(_, step)| step.part_of.is_some())
    }

    /// The array and the index of a part that has not entered the queue.
    pub(crate) fn waiting_part(&self, id: &StepId) -> Option<(StepId, u32)> {
        let (step, index) = self.array_of(id)?;
        let waits = step.array.as_ref()?.waiting.contains(index);
        waits.then(|| (step.id.clone(), index))
    }

    /// The state of the step with this id, as [`State::find`] has it.
    pub(crate) fn state_of(&self, id: &StepId) -> Option<StepState> {
        if let Some(step) = self.step(id) {
            return Some(step.state);
        }
        let (step, index) = self.array_of(id)?;
        let array = step.array.as_ref()?;
        if array.waiting.contains(index) {
            return Some(StepState::Queued);
        }
        array.end_of(index).map(|end| end.state)
    }

    /// Number of parts of an array in each phase of their lives.
    pub fn part_counts(&self, step: &Step) -> Option<PartCounts> {
        let array = step.array.as_ref()?;
        let open = array.open.iter();
        let is_queued = |index: &u32| {
            let part = self.step(&part_id(&step.id, *index));
            part.is_none_or(|part| part.state == StepState::Queued)
        };
        let queued = open.filter(is_queued).count();
        Some(array.counts(queued as u64))
    }

    /// The next change of an array.
    pub(crate) fn next_array_action(&self, id: &StepId) -> Option<ArrayAction> {
        let queued = self.index.arrays.queued(id).count();
        self.stored.next_array_action(id, queued)
    }

    /// The next change of an array of which all parts in the queue have a firm nomination: they only wait for its
    /// release, so that the scheduler looks past them.
    pub(crate) fn next_past_nominated(&self, id: &StepId) -> Option<ArrayAction> {
        let queued = self.index.arrays.queued(id);
        let is_open = |index: &u32| {
            let nomination = self.scheduler().nomination(&part_id(id, *index));
            !nomination.is_some_and(|nomination| nomination.is_firm())
        };
        self.stored
            .next_array_action(id, queued.filter(is_open).count())
    }

    /// Updates the rows and the indexes of arrays after a record about a step.
    pub(super) fn follow_array(&mut self, id: &StepId) {
        self.stored.steps.renew_row(id);
        let Some(step) = self.stored.steps.get(id) else {
            self.index.arrays.due.remove(id);
            return;
        };
        let array = match &step.part_of {
            Some(part) => {
                let is_queued = step.is_schedulable();
                let arrays = &mut self.index.arrays;
                arrays.set_queued(&part.array, part.index, is_queued);
                part.array.clone()
            }
            None if step.array.is_some() => id.clone(),
            None => return,
        };
        self.stored.steps.renew_row(&array);
        self.judge_array(&array);
        let paired: Vec<StepId> = self.index.dependents.waiting_for(&array).cloned().collect();
        paired.iter().for_each(|paired| self.judge_array(paired));
    }

    /// Updates the indexes of arrays after steps were rolled back, some of which may be gone.
    pub(super) fn follow_arrays(&mut self, ids: &[StepId]) {
        for id in ids {
            if let Some((array, index)) = split_part_id(id)
                && !self.stored.steps.contains_key(id)
            {
                self.index.arrays.set_queued(&array, index, false);
            }
        }
        ids.iter().for_each(|id| self.follow_array(id));
    }

    /// Notes whether an array has a next change.
    fn judge_array(&mut self, id: &StepId) {
        match self.next_array_action(id) {
            Some(_) => self.index.arrays.due.insert(id.clone()),
            None => self.index.arrays.due.remove(id),
        };
    }
}

/// Builds the indexes of arrays from scratch.
pub(super) fn array_index_of(stored: &StoredState) -> ArrayIndex {
    let mut index = ArrayIndex::default();
    for step in stored.steps.values() {
        if let Some(part) = &step.part_of {
            index.set_queued(&part.array, part.index, step.is_schedulable());
        }
    }
    for step in stored.steps.values().filter(|step| step.array.is_some()) {
        let queued = index.queued(&step.id).count();
        if stored.next_array_action(&step.id, queued).is_some() {
            index.due.insert(step.id.clone());
        }
    }
    index
}
