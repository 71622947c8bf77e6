//! Dependencies between steps: the order in which the steps of one call are submitted, and what becomes of a step when
//! one of those on which it depends has ended. A step can only depend on steps that are there, or come in the same
//! call, so only one call can have a cycle.

mod batch;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::dependency::Dependency;
use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_reasons::{Cause, Wait};

use crate::arrays::end_unmet_parts;
use crate::context::Context;
use crate::handlers::step_action::enter_queue;
use crate::model::step::Step;
use crate::output::Refusal;
use crate::record::{self, Record};

pub(crate) use batch::dependencies_first;

/// Most unmet dependencies that a reason names.
const NAMED_DEPENDENCIES: usize = 5;

/// Most steps that a failed dependency is traced back to. Of a longer chain the first one is kept, and the last ones.
const MAX_CHAIN: usize = 8;

/// The dependencies of a new step that are not met yet, or can never be.
///
/// # Errors
/// If there is no such step.
pub(crate) fn unmet_at_submit(
    ctx: &Context,
    step: &StepId,
    after: &[Dependency],
) -> Result<BTreeSet<StepId>, Refusal> {
    let mut unmet = BTreeSet::new();
    for dependency in after {
        let on = &dependency.step;
        let Some(state) = ctx.state().state_of(on) else {
            return Err(Refusal::UnknownDependency {
                step: step.clone(),
                on: on.clone(),
            });
        };
        let is_met = state.is_terminal() && dependency.end.is_met_by(state);
        if dependency.each || !is_met {
            unmet.insert(on.clone());
        }
    }
    Ok(unmet)
}

/// Checks that each part of an array has a counterpart in the arrays with which it is paired.
///
/// # Errors
/// If one of these is no array, or lacks an index.
pub(crate) fn check_pairs(ctx: &Context, step: &StepId, spec: &StepSpec) -> Result<(), Refusal> {
    let paired = spec.after.iter().filter(|it| it.each);
    for dependency in paired {
        let on = dependency.step.clone();
        let array = ctx.state().step(&on).and_then(|on| on.spec.array.as_ref());
        let (Some(array), Some(own)) = (array, &spec.array) else {
            let step = step.clone();
            return Err(Refusal::NotAnArray { step, on });
        };
        if let Some(index) = own.indexes.minus(&array.indexes).first() {
            let step = step.clone();
            return Err(Refusal::UnpairedPart { step, on, index });
        }
    }
    Ok(())
}

/// Lets go of the steps that wait for steps that have ended: each is considered by the scheduler once all its
/// dependencies are met, and ends if one can never be met any more.
pub(crate) fn resolve_dependencies(ctx: &mut Context) {
    while let Some((step, on)) = ctx.state().index().dependents.first_to_resolve() {
        let (id, on) = (step.clone(), on.clone());
        match broken_dependency(ctx, &id, &on) {
            Some(reason) => ctx.record(Record::StepEnded(record::StepEnded {
                step: id,
                state: StepState::Cancelled,
                reason,
            })),
            None => {
                // Afterwards the array of its counterparts may be forgotten.
                end_unmet_parts(ctx, &id);
                ctx.record(Record::DependencyMet {
                    step: id.clone(),
                    on,
                });
                // The parts of an array are judged as they enter the queue.
                let step = ctx.state().step(&id);
                if step.is_some_and(Step::is_schedulable) {
                    enter_queue(ctx, &id);
                }
            }
        }
    }
}

/// The reason why a step never starts, if `on`, which has ended, did not end as the step requires.
fn broken_dependency(ctx: &Context, id: &StepId, on: &StepId) -> Option<Cause> {
    let after = &ctx.state().step(id)?.spec.after;
    let dependency = after.iter().find(|dependency| dependency.step == *on)?;
    let ended = ctx.state().find(on)?;
    // The parts that are paired have ended one by one.
    if dependency.each || dependency.end.is_met_by(ended.state) {
        return None;
    }
    let mut chain = Vec::new();
    if let Cause::DependencyFailed { chain: before, .. } = &ended.reason {
        chain.clone_from(before);
    }
    if chain.len() >= MAX_CHAIN {
        chain.remove(1);
    }
    chain.push(on.clone());
    Some(Cause::DependencyFailed {
        dependency: dependency.clone(),
        ended: ended.state,
        chain,
    })
}

/// Returns the wait of a step with unmet dependencies.
pub(crate) fn unmet_dependencies(ctx: &Context, step: &Step) -> Wait {
    let unmet = step.spec.after.iter();
    let unmet = unmet.filter(|dependency| step.unmet.contains(&dependency.step));
    let named = unmet.take(NAMED_DEPENDENCIES).filter_map(|dependency| {
        let on = ctx.state().state_of(&dependency.step)?;
        Some((dependency.clone(), on))
    });
    Wait::Dependencies {
        unmet: named.collect(),
        count: step.unmet.len() as u64,
    }
}
