//! Moves a queued step to another pool. The step is checked and filled in there as if it were submitted now, and keeps
//! its id and its place; if the pool would reject it, it stays where it was.

use alloc::boxed::Box;

use sluice_common::id::StepId;
use sluice_common::shared::Shared;
use sluice_common::state::StepState;

use crate::arrays::{open_parts, unknown_step};
use crate::attempts::queue_timeout::await_units;
use crate::context::Context;
use crate::handlers::preview::preview;
use crate::handlers::submit::admit;
use crate::input::{MoveTarget, NewStep, ReplyId};
use crate::model::cluster::Route;
use crate::output::{Answer, Refusal};
use crate::record::{self, Record};
use crate::submit::as_written::as_written;
use crate::submit::rules::SubmitDecision;

pub(crate) fn on_move_step(
    ctx: &mut Context,
    reply: ReplyId,
    id: &StepId,
    target: MoveTarget,
    dry_run: bool,
) {
    let new = as_submitted(ctx, id, target);
    let answer = match new {
        Ok(new) if dry_run => {
            let preview = preview(ctx, &new, |ctx| move_step(ctx, &new).map(drop));
            Answer::Previewed(preview.into())
        }
        Ok(new) => Answer::Moved(move_step(ctx, &new)),
        Err(refusal) => Answer::Moved(Err(refusal)),
    };
    ctx.reply(reply, answer);
}

/// The step as it would be submitted to the target.
fn as_submitted(ctx: &Context, id: &StepId, target: MoveTarget) -> Result<NewStep, Refusal> {
    let MoveTarget {
        pool,
        past_maintenance,
    } = target;
    let step = id.clone();
    let Some(known) = ctx.state().find(id) else {
        return Err(unknown_step(ctx, id));
    };
    // A part that was moved before its array was known again may follow it.
    let array = ctx.state().array_of(id).filter(|_| known.part_of.is_some());
    let array = array.filter(|(array, _)| array.only_pool() == known.only_pool());
    if let Some((array, _)) = array {
        let array = array.id.clone();
        return Err(Refusal::CannotMovePart { step, array });
    }
    if known.state.is_terminal() {
        let state = known.state;
        let ended = None;
        return Err(Refusal::StepOver { step, state, ended });
    }
    if known.state != StepState::Queued {
        let state = known.state;
        return Err(Refusal::CannotMove { step, state });
    }
    if let Some(allocation) = known.spec.inside.clone() {
        return Err(Refusal::IsInside { step, allocation });
    }
    // What an attempt holds is counted by the spec, which the new pool may fill in otherwise.
    let elsewhere = known.only_pool() != Some(&pool);
    if let Some(node) = known.holding_node().filter(|_| elsewhere) {
        let node = node.clone();
        return Err(Refusal::CannotMoveYet { step, node });
    }
    if ctx.state().pool(&pool).is_none() {
        return Err(Refusal::UnknownPool { pool });
    }
    let mut spec = as_written(&known);
    spec.pool = Some(pool);
    Ok(NewStep {
        id: step,
        spec,
        past_maintenance,
    })
}

/// Moves a queued step to the pool that `new` names; `false` if it waits there already.
fn move_step(ctx: &mut Context, new: &NewStep) -> Result<bool, Refusal> {
    let step = new.id.clone();
    let known = ctx.state().step(&step);
    let (Some(known), Some(pool)) = (known, new.spec.pool.clone()) else {
        return Err(Refusal::UnknownStep { step });
    };
    if known.only_pool() == Some(&pool) {
        return Ok(false);
    }
    let written = known.spec.pool.clone();
    let moved = match admit(ctx, &step, new.spec.clone(), new.past_maintenance)? {
        SubmitDecision::Rejected { reason, .. } => {
            return Err(Refusal::MoveRejected {
                step,
                pool,
                reason: Box::new(reason),
            });
        }
        SubmitDecision::Queued {
            mut spec,
            excluded_pools,
            route,
            provenance,
        } => {
            spec.pool = written;
            record::StepMoved {
                step: step.clone(),
                pool: pool.clone(),
                spec: spec.into(),
                excluded_pools,
                route: Shared::from(Route {
                    pool: Some(pool),
                    ..route
                }),
                provenance: provenance.into(),
            }
        }
    };
    ctx.record(Record::StepMoved(moved.clone()));
    await_units(ctx, &step);
    for part in open_parts(ctx, &step) {
        move_part(ctx, &part, &moved);
    }
    Ok(true)
}

/// Moves a queued part of an array that was moved.
fn move_part(ctx: &mut Context, id: &StepId, moved: &record::StepMoved) {
    let part = ctx.state().step(id).and_then(|it| it.part_of.clone());
    let Some((part, array)) = part.and_then(|it| Some((it.clone(), ctx.state().step(&it.array)?)))
    else {
        return;
    };
    let spec = array.new_part(part.index, &moved.spec).spec;
    ctx.record(Record::StepMoved(record::StepMoved {
        step: id.clone(),
        spec,
        ..moved.clone()
    }));
    await_units(ctx, id);
}
