//! Ends steps that are queued for longer than their `queue_timeout`. Each has its own timer, set when it is queued.
//! Time by which a clock was set ahead does not count, nor time for which a user suspended the step.

use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};

use crate::context::Context;
use crate::input::TimerKey;
use crate::model::step::Step;
use crate::record::Record;

/// Sets the timer for the queue timeout of a queued step.
pub(crate) fn await_units(ctx: &mut Context, id: &StepId) {
    let step = ctx.state().step(id);
    if let Some((at, _)) = step.and_then(queue_timeout_at) {
        ctx.set_timer(TimerKey::Queue(id.clone()), at);
    }
}

/// Sets the timers of steps that were queued in earlier runs.
pub(crate) fn await_all_units(ctx: &mut Context) {
    let steps = ctx.state().steps().values();
    let waiting = steps.filter(|step| queue_timeout_at(step).is_some());
    for id in waiting.map(|step| step.id.clone()).collect::<Vec<_>>() {
        await_units(ctx, &id);
    }
}

/// Queues a step again whose attempt is over, and sets its timer.
pub(crate) fn queue_again(ctx: &mut Context, requeued: Record) {
    let id = requeued.step().cloned();
    ctx.record(requeued);
    if let Some(id) = id {
        await_units(ctx, &id);
    }
}

/// Time at which the queue timeout of a queued step passes, and the timeout.
pub(crate) fn queue_timeout_at(step: &Step) -> Option<(Time, Span)> {
    let waits = step.state == StepState::Queued && !step.held;
    let queue_timeout = step.spec.queue_timeout.filter(|_| waits)?;
    let since = step.queued_again_at.unwrap_or(step.submitted_at);
    Some((since + step.not_waited + queue_timeout, queue_timeout))
}
