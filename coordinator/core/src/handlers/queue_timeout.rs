//! Handles the timer of a queued step.

use sluice_common::id::StepId;
use sluice_reasons::Cause;

use crate::attempts::queue_timeout::{QueueEvent, await_units, end_in_queue, next_queue_event};
use crate::context::Context;
use crate::handlers::step_action::enter_queue;
use crate::record::Record;

/// Makes the change that has come with time, if one has. The step may be running by now, or have been queued again since.
pub(crate) fn on_queue_timer(ctx: &mut Context, id: &StepId) {
    let next = ctx.state().step(id).and_then(next_queue_event);
    match next.filter(|(at, _)| *at <= ctx.now()) {
        Some((_, QueueEvent::Begins)) => {
            ctx.record(Record::BeginReached { step: id.clone() });
            enter_queue(ctx, id);
        }
        Some((_, QueueEvent::TimesOut(queue_timeout))) => {
            end_in_queue(ctx, id, Cause::WaitedTooLong { queue_timeout });
        }
        Some((_, QueueEvent::MissesDeadline(deadline))) => {
            end_in_queue(ctx, id, Cause::DeadlineMissed { deadline });
        }
        None => await_units(ctx, id),
    }
}
