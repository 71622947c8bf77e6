//! Applies the records of what a queued step waited for before the scheduler considers it.

use sluice_common::id::StepId;
use sluice_common::time::{Span, Time};

use super::{ApplyResult, Mismatch, State, need, step_mut};

impl State {
    /// Removes a dependency.
    pub(super) fn on_dependency_met(&mut self, at: Time, id: &StepId, on: &StepId) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, id)?;
        let waits = step.unmet.remove(on);
        need(waits, || Mismatch::NotAwaited(id.clone(), on.clone()))?;
        self.index.dependents.remove_one(id, on);
        self.enter_queue(at, id)
    }

    pub(super) fn on_begin_reached(&mut self, at: Time, id: &StepId) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, id)?;
        let waits = step.not_before.take();
        need(waits.is_some(), || Mismatch::NotPostponed(id.clone()))?;
        self.enter_queue(at, id)
    }

    /// Lets the scheduler consider a step if nothing else is in the way. The time in the queue begins then.
    fn enter_queue(&mut self, at: Time, id: &StepId) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, id)?;
        if step.is_ready() {
            step.queued_again_at = Some(at);
            step.not_waited = Span::ZERO;
        }
        if step.is_schedulable() {
            self.index.enqueue(step);
        }
        Ok(())
    }
}
