//! Ends steps that are queued for longer than their `queue_timeout`. Each has a timer of its own, set when it is
//! queued. Time by which a clock was set ahead does not count, nor time for which a user suspended the step.

use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};

use crate::context::Context;
use crate::input::TimerKey;
use crate::model::step::Step;
use crate::record::Record;

/// Wakes us when a step that waits has waited for too long.
pub(crate) fn await_units(ctx: &mut Context, id: &StepId) {
    let step = ctx.state().step(id);
    if let Some((at, _)) = step.and_then(queue_timeout_at) {
        ctx.set_timer(TimerKey::Queue(id.clone()), at);
    }
}

/// The same for steps that were queued in earlier runs.
pub(crate) fn await_all_units(ctx: &mut Context) {
    let steps = ctx.state().steps().values();
    let waiting = steps.filter(|step| queue_timeout_at(step).is_some());
    for id in waiting.map(|step| step.id.clone()).collect::<Vec<_>>() {
        await_units(ctx, &id);
    }
}

/// Puts a step whose attempt is over back into the queue, and wakes us when it has waited there for too long.
pub(crate) fn queue_again(ctx: &mut Context, requeued: Record) {
    let id = requeued.step().cloned();
    ctx.record(requeued);
    if let Some(id) = id {
        await_units(ctx, &id);
    }
}

/// When a step that waits has waited for too long, and how long that is.
pub(crate) fn queue_timeout_at(step: &Step) -> Option<(Time, Span)> {
    let waits = step.state == StepState::Queued && !step.held;
    let queue_timeout = step.spec.queue_timeout.filter(|_| waits)?;
    let since = step.queued_again_at.unwrap_or(step.submitted_at);
    Some((since + step.not_waited + queue_timeout, queue_timeout))
}
