//! Submits steps. A step that could never be granted is rejected at once, with a reason code and the numbers, and is
//! stored all the same.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::StepId;
use sluice_common::shared::Shared;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_reasons::Cause;
use sluice_scheduler::Request;

use crate::arrays::end_waiting;
use crate::attempts::leases::await_renewal;
use crate::attempts::queue_timeout::await_units;
use crate::context::Context;
use crate::dependencies::{check_pairs, dependencies_first, unmet_at_submit};
use crate::input::{NewStep, ReplyId};
use crate::model::array::part_spec;
use crate::output::{Answer, Refusal, Submitted};
use crate::record::{self, Record};
use crate::submit::bounds::over_bounds;
use crate::submit::difference::first_difference;
use crate::submit::feasible::unknown_pool;
use crate::submit::inside::admit_inside;
use crate::submit::route::route_of;
use crate::submit::rules::{SubmitDecision, admit_by_rules};

pub(crate) fn on_submit(ctx: &mut Context, reply: ReplyId, steps: Vec<NewStep>) {
    let over = over_bounds(ctx, &steps);
    let results = dependencies_first(steps).into_iter();
    let results = results.map(|(place, step)| {
        let result = step.and_then(|step| {
            let refusal = over.get(&step.spec.subject);
            match refusal.filter(|_| ctx.state().step(&step.id).is_none()) {
                Some(refusal) => Err(refusal.clone()),
                None => submit(ctx, step),
            }
        });
        (place, result)
    });
    let mut results: Vec<_> = results.collect();
    results.sort_by_key(|(place, _)| *place);
    let results = results.into_iter().map(|(_, result)| result).collect();
    ctx.reply(reply, Answer::Submitted(results));
}

pub(crate) fn submit(ctx: &mut Context, new: NewStep) -> Result<Submitted, Refusal> {
    let NewStep {
        id: step,
        spec,
        past_maintenance,
    } = new;
    let known = ctx.state().step(&step);
    if let Some(old) = known.filter(|old| old.part_of.is_none()) {
        return match first_difference(&old.spec, &spec) {
            None => Ok(Submitted {
                step,
                created: false,
            }),
            Some(field) => Err(Refusal::IdInUse {
                step,
                differs: String::from(field),
            }),
        };
    }
    if ctx.state().is_deleted(&step) {
        return Err(Refusal::IdDeleted { step });
    }
    if let Some(deadline) = spec.deadline.filter(|deadline| *deadline <= ctx.now()) {
        return Err(Refusal::DeadlinePassed { step, deadline });
    }
    let not_before = spec.begin.filter(|begin| *begin > ctx.now());
    let has_parts = check_parts(ctx, &step, &spec)?;
    let unmet = unmet_at_submit(ctx, &step, &spec.after)?;
    check_pairs(ctx, &step, &spec)?;
    let id = step.clone();
    ctx.record(match admit(ctx, &step, spec, past_maintenance)? {
        SubmitDecision::Queued {
            spec,
            excluded_pools,
            route,
            provenance,
        } => Record::StepQueued(record::StepQueued {
            step,
            spec: spec.into(),
            unmet,
            not_before,
            excluded_pools,
            route: route.into(),
            provenance: provenance.into(),
        }),
        SubmitDecision::Rejected { spec, reason } if has_parts => {
            return Ok(submit_rest(ctx, step, spec, reason));
        }
        SubmitDecision::Rejected { spec, reason } => {
            let spec = spec.into();
            Record::StepRejected(record::StepRejected { step, spec, reason })
        }
    });
    await_units(ctx, &id);
    await_renewal(ctx, &id);
    Ok(Submitted {
        step: id,
        created: true,
    })
}

/// Refuses an id that a part of an array has, one that begins those of parts which were adopted before their array was
/// submitted again, and an array whose parts would have the ids of other steps than these. Returns whether there are any.
fn check_parts(ctx: &Context, id: &StepId, spec: &StepSpec) -> Result<bool, Refusal> {
    let in_use = |step: &StepId, differs| Refusal::IdInUse {
        step: step.clone(),
        differs: String::from(differs),
    };
    if ctx.state().state_of(id).is_some() {
        return Err(in_use(id, "array"));
    }
    let Some(array) = &spec.array else {
        let part = ctx.state().parts_of(id).next();
        return part.map_or(Ok(false), |(_, part)| Err(in_use(&part.id, "array")));
    };
    let mut has_parts = false;
    for (index, known) in ctx.state().steps().with_ids_of(id) {
        let part = &known.id;
        let has_index = array.indexes.contains(index);
        if has_index != known.part_of.is_some() {
            return Err(in_use(part, "array"));
        }
        if has_index {
            let differs = first_difference(&known.spec, &part_spec(index, spec.clone()));
            differs.map_or(Ok(()), |field| Err(in_use(part, field)))?;
            has_parts = true;
        }
    }
    Ok(has_parts)
}

/// Submits an array that would be rejected if none of its parts ran: the others are rejected.
fn submit_rest(ctx: &mut Context, id: StepId, spec: StepSpec, reason: Cause) -> Submitted {
    ctx.record(Record::StepQueued(record::StepQueued {
        step: id.clone(),
        spec: spec.into(),
        unmet: BTreeSet::new(),
        not_before: None,
        excluded_pools: BTreeSet::new(),
        route: Shared::default(),
        provenance: Shared::default(),
    }));
    end_waiting(ctx, &id, StepState::Rejected, reason);
    Submitted {
        step: id,
        created: true,
    }
}

/// Admits or rejects a step by all hosts that a pool remembers, lost ones included: nothing is rejected because a
/// host is down.
pub(crate) fn admit(
    ctx: &Context,
    step: &StepId,
    spec: StepSpec,
    past_maintenance: bool,
) -> Result<SubmitDecision, Refusal> {
    if let Some(allocation) = spec.inside.clone() {
        return admit_inside(ctx, step, spec, &allocation);
    }
    if let Some(unknown) = unknown_pool(ctx, spec.pool.as_ref()) {
        let reason = Cause::rejected(unknown);
        return Ok(SubmitDecision::Rejected { spec, reason });
    }
    let route = route_of(ctx, &spec);
    let request = route.send(Request::from_spec(step.clone(), 0, &spec));
    admit_by_rules(ctx, &request, route, spec, past_maintenance)
}
