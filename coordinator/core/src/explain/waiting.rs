//! A step that waits, in each of its pools.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, PoolName, StepId};
use sluice_reasons::Wait;
use sluice_scheduler::{Inspection, Request};

use crate::context::Context;
use crate::explain::wait_for;
use crate::model::step::{Attempt, Step};

use super::answer::{Awaited, InPool, Promised};

/// The step in every pool in which it waits.
pub(crate) fn in_pools<'a>(ctx: &'a Context, step: &Step) -> Vec<InPool<'a>> {
    let market = ctx.state().market();
    let Some(request) = market.request(&step.id) else {
        return Vec::new();
    };
    let pools = market.pools_of(&step.id).into_iter();
    let looks = pools.filter_map(|pool| market.inspect(&step.id, pool, ctx.now()));
    looks.map(|look| in_pool(ctx, request, look)).collect()
}

fn in_pool<'a>(ctx: &'a Context, request: &'a Request, look: Inspection<'a>) -> InPool<'a> {
    let market = ctx.state().market();
    let reason = match &look.block {
        Some(block) => wait_for(ctx, look.pool, request, block.clone()),
        None => next(look.pool),
    };
    InPool {
        request,
        reason,
        promised: promised(ctx, &request.step, look.pool),
        would_start_if: market.remedies(&request.step, look.pool, ctx.now()),
        look,
    }
}

fn promised<'a>(ctx: &'a Context, step: &StepId, pool: &PoolName) -> Option<Promised<'a>> {
    let nomination = ctx.state().market().nomination(step)?;
    if nomination.pool != *pool {
        return None;
    }
    Some(Promised {
        hosts: &nomination.hosts,
        firm: nomination.is_firm(),
        awaits: nomination
            .awaits
            .iter()
            .map(|id| awaited(ctx, id))
            .collect(),
    })
}

fn awaited<'a>(ctx: &'a Context, id: &'a AttemptId) -> Awaited<'a> {
    let step = ctx.state().step(&id.step);
    let attempt = step.and_then(|step| step.attempt(id.number));
    Awaited {
        attempt: id,
        subject: step.map(|step| &step.spec.subject),
        stopping: attempt.and_then(|attempt| attempt.stopping),
        since: attempt.and_then(|attempt| attempt.stopping_at),
        grace_ends: step.zip(attempt).and_then(|(s, a)| grace_ends(s, a)),
    }
}

/// When what is left of an attempt that is being stopped is killed.
pub(crate) fn grace_ends(step: &Step, attempt: &Attempt) -> Option<sluice_common::time::Time> {
    attempt.grace_ends(step).filter(|_| !attempt.has_ended())
}

/// That nothing keeps a step waiting any longer.
pub(crate) fn next(pool: &PoolName) -> Wait {
    let pool = pool.clone();
    Wait::Next { pool }
}
