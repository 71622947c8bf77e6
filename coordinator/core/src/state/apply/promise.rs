//! How a state changes by promises of places.

use alloc::format;

use sluice_common::id::StepId;
use sluice_common::state::StepState;

use super::{Fit, need, step_mut};
use crate::market::Nomination;
use crate::state::State;

impl State {
    pub(super) fn on_nominated(&mut self, step: &StepId, nomination: &Nomination) -> Fit {
        let state = step_mut(&mut self.kept.steps, step)?.state;
        need(state == StepState::Queued, || {
            format!("step `{step}` is {state} and is promised a place")
        })?;
        if !nomination.is_firm() {
            // A pool keeps one soft promise.
            let pool = self.index.market().pool(&nomination.pool);
            if let Some(replaced) = pool.and_then(|pool| pool.soft.as_ref()) {
                self.kept.nominations.remove(replaced);
            }
        }
        self.kept
            .nominations
            .insert(step.clone(), nomination.clone());
        self.index.nominate(step, nomination);
        Ok(())
    }

    pub(super) fn on_withdrawn(&mut self, step: &StepId) -> Fit {
        let known = self.kept.nominations.remove(step).is_some();
        need(known, || format!("step `{step}` is promised nothing"))?;
        self.index.market_mut().withdraw(step);
        Ok(())
    }
}
