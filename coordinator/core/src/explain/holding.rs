//! Explains a step that holds resources, and one that is over.

use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::state::StepState;

use crate::attempts::retry_policy::outcome;
use crate::context::Context;
use crate::explain::reason;
use crate::explain::waiting::in_pools;
use crate::model::step::{Attempt, Step};
use crate::submit::rules::excluded_from;

use super::answer::{Explanation, HeldResources, PastAttempt};
use super::waiting::grace_ends;

/// Explains why a step is in its state; `None` if the step is not remembered. Reads the state as the last decision
/// left it.
pub(crate) fn explain<'a>(ctx: &'a Context, id: &StepId) -> Option<Explanation<'a>> {
    let step = ctx.state().step(id)?;
    let reason = reason(ctx, step);
    let waits = matches!(step.state, StepState::Queued | StepState::Suspended);
    Some(Explanation {
        step,
        at: ctx.now(),
        pools: if waits {
            in_pools(ctx, step)
        } else {
            Vec::new()
        },
        excluded_by: if waits {
            excluded_from(ctx, step)
        } else {
            Vec::new()
        },
        holding: holding(ctx, step),
        past: step
            .attempts
            .iter()
            .map(|attempt| PastAttempt {
                attempt,
                outcome: outcome(step, attempt),
            })
            .collect(),
        reason,
    })
}

/// The resources of the step, while an attempt of it has not ended.
fn holding<'a>(ctx: &'a Context, step: &'a Step) -> Option<HeldResources<'a>> {
    let attempt = step.live()?;
    let id = step.attempt_id(attempt.number);
    let exposure = ctx.state().scheduler().preemption_risk(&id, ctx.now())?;
    Some(HeldResources {
        attempt,
        exposure,
        gives_way: gives_way(ctx, attempt),
        grace_ends: grace_ends(step, attempt),
    })
}

fn gives_way<'a>(ctx: &Context, attempt: &'a Attempt) -> Option<(&'a StepId, bool)> {
    let by = attempt.preempted_by.as_ref();
    let by = by.filter(|_| attempt.stopping.is_some())?;
    Some((by, ctx.state().scheduler().request(by).is_some()))
}
