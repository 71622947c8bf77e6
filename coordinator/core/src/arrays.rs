//! Arrays: ends parts that have not entered the queue, and finds the others. `arrays/advance.rs` lets parts into the queue.

pub(crate) mod advance;

use alloc::vec::Vec;

use sluice_common::array::{IndexSet, part_id};
use sluice_common::dependency::Dependency;
use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_reasons::{Cause, Wait};

use crate::context::Context;
use crate::model::step::Step;
use crate::output::Refusal;
use crate::record::{self, Record};
use crate::state::arrays::ArrayAction;

/// Ends the parts of an array whose counterparts have not ended as required.
pub(crate) fn end_unmet_parts(ctx: &mut Context, id: &StepId) {
    let next = |ctx: &Context| ctx.state().next_array_action(id);
    while let Some(ArrayAction::EndUnmet(dependency, parts)) = next(ctx) {
        end_unmet(ctx, id, dependency, parts);
    }
}

/// Ends parts whose counterparts have not ended as required.
pub(crate) fn end_unmet(ctx: &mut Context, id: &StepId, dependency: Dependency, parts: IndexSet) {
    let on = ctx.state().step(&dependency.step);
    let array = on.and_then(|on| on.array.as_ref());
    let first = parts.first().unwrap_or_default();
    let ended = array.and_then(|array| array.end_of(first));
    let reason = Cause::DependencyFailed {
        ended: ended.map_or(StepState::Failed, |ended| ended.state),
        chain: Vec::from([dependency.step.clone()]),
        dependency,
    };
    end_parts(ctx, id, parts, StepState::Cancelled, reason);
}

/// Ends all parts that have not entered the queue.
pub(crate) fn end_waiting(ctx: &mut Context, array: &StepId, state: StepState, reason: Cause) {
    let step = ctx.state().step(array);
    let waiting = step.and_then(|step| step.array.as_ref().map(|array| array.waiting.clone()));
    if let Some(waiting) = waiting.filter(|waiting| !waiting.is_empty()) {
        end_parts(ctx, array, waiting, state, reason);
    }
}

fn end_parts(ctx: &mut Context, id: &StepId, parts: IndexSet, state: StepState, reason: Cause) {
    ctx.record(Record::PartsEnded(record::PartsEnded {
        step: id.clone(),
        parts,
        state,
        reason,
    }));
}

/// Cancels the parts of an array that have not entered the queue. Returns the others that have not ended.
pub(crate) fn cancel_waiting(ctx: &mut Context, id: &StepId) -> Vec<StepId> {
    end_waiting(ctx, id, StepState::Cancelled, Cause::Cancelled);
    open_parts(ctx, id)
}

/// Ends the parts of an array that have not entered the queue, and those that are queued, because it does not start.
pub(crate) fn end_queued_array(ctx: &mut Context, id: &StepId, reason: &Cause) {
    end_waiting(ctx, id, StepState::Failed, reason.clone());
    for part in open_parts(ctx, id) {
        let queued = ctx.state().step(&part);
        if queued.is_some_and(|part| part.state == StepState::Queued) {
            ctx.record(Record::StepEnded(record::StepEnded {
                step: part,
                state: StepState::Failed,
                reason: reason.clone(),
            }));
        }
    }
}

/// Cancels a part that has not entered the queue; `false` if there is no such part.
pub(crate) fn cancel_part(ctx: &mut Context, id: &StepId) -> bool {
    let Some((array, index)) = ctx.state().waiting_part(id) else {
        return false;
    };
    let (cancelled, reason) = (StepState::Cancelled, Cause::Cancelled);
    end_parts(ctx, &array, index.into(), cancelled, reason);
    true
}

/// The parts of an array that have entered the queue and not ended.
pub(crate) fn open_parts(ctx: &Context, id: &StepId) -> Vec<StepId> {
    let array = ctx.state().step(id).and_then(|step| step.array.as_ref());
    let open = array.into_iter().flat_map(|array| array.open.iter());
    open.map(|index| part_id(id, index)).collect()
}

/// Forgets an ended step, and first the parts of it that are remembered. The id of a deleted one stays taken.
pub(crate) fn forget_with_parts(ctx: &mut Context, id: &StepId, deleted: bool) {
    let parts = ctx.state().parts_of(id).map(|(_, part)| part.id.clone());
    for step in parts.collect::<Vec<_>>() {
        let deleted = false;
        ctx.record(Record::StepForgotten { step, deleted });
    }
    let step = id.clone();
    ctx.record(Record::StepForgotten { step, deleted });
}

/// The refusal of a call about a step that is no step of its own.
pub(crate) fn unknown_step(ctx: &Context, id: &StepId) -> Refusal {
    let part = ctx.state().array_of(id);
    let known = part.and_then(|(step, index)| Some((step, index, step.spec.array.as_ref()?)));
    match known {
        Some((step, index, spec)) if !spec.indexes.contains(index) => Refusal::UnknownPart {
            array: step.id.clone(),
            index,
            indexes: IndexSet::clone(&spec.indexes),
        },
        Some(_) | None => Refusal::UnknownStep { step: id.clone() },
    }
}

/// The first part of an array that is in the queue.
pub(crate) fn first_queued_part<'a>(ctx: &'a Context, step: &Step) -> Option<&'a Step> {
    let first = ctx.state().index().arrays.queued(&step.id).next()?;
    ctx.state().step(&part_id(&step.id, first))
}

/// The first part of an array that has entered the queue and not ended.
pub(crate) fn first_open_part<'a>(ctx: &'a Context, step: &Step) -> Option<&'a Step> {
    let first = step.array.as_ref()?.open.first()?;
    ctx.state().step(&part_id(&step.id, first))
}

/// Returns the wait of a part that has not entered the queue.
pub(crate) fn wait_of_part(ctx: &Context, part: &Step) -> Option<Wait> {
    let place = part.part_of.as_ref()?;
    let step = ctx.state().step(&place.array)?;
    let array = step.array.as_ref()?;
    if !array.waiting.contains(place.index) {
        return None;
    }
    Some(Wait::Array {
        array: place.array.clone(),
        ahead: u64::from(array.waiting.count_below(place.index)),
        at_once: step
            .spec
            .array
            .as_ref()?
            .at_once
            .map(core::num::NonZeroU32::get),
    })
}
