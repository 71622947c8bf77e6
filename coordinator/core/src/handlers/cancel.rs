//! Cancels steps. A cancel is answered as soon as it is stored. An attempt that holds resources is told to stop and
//! ends when its host reports so. A second cancel can only shorten the grace of one that is stopping already.

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;
use sluice_reasons::Cause;

use crate::arrays::{cancel_part, cancel_waiting, unknown_step};
use crate::attempts::hostless::follow_hostless;
use crate::attempts::orders::stop_as;
use crate::context::Context;
use crate::input::ReplyId;
use crate::output::Answer;
use crate::record;
use crate::record::Record;

pub(crate) fn on_cancel(ctx: &mut Context, reply: ReplyId, id: StepId, grace: Option<Span>) {
    let answer = match ctx.state().state_of(&id) {
        None => Err(unknown_step(ctx, &id)),
        Some(state) => {
            cancel(ctx, &id, state, grace);
            Ok(id)
        }
    };
    ctx.reply(reply, Answer::Cancelled(answer));
}

/// Cancels a step that has not ended, with its own grace.
pub(crate) fn cancel_step(ctx: &mut Context, id: &StepId) {
    if let Some(state) = ctx.state().state_of(id) {
        cancel(ctx, id, state, None);
    }
}

fn cancel(ctx: &mut Context, id: &StepId, state: StepState, grace: Option<Span>) {
    let is_array = ctx.state().step(id).is_some_and(|it| it.array.is_some());
    if is_array {
        return cancel_array(ctx, id, grace);
    }
    if cancel_part(ctx, id) {
        return;
    }
    match state {
        StepState::Queued => ctx.record(Record::StepEnded(record::StepEnded {
            step: id.clone(),
            state: StepState::Cancelled,
            reason: Cause::Cancelled,
        })),
        StepState::Allocated
        | StepState::Starting
        | StepState::Running
        | StepState::Suspending
        | StepState::Suspended
        | StepState::Resuming
        | StepState::Stopping => cancel_attempt(ctx, id, grace),
        StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled
        | StepState::Rejected
        | StepState::Preempted => {}
    }
}

/// Cancels all parts of an array, which ends with the last of them.
fn cancel_array(ctx: &mut Context, id: &StepId, grace: Option<Span>) {
    for part in cancel_waiting(ctx, id) {
        if let Some(state) = ctx.state().step(&part).map(|part| part.state) {
            cancel(ctx, &part, state, grace);
        }
    }
}

fn cancel_attempt(ctx: &mut Context, id: &StepId, grace: Option<Span>) {
    let Some(step) = ctx.state().step(id) else {
        return;
    };
    let Some(attempt) = step.live() else {
        return;
    };
    // The attempt is being stopped, and the reason is settled. An allocation that is taken back is over in any case.
    let is_settled = |why: &StopReason| {
        use StopReason::{Cancelled, Drained, NotRenewed, Preempted, TimedOut};
        let takes_back = matches!(why, Preempted | Drained);
        matches!(why, Cancelled | TimedOut | NotRenewed) || takes_back && step.lease.is_some()
    };
    let why = match attempt.stopping.filter(is_settled) {
        Some(why) => {
            let ends = attempt.grace_ends(step);
            let sooner = |grace| ends.is_none_or(|ends| ctx.now() + grace < ends);
            if !grace.is_some_and(sooner) {
                // If its time is over, it ends before its timer says so.
                return follow_hostless(ctx, id);
            }
            why
        }
        None => StopReason::Cancelled,
    };
    // An allocation that was being taken back is, only sooner.
    let by = attempt
        .preempted_by
        .clone()
        .filter(|_| why == StopReason::Preempted);
    let attempt = step.attempt_id(attempt.number);
    stop_as(
        ctx,
        record::Stopping {
            by,
            grace,
            ..record::Stopping::because(attempt, why)
        },
    );
    follow_hostless(ctx, id);
}
