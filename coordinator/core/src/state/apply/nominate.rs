//! Applies records of nominations.

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_scheduler::Nomination;

use crate::state::State;

use super::{ApplyResult, Mismatch, need, step_mut};

impl State {
    pub(super) fn on_nominated(&mut self, step: &StepId, nomination: &Nomination) -> ApplyResult {
        let promised = step_mut(&mut self.stored.steps, step)?;
        let (state, held) = (promised.state, promised.held);
        // A frozen step waits for its own host as others wait for any.
        let waits = state == StepState::Queued || state == StepState::Suspended;
        need(waits && !held, || {
            Mismatch::CannotPromise(step.clone(), state)
        })?;
        if !nomination.is_firm() {
            // A pool has one soft nomination.
            let pool = self.index.scheduler().pool(&nomination.pool);
            if let Some(replaced) = pool.and_then(|pool| pool.soft_nomination()) {
                self.stored.nominations.remove(replaced);
            }
        }
        self.stored
            .nominations
            .insert(step.clone(), nomination.clone());
        self.index.nominate(step, nomination);
        Ok(())
    }

    pub(super) fn on_withdrawn(&mut self, step: &StepId) -> ApplyResult {
        let known = self.stored.nominations.remove(step).is_some();
        need(known, || Mismatch::NotPromised(step.clone()))?;
        self.index.scheduler_mut().withdraw(step);
        Ok(())
    }
}
