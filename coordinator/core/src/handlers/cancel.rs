//! Cancels steps. A cancel is answered as soon as it is stored. An attempt that holds resources is told to stop and
//! ends when its host reports so. A second cancel can only shorten the grace of one that is stopping already.

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;
use sluice_reasons::Cause;

use crate::attempts::orders::stop_as;
use crate::context::Context;
use crate::input::ReplyId;
use crate::output::{Answer, Refusal};
use crate::record;
use crate::record::Record;

pub(crate) fn on_cancel(ctx: &mut Context, reply: ReplyId, id: StepId, grace: Option<Span>) {
    let answer = match ctx.state().step(&id) {
        None => Err(Refusal::UnknownStep { step: id }),
        Some(step) => {
            let state = step.state;
            cancel(ctx, &id, state, grace);
            Ok(id)
        }
    };
    ctx.reply(reply, Answer::Cancelled(answer));
}

fn cancel(ctx: &mut Context, id: &StepId, state: StepState, grace: Option<Span>) {
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

fn cancel_attempt(ctx: &mut Context, id: &StepId, grace: Option<Span>) {
    let Some(step) = ctx.state().step(id) else {
        return;
    };
    let Some(attempt) = step.live() else {
        return;
    };
    let why = match attempt.stopping {
        // The attempt is being stopped, and the reason is settled.
        Some(why @ (StopReason::Cancelled | StopReason::TimedOut)) => {
            let ends = attempt.grace_ends(step);
            let sooner = |grace| ends.is_none_or(|ends| ctx.now() + grace < ends);
            if !grace.is_some_and(sooner) {
                return;
            }
            why
        }
        Some(
            StopReason::Drained
            | StopReason::Preempted
            | StopReason::Superseded
            | StopReason::PeerEnded
            | StopReason::GpuLost
            | StopReason::Requeued
            | StopReason::NotSuspended
            | StopReason::SuspendedTooLong,
        )
        | None => StopReason::Cancelled,
    };
    let attempt = step.attempt_id(attempt.number);
    stop_as(
        ctx,
        record::Stopping {
            grace,
            ..record::Stopping::because(attempt, why)
        },
    );
}
