//! Invariants of the steps inside allocations.

use alloc::collections::BTreeSet;
use alloc::format;

use sluice_common::state::StepState;

use super::{CheckResult, need};
use crate::core::Core;
use crate::inside::room::{place, rooms};
use crate::inside::settle::missed_inside;
use crate::model::placement::Placement;
use crate::model::step::{Attempt, Part, PartPhase, Step};
use crate::state::State;

/// A step is granted only what its allocation holds and no other step inside it has.
pub(super) fn inside_fits(before: &State, step: &Step, placements: &[Placement]) -> CheckResult {
    let name = "inside_fits";
    let allocation = step.spec.inside.as_ref().and_then(|id| before.step(id));
    let held = allocation.filter(|held| held.state == StepState::Running);
    let held = held.and_then(|held| Some((held, held.live()?)));
    let Some((held, attempt)) = held else {
        return need(name, false, || format!("`{}` has no allocation", step.id));
    };
    let granted: BTreeSet<_> = placements.iter().map(|it| &it.node).collect();
    let mut rooms = rooms(before, held, attempt);
    rooms.retain(|room| granted.contains(&room.node));
    let fits = place(&rooms, &step.spec.request, placements.len()).is_ok();
    let gpus = placements.iter().all(|placement| {
        let room = rooms.iter().find(|room| room.node == placement.node);
        let distinct: BTreeSet<_> = placement.gpus.iter().collect();
        let is_free = |gpu: &&alloc::string::String| room.is_some_and(|it| it.gpus.contains(gpu));
        distinct.len() == placement.gpus.len() && distinct.into_iter().all(|it| is_free(&it))
    });
    need(name, fits && gpus, || {
        format!("{placements:?} for `{}` in {rooms:?}", step.id)
    })
}

/// The allocation of a step inside it holds all that the step holds on a host, and the ledgers of hosts and pools count
/// nothing of the step.
pub(super) fn inside_lies_within(state: &State) -> CheckResult {
    for step in state.steps().values() {
        let Some(allocation) = &step.spec.inside else {
            continue;
        };
        for attempt in &step.attempts {
            let run = state.scheduler().run(&step.attempt_id(attempt.number));
            need("inside_is_not_counted", run.is_none(), || {
                format!("{run:?}")
            })?;
            for part in attempt.parts.iter().filter(holds) {
                let held = state.step(allocation).into_iter();
                let parts = held.flat_map(|held| &held.attempts);
                let mut parts = parts
                    .filter_map(|it: &Attempt| it.on(&part.node))
                    .filter(holds);
                let covers = |held: &Part| part.gpus.iter().all(|gpu| held.gpus.contains(gpu));
                need("inside_lies_within", parts.any(covers), || {
                    format!("`{}` holds {part:?} without `{allocation}`", step.id)
                })?;
            }
        }
    }
    Ok(())
}

fn holds(part: &&Part) -> bool {
    part.phase < PartPhase::Released
}

/// No step inside an allocation waits that could start, and none is left alone that must end.
pub(super) fn inside_is_settled(core: &Core) -> CheckResult {
    let ctx = core.context();
    if ctx.state().recovery().is_some() {
        return Ok(());
    }
    for allocation in ctx.state().index().inside.allocations() {
        let missed = missed_inside(ctx, allocation);
        need("inside_is_settled", missed.is_none(), || {
            format!("{missed:?} inside `{allocation}`")
        })?;
    }
    Ok(())
}
