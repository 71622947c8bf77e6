//! Bounds on what one subject may have in the store, so that no subject can fill it. A submit beyond the bounds is
//! refused and nothing of it is stored. Ended steps are bounded in total: those of the subject with most of them are
//! forgotten first.

use alloc::collections::BTreeMap;

use sluice_common::id::{StepId, Subject};

use crate::context::Context;
use crate::input::{Bounds, NewStep};
use crate::output::{QueueBound, QueueFull, Refusal};
use crate::record::Record;

/// The subjects whose new steps would exceed the bounds, and how. All steps of one subject in a submit are accepted,
/// or none. Repeated steps add nothing.
pub(crate) fn over_bounds(ctx: &Context, steps: &[NewStep]) -> BTreeMap<Subject, Refusal> {
    let mut sums: BTreeMap<&Subject, (u64, u64)> = BTreeMap::new();
    let new = steps.iter().filter(|it| ctx.state().step(&it.id).is_none());
    for NewStep { spec, .. } in new {
        let (steps, bytes) = sums.entry(&spec.subject).or_default();
        *steps += 1;
        *bytes += spec.weight();
    }
    let judged = sums.into_iter();
    let over =
        judged.filter_map(|(subject, sum)| Some((subject.clone(), over_bound(ctx, subject, sum)?)));
    over.collect()
}

fn over_bound(ctx: &Context, subject: &Subject, (steps, bytes): (u64, u64)) -> Option<Refusal> {
    let load = ctx.state().index().loads().of(subject);
    let (has, has_bytes) = load.map_or((0, 0), |load| (load.steps, load.bytes));
    let bounds = &ctx.settings().bounds;
    let (bound, has, asked, limit) = if has + steps > bounds.queued_steps {
        (QueueBound::Steps, has, steps, bounds.queued_steps)
    } else if has_bytes + bytes > bounds.queued_bytes {
        (QueueBound::Bytes, has_bytes, bytes, bounds.queued_bytes)
    } else {
        return None;
    };
    Some(Refusal::QueueFull(QueueFull {
        subject: subject.clone(),
        bound,
        has,
        asked,
        limit,
    }))
}

/// Forgets ended steps beyond the bounds of number and bytes.
pub(crate) fn forget_old(ctx: &mut Context) {
    let bounds = ctx.settings().bounds;
    while let Some(step) = first_too_many(ctx, bounds) {
        ctx.record(Record::StepForgotten {
            step,
            deleted: false,
        });
    }
}

fn first_too_many(ctx: &Context, bounds: Bounds) -> Option<StepId> {
    let index = ctx.state().index();
    if index.finished().len() > bounds.keep_finished {
        return index.loads().oldest_of_most_steps().cloned();
    }
    let heavy = index.loads().ended_bytes() > bounds.keep_finished_bytes;
    let heaviest = index.loads().oldest_of_most_bytes();
    heaviest.filter(|_| heavy).cloned()
}
