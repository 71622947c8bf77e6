//! Applies the move of a queued step to another pool.

use alloc::sync::Arc;

use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};

use super::{ApplyResult, Mismatch, State, need, step_mut};
use crate::record::StepMoved;

impl State {
    pub(super) fn on_step_moved(&mut self, at: Time, it: &StepMoved) -> ApplyResult {
        let seq = self.stored.seq;
        let step = step_mut(&mut self.stored.steps, &it.step)?;
        need(step.state == StepState::Queued, || {
            Mismatch::CannotMove(it.step.clone(), step.state)
        })?;
        self.index.dequeue(step);
        self.stored.nominations.remove(&it.step);
        let before = step.spec.weight();
        // The record has no values of variables, and a move changes none.
        let env = step.spec.env.clone();
        step.spec = it.spec.clone();
        Arc::make_mut(&mut step.spec).env = env;
        step.excluded_pools = it.excluded_pools.clone();
        step.route = it.route.clone();
        step.provenance = it.provenance.clone();
        step.moved_at = Some(seq);
        step.queued_again_at = Some(at);
        step.not_waited = Span::ZERO;
        self.index.update_weight(step, before);
        if step.is_schedulable() {
            self.index.enqueue(step);
        }
        Ok(())
    }
}
