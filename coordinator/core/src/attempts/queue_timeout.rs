//! Changes of a queued step that come with time: it may start from its `begin` on, ends if it is queued for longer than
//! its `queue_timeout`, and ends if it is queued at its `deadline`. Each step has its own timer, for the first of these.
//! Time by which a clock was set ahead does not count as time in the queue, nor time for which a user suspended the step
//! or it waited for other steps or for its `begin`.

use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};
use sluice_reasons::Cause;

use crate::arrays::end_queued_array;
use crate::attempts::leases::await_renewal;
use crate::context::Context;
use crate::input::TimerKey;
use crate::model::step::Step;
use crate::record::{self, Record};

/// A change of a queued step that comes with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEvent {
    /// The step may start from now on.
    Begins,
    /// The step ends, because it was queued for longer than this.
    TimesOut(Span),
    /// The step ends, because it was to start before this time.
    MissesDeadline(Time),
}

/// Sets the timer of a queued step, or ends it if its deadline has passed.
pub(crate) fn await_units(ctx: &mut Context, id: &StepId) {
    let step = ctx.state().step(id);
    match step.and_then(next_queue_event) {
        Some((at, QueueEvent::MissesDeadline(deadline))) if at <= ctx.now() => {
            end_in_queue(ctx, id, Cause::DeadlineMissed { deadline });
        }
        Some((at, _)) => ctx.set_timer(TimerKey::Queue(id.clone()), at),
        None => {}
    }
}

/// Sets the timers of steps that were queued in earlier runs.
pub(crate) fn await_all_units(ctx: &mut Context) {
    let steps = ctx.state().steps().values();
    let waiting = steps.filter(|step| next_queue_event(step).is_some());
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
        // Its lease may have been over while it was stopping.
        await_renewal(ctx, &id);
    }
}

/// Ends a queued step that does not start any more.
pub(crate) fn end_in_queue(ctx: &mut Context, id: &StepId, reason: Cause) {
    if ctx.state().step(id).is_some_and(|it| it.array.is_some()) {
        return end_queued_array(ctx, id, &reason);
    }
    ctx.record(Record::StepEnded(record::StepEnded {
        step: id.clone(),
        state: StepState::Failed,
        reason,
    }));
}

/// The next change of a queued step that comes with time, and when it comes. Of several at the same time it is that which
/// ends the step.
pub(crate) fn next_queue_event(step: &Step) -> Option<(Time, QueueEvent)> {
    let begin = step.not_before.map(|at| (at, QueueEvent::Begins));
    if step.state != StepState::Queued {
        // The rest of an array of which a part was adopted.
        return begin;
    }
    let spec = &step.spec;
    let deadline = spec.deadline.map(|at| (at, QueueEvent::MissesDeadline(at)));
    let queue_timeout = spec.queue_timeout.filter(|_| step.awaits_resources());
    let timeout = queue_timeout.map(|queue_timeout| {
        let since = step.queued_again_at.unwrap_or(step.submitted_at);
        let at = since + step.not_waited + queue_timeout;
        (at, QueueEvent::TimesOut(queue_timeout))
    });
    let events = [deadline, timeout, begin].into_iter().flatten();
    events.min_by_key(|(at, _)| *at)
}
