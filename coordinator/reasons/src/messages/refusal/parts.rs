//! Parts of the sentences of refusals.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use crate::messages::shortened;

/// Most steps that a message names.
const NAMED_STEPS: usize = 5;

pub(super) fn named(steps: &[StepId]) -> String {
    let names = steps.iter().map(|step| format!("`{step}`"));
    shortened(names.collect(), NAMED_STEPS)
}

/// Steps that are to start after each other; not empty.
pub(super) fn cycle(steps: &[StepId]) -> String {
    match steps {
        [only] => format!("step `{only}` is to start after itself: remove it from its `after`"),
        [] | [_, ..] => format!(
            "steps {} are to start each after the next one, and the last after the first, so that none could start: remove \
             one from the `after` of the one before it",
            named(steps)
        ),
    }
}

pub(super) fn hosts(nodes: &[NodeName]) -> String {
    match nodes {
        [only] => format!("node `{only}` is"),
        [first, ..] => format!("{} nodes, `{first}` among them, are", nodes.len()),
        [] => String::from("nodes are"),
    }
}

pub(super) fn held_by(steps: &[StepId]) -> String {
    match steps {
        [only] => format!("allocation `{only}` holds resources"),
        [first, ..] => format!(
            "{} allocations, `{first}` among them, hold resources",
            steps.len()
        ),
        [] => String::from("allocations hold resources"),
    }
}

/// The words before the name of a pool, if the sentence is about a platform of it.
pub(super) fn of_platform(platform: Option<&PlatformName>) -> String {
    platform.map_or_else(String::new, |it| format!("platform `{it}` of "))
}

pub(super) fn missing(is_deleted: bool) -> &'static str {
    match is_deleted {
        true => "cannot be deleted, because",
        false => "is not there, and",
    }
}

pub(super) fn instead(nearest: Option<&str>, is_deleted: bool) -> String {
    match (nearest, is_deleted) {
        (_, true) => String::from("remove it there first"),
        (Some(near), false) => format!("did you mean `{near}`?"),
        (None, false) => String::from("apply it too, or remove it there"),
    }
}

pub(super) fn elsewhere(named: &bool) -> &'static str {
    match named {
        true => ", or leave out `pool`, so that it may run in another",
        false => "",
    }
}

pub(super) fn standing(version: u64) -> String {
    match version {
        0 => String::from("does not exist"),
        version => format!("is at version {version}"),
    }
}

pub(super) fn declared(named: bool, known: &[PlatformName]) -> String {
    let names = quoted(known);
    match (named, known) {
        (true, []) => String::from(
            ", which is to be its default: declare it with `kind: platform`, or wait for a host that is of it",
        ),
        (true, _) => format!(
            ", which is to be its default: declare it with `kind: platform`, or name one of {names}"
        ),
        (false, []) => String::from(": it declares none"),
        (false, _) => format!(": it declares {names}"),
    }
}

pub(super) fn in_use(uses: &[Use]) -> String {
    let uses = uses.iter();
    let uses: Vec<String> = uses
        .map(|it| match &it.steps[..] {
            [] => format!("{it}"),
            steps => format!("{it} ({})", named(steps)),
        })
        .collect();
    format!(
        "{}: free it first, or force the change with `--force` (`force=true`), which stops nothing that runs",
        uses.join("; ")
    )
}

pub(super) fn gpus_of(known: &[String]) -> String {
    match known {
        [] => String::from("it has none"),
        [only] => format!("name one by its index or by UUID, such as `{only}`"),
        [first, .., last] => format!(
            "name one of its {} by index or by UUID, from `{first}` to `{last}`",
            known.len()
        ),
    }
}

/// The way to move a step that does not wait.
pub(super) fn way_to_move(step: &StepId, state: StepState) -> String {
    if state == StepState::Stopping {
        return String::from("try again if it is queued after it has stopped");
    }
    format!(
        "`sluice requeue {step}` stops it and queues it again in its old place, and then it can be moved"
    )
}

/// Says that a step is over, and the way on; of an allocation also the reason.
pub(super) fn way_on(step: &StepId, state: StepState, ended: Option<&Cause>) -> String {
    match ended {
        None => format!("step `{step}` is {state}: it is over, submit it again to run it again"),
        Some(why) => format!(
            "the allocation `{step}` has ended ({}): ask for another with `sluice allocate`",
            why.to_reason().message
        ),
    }
}

/// The way to delete a step.
pub(super) fn way_to_delete(step: &StepId, state: StepState) -> String {
    if state.is_terminal() {
        return String::from(
            "its resources are not seen free yet: delete it when they are, which `sluice explain` shows",
        );
    }
    format!("only steps that have ended are deleted: `sluice cancel {step}` first")
}

/// The indexes of an array, or how many they are if they are many.
pub(super) fn indexes_of(indexes: &IndexSet) -> String {
    match (indexes.range_count(), indexes.first(), indexes.last()) {
        (0..=5, _, _) | (_, None, _) | (_, _, None) => format!("the indexes {indexes}"),
        (_, Some(first), Some(last)) => {
            format!("{} indexes from {first} to {last}", indexes.len())
        }
    }
}

/// Words for a version that a service does not have.
pub(super) fn no_revision(service: &ServiceName, revision: Option<u32>, known: &[u32]) -> String {
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    let known = known.join(", ");
    match revision {
        Some(revision) => {
            format!("service `{service}` has no version {revision}: it keeps {known}")
        }
        None => format!(
            "service `{service}` has no version before the present one that differs from it: it keeps {known}"
        ),
    }
}
