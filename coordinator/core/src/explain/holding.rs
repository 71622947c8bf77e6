//! Explains a step that holds resources, and one that is over.

use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::state::StepState;

use crate::arrays::first_queued_part;
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
    let step = ctx.state().find(id)?;
    let queued = first_queued_part(ctx, &step);
    let waits = matches!(step.state, StepState::Queued | StepState::Suspended) || queued.is_some();
    // A part that is no step of its own has no attempts.
    let own = ctx.state().step(id);
    let past = own.into_iter().flat_map(|step| {
        let attempts = step.attempts.iter();
        attempts.map(move |attempt| PastAttempt {
            attempt,
            outcome: outcome(step, attempt),
        })
    });
    Some(Explanation {
        at: ctx.now(),
        pools: if waits {
            in_pools(ctx, queued.unwrap_or(&step))
        } else {
            Vec::new()
        },
        excluded_by: if waits {
            excluded_from(ctx, &step)
        } else {
            Vec::new()
        },
        holding: own.and_then(|step| holding(ctx, step)),
        past: past.collect(),
        reason: reason(ctx, &step),
        step,
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
