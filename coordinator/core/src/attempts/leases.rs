//! Leases of allocations: one that its holder does not renew ends. Each has its own timer.

use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::limit::DEFAULT_GRACE;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};
use sluice_common::wire::StopReason;
use sluice_reasons::Cause;

use crate::attempts::orders::stop_as;
use crate::context::Context;
use crate::input::TimerKey;
use crate::model::step::Step;
use crate::record::{self, Record};

/// Sets the timer of an allocation that has not ended.
pub(crate) fn await_renewal(ctx: &mut Context, id: &StepId) {
    if let Some(at) = ctx.state().step(id).and_then(expires_at) {
        ctx.set_timer(TimerKey::Lease(id.clone()), at);
    }
}

/// Sets the timers of allocations that were made in earlier runs.
pub(crate) fn await_all_renewals(ctx: &mut Context) {
    let steps = ctx.state().steps().values();
    let open = steps.filter(|step| expires_at(step).is_some());
    for id in open.map(|step| step.id.clone()).collect::<Vec<_>>() {
        await_renewal(ctx, &id);
    }
}

/// Ends an allocation whose lease is over. It may have been renewed meanwhile.
pub(crate) fn on_lease_timer(ctx: &mut Context, id: &StepId) {
    let Some(step) = ctx.state().step(id) else {
        return;
    };
    let Some(at) = expires_at(step) else {
        return;
    };
    if at > ctx.now() {
        return await_renewal(ctx, id);
    }
    let live = step.live().filter(|attempt| attempt.stopping.is_none());
    // Without a host nothing is inside that could need a grace.
    let is_hostless = step.is_hostless();
    let grace = match is_hostless {
        true => Span::ZERO,
        false => DEFAULT_GRACE,
    };
    if let Some(attempt) = live.map(|attempt| step.attempt_id(attempt.number)) {
        stop_as(
            ctx,
            record::Stopping {
                grace: Some(grace),
                ..record::Stopping::because(attempt, StopReason::NotRenewed)
            },
        );
        if is_hostless {
            ctx.set_timer(TimerKey::Hostless(id.clone()), ctx.now());
        }
    } else if step.state == StepState::Queued {
        ctx.record(Record::StepEnded(record::StepEnded {
            step: id.clone(),
            state: StepState::Cancelled,
            reason: Cause::NotRenewed,
        }));
    }
}

/// The time at which an allocation ends unless it is renewed; `None` if it has ended, or the step is none.
fn expires_at(step: &Step) -> Option<Time> {
    let lease = step.lease.filter(|_| !step.state.is_terminal());
    lease.map(|lease| lease.until)
}
