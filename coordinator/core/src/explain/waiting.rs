//! Explains a queued step in each of its pools.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, PoolName, StepId};
use sluice_reasons::Wait;
use sluice_scheduler::{Inspection, Request};

use crate::context::Context;
use crate::explain::wait_for;
use crate::model::step::{Attempt, Step};

use super::answer::{AwaitedRun, NominationDetails, PoolWait};

/// The step in each pool in which it is queued.
pub(crate) fn in_pools<'a>(ctx: &'a Context, step: &Step) -> Vec<PoolWait<'a>> {
    let scheduler = ctx.state().scheduler();
    let Some(request) = scheduler.request(&step.id) else {
        return Vec::new();
    };
    let pools = scheduler.pools_of(&step.id).into_iter();
    let inspections = pools.filter_map(|pool| scheduler.inspect(&step.id, pool, ctx.now()));
    inspections
        .map(|inspection| in_pool(ctx, request, inspection))
        .collect()
}

fn in_pool<'a>(ctx: &'a Context, request: &'a Request, inspection: Inspection<'a>) -> PoolWait<'a> {
    let scheduler = ctx.state().scheduler();
    let reason = match &inspection.block {
        Some(block) => wait_for(ctx, inspection.pool, request, block.clone()),
        None => next(inspection.pool),
    };
    PoolWait {
        request,
        reason,
        promised: promised(ctx, &request.step, inspection.pool),
        scheduler,
        at: ctx.now(),
        inspection,
    }
}

fn promised<'a>(ctx: &'a Context, step: &StepId, pool: &PoolName) -> Option<NominationDetails<'a>> {
    let nomination = ctx.state().scheduler().nomination(step)?;
    if nomination.pool != *pool {
        return None;
    }
    Some(NominationDetails {
        hosts: &nomination.hosts,
        firm: nomination.is_firm(),
        starts_by: ctx.state().scheduler().latest_start(&nomination.awaits),
        awaits: nomination
            .awaits
            .iter()
            .map(|id| awaited(ctx, id))
            .collect(),
    })
}

fn awaited<'a>(ctx: &'a Context, id: &'a AttemptId) -> AwaitedRun<'a> {
    let step = ctx.state().step(&id.step);
    let attempt = step.and_then(|step| step.attempt(id.number));
    AwaitedRun {
        attempt: id,
        subject: step.map(|step| &step.spec.subject),
        stopping: attempt.and_then(|attempt| attempt.stopping),
        since: attempt.and_then(|attempt| attempt.stopping_at),
        grace_ends: step.zip(attempt).and_then(|(s, a)| grace_ends(s, a)),
    }
}

/// End of the grace period of an attempt that is being stopped.
pub(crate) fn grace_ends(step: &Step, attempt: &Attempt) -> Option<sluice_common::time::Time> {
    attempt.grace_ends(step).filter(|_| !attempt.has_ended())
}

/// The reason of a step that starts next.
pub(crate) fn next(pool: &PoolName) -> Wait {
    let pool = pool.clone();
    Wait::Next { pool }
}
