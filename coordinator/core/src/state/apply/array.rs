//! Applies the records of arrays, and what the records of a part change in its array.

use alloc::vec::Vec;
use core::mem::take;

use sluice_common::array::part_id;
use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::time::Time;
use sluice_reasons::Cause;

use super::{ApplyResult, Mismatch, RecordRef, State, need, step_mut};
use crate::model::array::ArrayPart;
use crate::model::step::Step;
use crate::record::{PartQueued, PartsEnded};
use crate::state::rollback::nodes_of;

impl State {
    pub(super) fn on_part_queued(&mut self, at: Time, it: &PartQueued) -> ApplyResult {
        let (array, index) = (&it.array, it.index);
        need(it.step == part_id(array, index), || {
            Mismatch::NotAPart(it.step.clone(), array.clone())
        })?;
        let mut part = self.enter_part(&it.step, array, index)?;
        part.queued_again_at = Some(at);
        if part.is_schedulable() {
            self.index.enqueue(&part);
        }
        self.stored.steps.insert(part);
        Ok(())
    }

    /// Makes a part that waits a step of its own.
    pub(super) fn enter_part(
        &mut self,
        id: &StepId,
        array: &StepId,
        index: u32,
    ) -> Result<Step, Mismatch> {
        need(!self.stored.steps.contains_key(id), || {
            Mismatch::There(RecordRef::Step(id.clone()))
        })?;
        let step = step_mut(&mut self.stored.steps, array)?;
        let entered = step.array.as_mut().filter(|_| !step.state.is_terminal());
        let entered = entered
            .is_some_and(|progress| progress.waiting.remove(index) && progress.open.insert(index));
        need(entered, || Mismatch::NotAPart(id.clone(), array.clone()))?;
        let part = step.new_part(index, &step.spec);
        self.index.note_submitted(&part);
        Ok(part)
    }

    /// Makes the parts that were adopted before their array was known parts of it, at its place of the queue.
    pub(super) fn take_up_parts(&mut self, step: &mut Step) -> ApplyResult {
        let Some(array) = &mut step.array else {
            return Ok(());
        };
        let adopted: Vec<u32> = self.parts_of(&step.id).map(|(index, _)| index).collect();
        for index in adopted {
            if array.waiting.remove(index) {
                let part = self.put_at_place(&part_id(&step.id, index), step.place)?;
                match part.finished {
                    Some(end) => array.note_ends(&index.into(), part.state, &part.reason, end.at),
                    None => drop(array.open.insert(index)),
                }
                step.state = StepState::Running;
            }
        }
        Ok(())
    }

    /// Moves a step to another place in every queue.
    fn put_at_place(&mut self, id: &StepId, place: u64) -> Result<&Step, Mismatch> {
        let unknown = || RecordRef::Step(id.clone()).into();
        let mut step = self.stored.steps.remove(id).ok_or_else(unknown)?;
        self.stored.nominations.remove(id);
        self.index.remove_step(&step);
        step.place = place;
        self.index.add_step(&step);
        for node in nodes_of(core::iter::once(&step)) {
            if let Some(node) = self.stored.nodes.get(&node) {
                self.index.place_node(node);
            }
        }
        self.stored.steps.insert(step);
        self.stored.steps.get(id).ok_or_else(unknown)
    }

    pub(super) fn on_parts_ended(&mut self, at: Time, it: &PartsEnded) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &it.step)?;
        let known = step.array.as_mut().filter(|_| !step.state.is_terminal());
        let known = known.filter(|array| it.parts.is_subset(&array.waiting));
        let ended = known.map(|array| {
            array.waiting.remove_all(&it.parts);
            array.note_ends(&it.parts, it.state, &it.reason, at);
        });
        need(ended.is_some() && it.state.is_terminal(), || {
            Mismatch::NotAPart(it.step.clone(), it.step.clone())
        })?;
        self.index.dependents.note_part_ends(&it.step, &it.parts);
        Ok(())
    }

    /// Ends the waiting parts of an array that ends itself.
    pub(super) fn end_waiting_parts(
        &mut self,
        at: Time,
        id: &StepId,
        (state, reason): (StepState, &Cause),
    ) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, id)?;
        let Some(array) = &mut step.array else {
            return Ok(());
        };
        need(array.open.is_empty(), || {
            Mismatch::CannotEnd(id.clone(), step.state, state)
        })?;
        let rest = take(&mut array.waiting);
        if !rest.is_empty() {
            array.note_ends(&rest, state, reason, at);
            self.index.dependents.note_part_ends(id, &rest);
        }
        Ok(())
    }

    /// Notes in its array how a part has ended.
    pub(super) fn note_part_end(
        &mut self,
        at: Time,
        part: &ArrayPart,
        (state, reason): (StepState, &Cause),
    ) {
        // The array of an adopted part may be unknown.
        let array = self.stored.steps.get_mut(&part.array);
        if let Some(array) = array.and_then(|step| step.array.as_mut())
            && array.open.remove(part.index)
        {
            array.note_ends(&part.index.into(), state, reason, at);
        }
    }

    /// Notes that a part was granted resources: its array runs from then on.
    pub(super) fn begin_array(&mut self, part: &ArrayPart) {
        let array = self.stored.steps.get_mut(&part.array);
        if let Some(array) = array.filter(|array| array.state == StepState::Queued) {
            array.state = StepState::Running;
            self.index
                .count(Some(StepState::Queued), Some(StepState::Running));
        }
    }
}
