//! A step that waits, in each of its pools.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, PoolName, StepId};
use sluice_common::reason::{Reason, ReasonCode};
use sluice_scheduler::{Holder, Inspection, Request};

use crate::context::Context;
use crate::explain::in_words;
use crate::model::step::{Attempt, Step};

use super::answer::{Awaited, InPool, Promised, Spare, WouldStart};
use super::sentences;

/// So many of the runs that hold what it is short of are listed.
const MAX_SPARES: usize = 16;

/// The step in every pool in which it waits.
pub(crate) fn in_pools<'a>(ctx: &'a Context, step: &Step) -> Vec<InPool<'a>> {
    let market = ctx.state().market();
    let Some(request) = market.request(&step.id) else {
        return Vec::new();
    };
    let pools = market.pools_of(&step.id).into_iter();
    let looks = pools.filter_map(|pool| market.look(&step.id, pool, ctx.now()));
    looks.map(|look| in_pool(ctx, request, look)).collect()
}

fn in_pool<'a>(ctx: &'a Context, request: &Request, look: Inspection<'a>) -> InPool<'a> {
    let market = ctx.state().market();
    let (ahead, waiting) = look.place;
    let reason = match &look.block {
        Some(block) => in_words(ctx, look.pool, request, block.clone()),
        None => next(look.pool),
    };
    let remedies = market.remedies(&request.step, look.pool, ctx.now());
    InPool {
        pool: look.pool,
        priority: look.priority,
        in_share: look.in_share,
        reason,
        ahead,
        waiting,
        behind: look.behind,
        promised: promised(ctx, &request.step, look.pool),
        stops: sentences::stops(request, &look),
        holders: look.holders.len(),
        spares: spares(request, &look.holders),
        would_start_if: remedies
            .into_iter()
            .map(|remedy| WouldStart {
                message: sentences::remedy(request, look.pool, &remedy),
                remedy,
            })
            .collect(),
        keys: look.keys,
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

fn spares<'a>(request: &Request, holders: &[Holder<'a>]) -> Vec<Spare<'a>> {
    let first = holders.iter().take(MAX_SPARES);
    first
        .map(|holder| Spare {
            attempt: holder.attempt,
            subject: holder.subject,
            why: holder.spared.map(|why| sentences::spared(request, why)),
        })
        .collect()
}

/// That nothing keeps a step waiting any longer.
pub(crate) fn next(pool: &PoolName) -> Reason {
    let message = alloc::format!("it is next in pool `{pool}`");
    Reason::new(ReasonCode::WaitingForUnits, message).with("pool", pool.as_str())
}
