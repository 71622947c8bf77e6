//! The steps of one call, each after those on which it depends.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::id::StepId;

use crate::input::NewStep;
use crate::output::Refusal;

/// Puts the steps of a call in the order in which they can be submitted: as they come, but each after those on which it
/// depends. A step in a cycle, or after one that is, is refused. Each has its place in the call.
pub(crate) fn dependencies_first(steps: Vec<NewStep>) -> Vec<(usize, Result<NewStep, Refusal>)> {
    if steps.iter().all(|step| step.spec.after.is_empty()) {
        return steps.into_iter().map(Ok).enumerate().collect();
    }
    let order = order(&steps);
    let mut steps: Vec<Option<NewStep>> = steps.into_iter().map(Some).collect();
    let mut take = |place: usize| steps[place].take();
    let mut ordered = Vec::new();
    for place in order {
        ordered.extend(take(place).map(|step| (place, Ok(step))));
    }
    let rest: Vec<usize> = (0..steps.len())
        .filter(|place| steps[*place].is_some())
        .collect();
    let cycle = cycle(&steps);
    let refused = |place| {
        (
            place,
            Err(Refusal::DependencyCycle {
                steps: cycle.clone(),
            }),
        )
    };
    ordered.extend(rest.into_iter().map(refused));
    ordered
}

/// The places of the steps that are in no cycle and after none, each after those on which it depends.
fn order(steps: &[NewStep]) -> Vec<usize> {
    let mut places: BTreeMap<&StepId, usize> = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        // A second step with the same id is a repeat of the first.
        places.entry(&step.id).or_insert(place);
    }
    let mut followers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut missing: Vec<usize> = Vec::with_capacity(steps.len());
    for (place, step) in steps.iter().enumerate() {
        let after = step.spec.after.iter();
        let after: Vec<usize> = after
            .filter_map(|it| places.get(&it.step).copied())
            .collect();
        missing.push(after.len());
        for on in after {
            followers.entry(on).or_default().push(place);
        }
    }
    let free = (0..steps.len()).filter(|place| missing[*place] == 0);
    let mut ready: BTreeSet<usize> = free.collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(place) = ready.pop_first() {
        order.push(place);
        for follower in followers.get(&place).into_iter().flatten() {
            missing[*follower] -= 1;
            if missing[*follower] == 0 {
                ready.insert(*follower);
            }
        }
    }
    order
}

/// A cycle among the steps that are left; each of these depends on one that is left too.
fn cycle(left: &[Option<NewStep>]) -> Vec<StepId> {
    let left = left.iter().flatten();
    let by_id: BTreeMap<&StepId, &NewStep> = left.map(|step| (&step.id, step)).collect();
    let Some((first, _)) = by_id.first_key_value() else {
        return Vec::new();
    };
    let mut path: Vec<&StepId> = Vec::new();
    let mut at: BTreeMap<&StepId, usize> = BTreeMap::new();
    let mut next = Some(*first);
    while let Some(id) = next {
        if let Some(begin) = at.get(id) {
            return path[*begin..].iter().map(|id| (*id).clone()).collect();
        }
        at.insert(id, path.len());
        path.push(id);
        let after = by_id.get(id).into_iter().flat_map(|step| &step.spec.after);
        next = after.map(|it| &it.step).find(|id| by_id.contains_key(*id));
    }
    Vec::new()
}
