//! A step that holds units, and one that is over.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::reason::Detail;
use sluice_common::state::StepState;
use sluice_scheduler::Exposure;

use crate::attempts::retry_policy::outcome;
use crate::context::Context;
use crate::explain::reason;
use crate::explain::waiting::in_pools;
use crate::model::step::{Attempt, Step};
use crate::submit::rules::barred_from;

use super::answer::{Explanation, Holding, Past};
use super::sentences;
use super::waiting::grace_ends;

/// Why a step is where it is, whole. `None` where it is not remembered. It is read from the state as the last
/// decision left it, and changes nothing.
pub(crate) fn explain<'a>(
    ctx: &'a Context,
    id: &sluice_common::id::StepId,
) -> Option<Explanation<'a>> {
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
        refused: if step.state == StepState::Rejected {
            refused(&reason)
        } else if waits {
            barred(ctx, step)
        } else {
            Vec::new()
        },
        holding: holding(ctx, step),
        past: step
            .attempts
            .iter()
            .map(|attempt| Past {
                attempt,
                outcome: outcome(step, attempt).map(|why| why.said()),
            })
            .collect(),
        reason,
    })
}

fn barred(ctx: &Context, step: &Step) -> Vec<(String, String)> {
    let barred = barred_from(ctx, step).into_iter();
    barred.map(|(pool, why)| (pool.to_string(), why)).collect()
}

/// What the step holds, while an attempt of it has not ended.
fn holding<'a>(ctx: &'a Context, step: &'a Step) -> Option<Holding<'a>> {
    let attempt = step.live()?;
    let id = step.attempt_id(attempt.number);
    let exposure = ctx.state().market().exposure(&id, ctx.now())?;
    let is_stopping = attempt.stopping.is_some();
    Some(Holding {
        attempt,
        in_share: exposure.in_share,
        exposed: !is_stopping && is_exposed(&exposure),
        spared_until: exposure.spared_until.filter(|_| exposure.preemptible),
        exposure: exposure_in_words(ctx, step, attempt, &exposure),
        beyond: exposure.beyond,
        grace_ends: grace_ends(step, attempt),
    })
}

fn exposure_in_words(
    ctx: &Context,
    step: &Step,
    attempt: &Attempt,
    exposure: &Exposure<'_>,
) -> Vec<String> {
    match (&attempt.stopping, &attempt.preempted_by) {
        (Some(_), Some(by)) => {
            let waits = ctx.state().market().request(by).is_some();
            Vec::from([sentences::gives_way(by, waits)])
        }
        (Some(_), None) => Vec::new(),
        (None, _) => sentences::exposure(&step.spec.subject, &attempt.pool, exposure),
    }
}

fn is_exposed(exposure: &Exposure<'_>) -> bool {
    exposure.preemptible && !(exposure.beyond.is_empty() && exposure.backfill.is_empty())
}

/// The pools that refused a step: the one of its reason, and those that its details list.
fn refused(reason: &sluice_common::reason::Reason) -> Vec<(String, String)> {
    let first = reason.detail.get("pool").and_then(text);
    let first = first.map(|pool| (pool, reason.message.clone()));
    let others = reason.detail.iter().filter_map(|(name, detail)| {
        let pool = name.strip_prefix("in ")?;
        Some((String::from(pool), text(detail)?))
    });
    first.into_iter().chain(others).collect()
}

fn text(detail: &Detail) -> Option<String> {
    match detail {
        Detail::Text(text) => Some(text.clone()),
        Detail::Number(_) => None,
    }
}
