//! Applies records of suspension.

use alloc::collections::BTreeSet;

use sluice_common::id::{AttemptId, StepId};
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};
use sluice_common::wire::SuspendFailure;
use sluice_reasons::Cause;

use crate::model::step::{Attempt, Suspension, SuspensionPhase};
use crate::record::{Suspended, Suspending};
use crate::state::State;

use super::attempt::{attempt_mut, attempt_of, running};
use super::{ApplyResult, Mismatch, need, step_mut};

impl State {
    pub(super) fn on_suspending(&mut self, at: Time, it: &Suspending) -> ApplyResult {
        let Suspending {
            attempt: id,
            by,
            room_mb,
        } = it;
        let room_mb = *room_mb;
        let reason = match by {
            Some(_) => Cause::Suspending,
            None => Cause::Held,
        };
        let preempted_by = by.clone();
        // An attempt that is being resumed may be preempted again before it runs.
        let from = [None, Some(SuspensionPhase::Resuming)];
        self.change_suspension(id, &from, |attempt| {
            attempt.preempted_by = preempted_by;
            attempt.was_frozen = true;
            attempt.lose_readiness();
            attempt.suspension = Some(Suspension {
                phase: SuspensionPhase::Suspending,
                since: at,
                moved_mb: room_mb,
            });
        })?;
        self.stand(id, StepState::Suspending, reason)
    }

    pub(super) fn on_suspended(&mut self, at: Time, it: &Suspended) -> ApplyResult {
        let Suspended {
            attempt: id,
            node: _,
            moved_mb,
        } = it;
        let moved_mb = *moved_mb;
        let from = [Some(SuspensionPhase::Suspending)];
        self.change_suspension(id, &from, |attempt| {
            attempt.backfill = BTreeSet::new();
            attempt.suspension = Some(Suspension {
                phase: SuspensionPhase::Suspended,
                since: at,
                moved_mb,
            });
        })?;
        for waiter in self.index.scheduler().awaiting(id) {
            if let Some(nomination) = self.stored.nominations.get_mut(waiter) {
                nomination.awaits.remove(id);
            }
        }
        self.index.scheduler_mut().stop_awaiting(id);
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        step.not_waited = Span::ZERO;
        let held = step.held;
        let reason = match attempt_of(step, id)?.preempted_by {
            Some(_) => Cause::Suspended,
            None => Cause::Held,
        };
        if !held {
            self.index.scheduler_mut().await_resumption(id);
        }
        self.stand(id, StepState::Suspended, reason)
    }

    pub(super) fn on_resuming(
        &mut self,
        at: Time,
        id: &AttemptId,
        backfill: &BTreeSet<StepId>,
    ) -> ApplyResult {
        self.stored.nominations.remove(&id.step);
        self.index.scheduler_mut().dequeue(&id.step);
        let backfill = backfill.clone();
        let from = [Some(SuspensionPhase::Suspended)];
        self.change_suspension(id, &from, |attempt| {
            attempt.backfill = backfill;
            attempt.suspension = Some(Suspension {
                phase: SuspensionPhase::Resuming,
                since: at,
                moved_mb: 0,
            });
        })?;
        self.stand(id, StepState::Resuming, Cause::Resuming)
    }

    pub(super) fn on_resumed(&mut self, id: &AttemptId) -> ApplyResult {
        let from = [Some(SuspensionPhase::Resuming)];
        self.change_suspension(id, &from, |attempt| attempt.suspension = None)?;
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        let reason = running(attempt_of(step, id)?);
        self.stand(id, StepState::Running, reason)
    }

    /// Notes the failure. The caller's next record stops the attempt.
    pub(super) fn on_not_suspended(&mut self, id: &AttemptId, why: &SuspendFailure) -> ApplyResult {
        let from = [
            Some(SuspensionPhase::Suspending),
            Some(SuspensionPhase::Resuming),
        ];
        self.change_suspension(id, &from, |attempt| {
            attempt.suspension = None;
            attempt.not_suspended = Some(why.clone());
        })?;
        let failure = why.clone();
        self.stand(id, StepState::Running, Cause::NotSuspended { failure })
    }

    pub(super) fn on_held(&mut self, id: &StepId) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, id)?;
        need(!step.held && !step.state.is_terminal(), || {
            Mismatch::CannotHold(id.clone(), step.state)
        })?;
        step.held = true;
        self.stored.nominations.remove(id);
        self.index.scheduler_mut().dequeue(id);
        Ok(())
    }

    pub(super) fn on_unheld(&mut self, at: Time, id: &StepId) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, id)?;
        need(step.held, || Mismatch::NotHeld(id.clone()))?;
        step.held = false;
        if step.state == StepState::Queued {
            step.queued_again_at = Some(at);
            step.not_waited = Span::ZERO;
        }
        if step.is_schedulable() {
            self.index.enqueue(step);
        }
        if step.state == StepState::Suspended
            && let Some(attempt) = step.attempts.last_mut()
            && let Some(suspension) = &mut attempt.suspension
        {
            // From now on the step waits for its place.
            suspension.since = at;
            let id = step.attempt_id(step.latest().map_or(0, |latest| latest.number));
            self.index.scheduler_mut().await_resumption(&id);
        }
        Ok(())
    }

    /// Changes the suspension of a running attempt, and counts again what it holds.
    fn change_suspension(
        &mut self,
        id: &AttemptId,
        from: &[Option<SuspensionPhase>],
        change: impl FnOnce(&mut Attempt),
    ) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        let attempt = attempt_mut(step, id)?;
        let phase = attempt.suspension();
        let runs = attempt.stopping.is_none() && !attempt.has_ended();
        need(runs && from.contains(&phase), || {
            Mismatch::Suspension(id.clone(), phase)
        })?;
        let before = attempt.clone();
        change(attempt);
        let after = attempt.clone();
        self.index.hold_changed(id, step, &before, &after);
        let nodes = after.parts.iter().map(|part| &part.node);
        self.place_nodes(nodes)
    }

    fn stand(&mut self, id: &AttemptId, state: StepState, reason: Cause) -> ApplyResult {
        let step = step_mut(&mut self.stored.steps, &id.step)?;
        step.state = state;
        step.reason = reason;
        Ok(())
    }
}
