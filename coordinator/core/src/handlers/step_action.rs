//! Suspends, resumes, requeues and deletes steps on request.

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::wire::StopReason;

use crate::arrays::{forget_with_parts, open_parts, unknown_step};
use crate::attempts::orders::stop_attempt;
use crate::attempts::queue_timeout::await_units;
use crate::attempts::suspension::{await_overdue, latest_id, suspend_attempt};
use crate::context::Context;
use crate::input::{ReplyId, StepAction};
use crate::model::step::Step;
use crate::output::{Answer, Refusal};
use crate::record::{self, Record};
use crate::terms::uses::never_starts;

pub(crate) fn on_step_action(ctx: &mut Context, reply: ReplyId, id: StepId, action: StepAction) {
    let done = check_steer(ctx, &id, action).map(|()| match action {
        StepAction::Suspend => on_each(ctx, &id, hold_step),
        StepAction::Resume => on_each(ctx, &id, unhold_step),
        StepAction::Requeue => on_each(ctx, &id, restart_step),
        // Its id stays taken: a host may still report an attempt of it, and a submit that is repeated must not run it again.
        StepAction::Delete => forget_with_parts(ctx, &id, true),
    });
    ctx.reply(reply, Answer::Steered(done.map(|()| id)));
}

pub(crate) fn check_steer(ctx: &Context, id: &StepId, action: StepAction) -> Result<(), Refusal> {
    let step = id.clone();
    let Some(known) = ctx.state().find(id) else {
        return Err(unknown_step(ctx, id));
    };
    if action == StepAction::Delete {
        return check_delete(ctx, &known);
    }
    let is_outside = ctx.state().step(id).is_none() && !known.state.is_terminal();
    if let Some(part) = known.part_of.as_ref().filter(|_| is_outside)
        && action == StepAction::Suspend
    {
        let array = part.array.clone();
        return Err(Refusal::PartNotQueued { step, array });
    }
    if known.state.is_terminal() {
        let state = known.state;
        let ended = None;
        return Err(Refusal::StepOver { step, state, ended });
    }
    let takes_up = match action {
        StepAction::Suspend | StepAction::Requeue => true,
        StepAction::Resume | StepAction::Delete => false,
    };
    if takes_up && known.spec.lease.is_some() {
        return Err(Refusal::IsAllocation { step });
    }
    if let Some(allocation) = known
        .spec
        .inside
        .clone()
        .filter(|_| action == StepAction::Suspend)
    {
        return Err(Refusal::IsInside { step, allocation });
    }
    let hosts = known.spec.nodes;
    let runs = known.live().is_some() || known.array.is_some();
    if action == StepAction::Suspend && hosts > 1 && runs {
        return Err(Refusal::CannotSuspend { step, hosts });
    }
    Ok(())
}

/// Checks that a step is not a part, has ended and holds nothing, and so have its parts.
fn check_delete(ctx: &Context, known: &Step) -> Result<(), Refusal> {
    let (step, state) = (known.id.clone(), known.state);
    let array = known.part_of.as_ref().map(|part| part.array.clone());
    if let Some(array) = array.filter(|array| ctx.state().step(array).is_some()) {
        return Err(Refusal::CannotDeletePart { step, array });
    }
    let mut parts = ctx.state().parts_of(&known.id);
    if !state.is_terminal() || known.holds_units() || parts.any(|(_, part)| part.holds_units()) {
        return Err(Refusal::CannotDelete { step, state });
    }
    Ok(())
}

/// Acts on a step, and on the parts of an array that are steps of their own.
fn on_each(ctx: &mut Context, id: &StepId, act: fn(&mut Context, &StepId)) {
    act(ctx, id);
    for part in open_parts(ctx, id) {
        act(ctx, &part);
    }
}

/// Suspends a step: running attempts are frozen, and a queued step is not considered.
pub(crate) fn hold_step(ctx: &mut Context, id: &StepId) {
    let Some(step) = ctx.state().step(id).filter(|step| !step.held) else {
        return;
    };
    let (state, attempt) = (step.state, latest_id(step));
    ctx.record(Record::Held { step: id.clone() });
    let Some(attempt) = attempt else { return };
    match state {
        StepState::Running => suspend_attempt(ctx, &attempt, None),
        // Starting it later loses nothing.
        StepState::Allocated | StepState::Starting => {
            stop_attempt(ctx, &attempt, StopReason::Requeued);
        }
        // The attempt is frozen after the resume.
        StepState::Resuming
        | StepState::Queued
        | StepState::Suspending
        | StepState::Suspended
        | StepState::Stopping
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled
        | StepState::Rejected
        | StepState::Preempted => {}
    }
}

/// Lets a step that was in no queue wait for resources, or rejects it if it can never start any more, because terms may
/// have changed meanwhile.
pub(crate) fn enter_queue(ctx: &mut Context, id: &StepId) {
    if let Some(reason) = never_starts(ctx, id, &[]) {
        ctx.record(Record::StepEnded(record::StepEnded {
            step: id.clone(),
            state: StepState::Rejected,
            reason,
        }));
    }
    await_units(ctx, id);
}

/// Resumes a held step; other steps go on already.
pub(crate) fn unhold_step(ctx: &mut Context, id: &StepId) {
    let held = ctx.state().step(id).filter(|step| step.held);
    let Some(attempt) = held.map(latest_id) else {
        return;
    };
    ctx.record(Record::Unheld { step: id.clone() });
    if ctx
        .state()
        .step(id)
        .is_some_and(|step| step.array.is_none())
    {
        enter_queue(ctx, id);
    }
    if let Some(attempt) = attempt {
        await_overdue(ctx, &attempt);
    }
}

/// Stops a running step and queues it again in its old place.
pub(crate) fn restart_step(ctx: &mut Context, id: &StepId) {
    unhold_step(ctx, id);
    let Some(step) = ctx.state().step(id) else {
        return;
    };
    let stays = step.live().is_some_and(|live| live.stopping.is_none());
    if let Some(attempt) = latest_id(step).filter(|_| stays) {
        stop_attempt(ctx, &attempt, StopReason::Requeued);
    }
}
