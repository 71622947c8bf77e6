//! Makes the changes of arrays that follow from their state: parts enter the queue, and an array ends with its last part.
//!
//! A part enters the queue when the parts before it have started, within the same pass of the scheduler; from then on it
//! is a step like any other. So policies and fair shares are those of steps.

use alloc::collections::BTreeSet;

use sluice_common::array::part_id;
use sluice_common::id::StepId;

use super::{end_unmet, end_waiting};
use crate::context::Context;
use crate::dependencies::resolve_dependencies;
use crate::handlers::step_action::enter_queue;
use crate::model::array::Array;
use crate::record::{self, Record};
use crate::state::arrays::ArrayAction;

/// Makes all changes that follow from ends of steps: of those that depend on them, and of arrays.
pub(crate) fn settle_steps(ctx: &mut Context) {
    loop {
        resolve_dependencies(ctx);
        if !advance_arrays(ctx) {
            return;
        }
    }
}

/// Makes the next changes of all arrays. Returns whether there was one.
fn advance_arrays(ctx: &mut Context) -> bool {
    let mut any = false;
    while let Some(array) = ctx.state().index().arrays.first_due().cloned() {
        if let Some(action) = ctx.state().next_array_action(&array) {
            advance(ctx, &array, action);
        }
        any = true;
    }
    for array in nominated_arrays(ctx) {
        while let Some(action) = ctx.state().next_past_nominated(&array) {
            advance(ctx, &array, action);
            any = true;
        }
    }
    any
}

/// The arrays of which parts are nominated.
fn nominated_arrays(ctx: &Context) -> BTreeSet<StepId> {
    let nominated = ctx.state().promised();
    let parts = nominated.filter_map(|id| ctx.state().step(id)?.part_of.as_ref());
    parts.map(|part| part.array.clone()).collect()
}

fn advance(ctx: &mut Context, id: &StepId, action: ArrayAction) {
    match action {
        ArrayAction::EndUnmet(dependency, parts) => {
            end_unmet(ctx, id, dependency, parts);
        }
        ArrayAction::Enter(index) => enter(ctx, id, index),
        ArrayAction::End => {
            let step = ctx.state().step(id);
            let outcome = step.and_then(|step| step.array.as_deref().map(Array::outcome));
            if let Some((state, reason)) = outcome {
                ctx.record(Record::StepEnded(record::StepEnded {
                    step: id.clone(),
                    state,
                    reason,
                }));
            }
        }
    }
}

/// Lets a part into the queue. If it can never start any more, nor can the others that wait.
fn enter(ctx: &mut Context, array: &StepId, index: u32) {
    let step = part_id(array, index);
    ctx.record(Record::PartQueued(record::PartQueued {
        step: step.clone(),
        array: array.clone(),
        index,
    }));
    enter_queue(ctx, &step);
    let ended = ctx.state().step(&step);
    let ended = ended.filter(|part| part.state.is_terminal());
    let ended = ended.map(|part| (part.state, part.reason.clone()));
    if let Some((state, reason)) = ended {
        end_waiting(ctx, array, state, reason);
    }
}
