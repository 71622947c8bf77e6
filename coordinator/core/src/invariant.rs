//! Invariants that must hold after every input, as named functions. Tests and the simulator call [`check`] on the
//! core after each input, and [`check_record`] on each record before it is applied to a state of their own.

mod inside;
mod services;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use sluice_common::array::{IndexSet, part_id};
use sluice_common::id::{NodeName, StepId};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::mig::GpuClass;
use sluice_common::state::{NodeState, StepState};
use sluice_scheduler::HostResources;

use crate::attempts::endpoint::ports_on;
use crate::contact::Contact;
use crate::core::Core;
use crate::model::placement::Placement;
use crate::model::pool::Pool;
use crate::model::step::{Attempt, Part, PartPhase, Step, SuspensionPhase};
use crate::record::{self, Record};
use crate::state::{State, StepRow};
use inside::{inside_fits, inside_is_settled, inside_lies_within};
use services::{number_is_in_range, replica_may_be_added, services_are_settled};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{invariant}: {what}")]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: &'static str,
    /// Description of the place where it does not hold.
    pub what: String,
}

type CheckResult = Result<(), Violation>;

fn need(invariant: &'static str, holds: bool, what: impl FnOnce() -> String) -> CheckResult {
    if holds {
        return Ok(());
    }
    Err(Violation {
        invariant,
        what: what(),
    })
}

/// Checks all invariants of a core between two inputs. Goes through the whole state, so it is for tests.
///
/// # Errors
/// The first invariant that does not hold.
pub fn check(core: &Core) -> CheckResult {
    let state = core.state();
    indexes_agree_with_facts(state)?;
    gpus_are_granted_once(state)?;
    ports_are_given_once(state)?;
    for step in state.steps().values() {
        at_most_one_attempt_lives(step)?;
        state_agrees_with_attempts(step)?;
        dependencies_are_awaited(state, step)?;
        parts_agree_with_array(state, step)?;
        allocations_are_had_once(step)?;
    }
    arrays_are_advanced(state)?;
    ready_nodes_are_linked(core)?;
    drained_nodes_are_left(state)?;
    nobody_waits_who_could_start(core)?;
    services_are_settled(core)?;
    inside_lies_within(state)?;
    inside_is_settled(core)?;
    finished_steps_are_bounded(core)
}

/// Checks a new record against the state before it.
///
/// # Errors
/// The record grants resources that are not free, or cuts a GPU that a step has.
pub fn check_record(before: &State, record: &Record) -> CheckResult {
    if let Record::PartQueued(queued) = record {
        return part_may_enter(before, queued);
    }
    if let Record::ReplicaStarted(added) = record {
        return replica_may_be_added(before, added);
    }
    if let Record::ServiceScaled(it) = record {
        return number_is_in_range(before, &it.service, it.count);
    }
    if let Record::GpuCarving { node, order } = record {
        let node = before.node(node);
        let step = node.and_then(|node| before.step_on(node, &order.gpu));
        return need(
            "idle_gpus_are_carved",
            node.is_some() && step.is_none(),
            || format!("{order:?} though {step:?} has it"),
        );
    }
    let Record::Allocated(record::Allocated {
        attempt,
        placements,
        ..
    }) = record
    else {
        return Ok(());
    };
    let name = "grants_fit";
    let step = before.step(&attempt.step);
    need(name, step.is_some(), || format!("{attempt} has no step"))?;
    // After a restore, what an earlier attempt waited for may run again.
    if let Some(step) = step.filter(|_| attempt.number == 1) {
        starts_after_dependencies(before, step)?;
    }
    let hosts: BTreeSet<&NodeName> = placements.iter().map(|placement| &placement.node).collect();
    let wanted = step.map_or(0, |step| step.spec.nodes.max(1) as usize);
    let each_on_its_own = hosts.len() == placements.len() && hosts.len() == wanted;
    need(name, each_on_its_own, || {
        format!("{placements:?} for {wanted} hosts")
    })?;
    if let Some(step) = step.filter(|step| step.spec.inside.is_some()) {
        return inside_fits(before, step, placements);
    }
    for placement in placements {
        let request = step.map(|step| HostResources::from_amounts(&step.spec.request));
        grant_fits(before, request.unwrap_or_default(), placement)?;
        let class = step.map(|step| step.spec.gpu_class()).unwrap_or_default();
        need(name, are_of(before, placement, &class), || {
            format!("{placement:?} is not {class:?} alone")
        })?;
    }
    Ok(())
}

/// Resources granted never exceed what a host has at that time, and only an open, ready host is granted any.
fn grant_fits(before: &State, request: HostResources, placement: &Placement) -> CheckResult {
    let name = "grants_fit";
    if placement.node.is_of_pool() {
        return grant_fits_pool(before, request, placement);
    }
    let node = before.node(&placement.node);
    let Some(node) = node.filter(|node| before.takes_work(node)) else {
        return need(name, false, || {
            format!("`{}` does not take work", placement.node)
        });
    };
    let used = before.index().used_on(&node.name);
    let capacity =
        HostResources::from_amounts(&node.capacity()).with_steps(MAX_ATTEMPTS_PER_NODE as u64);
    // GPUs that vanished while they were granted are used and not there. They are checked one by one below.
    let sum = used.plus(request).with_mgpu(0);
    need(name, capacity.cover(sum), || {
        format!(
            "{request:?} on `{}` with {used:?} of {capacity:?} used",
            node.name
        )
    })?;
    let distinct: BTreeSet<&String> = placement.gpus.iter().collect();
    let gpus = node.inventory.gpus.iter();
    let granted = gpus.filter(|gpu| distinct.contains(&gpu.uuid));
    let mgpu: u64 = granted.map(|gpu| gpu.class().mgpu()).sum();
    let all = mgpu == request.mgpu() && distinct.len() == placement.gpus.len();
    need(name, all, || format!("{placement:?} for {request:?}"))?;
    let free = |uuid: &String| {
        let is_listed = node.inventory.gpus.iter().any(|gpu| gpu.uuid == *uuid);
        is_listed && before.is_free(node, uuid)
    };
    need(name, distinct.into_iter().all(free), || {
        format!("{placement:?} is not free and fit")
    })
}

/// Resources granted never exceed what a pool without hosts declares, and are granted to allocations alone.
fn grant_fits_pool(before: &State, request: HostResources, placement: &Placement) -> CheckResult {
    let name = "grants_fit";
    let mut pools = before.pools().values();
    let pool = pools.find(|pool| NodeName::of_pool(&pool.name) == placement.node);
    let Some((_, host)) = pool.and_then(Pool::in_place_of_hosts) else {
        return need(name, false, || format!("`{}` is no pool", placement.node));
    };
    let used = before.index().used_on(&placement.node);
    let fits = host.capacity.cover(used.plus(request)) && placement.gpus.is_empty();
    need(name, fits, || {
        format!("{request:?} in {placement:?} with {used:?} used")
    })
}

/// Whether GPUs are granted whole or as slices of one profile, as the step asks, and never both.
fn are_of(before: &State, placement: &Placement, class: &GpuClass) -> bool {
    let gpus = before
        .node(&placement.node)
        .map(|node| &node.inventory.gpus);
    let granted = gpus.into_iter().flatten();
    let mut granted = granted.filter(|gpu| placement.gpus.contains(&gpu.uuid));
    granted.all(|gpu| gpu.class() == *class)
}

/// Every index (queues, rows of steps, resources used, ranks of hosts, order of forgetting) equals one that is built from
/// all facts.
fn indexes_agree_with_facts(state: &State) -> CheckResult {
    for listed in state.steps_after(0) {
        let (row, step) = (listed.row, listed.step());
        let agrees = *row == StepRow::of(step)
            && *listed.id() == step.id
            && *listed.name() == step.spec.name
            && (state.scheduler().nomination(&step.id).is_some()
                || state.pool_of_kind(row) == state.pool_of(step));
        need("indexes_agree_with_facts", agrees, || {
            format!("{row:?} is not the row of {}", step.id)
        })?;
    }
    let rebuilt = state.rebuilt_index();
    need(
        "indexes_agree_with_facts",
        *state.index() == rebuilt,
        || format!("{:#?} is not {rebuilt:#?}", state.index()),
    )
}

fn gpus_are_granted_once(state: &State) -> CheckResult {
    let mut granted = BTreeSet::new();
    let steps = state.steps().values();
    for step in steps.filter(|step| step.spec.inside.is_none()) {
        // A frozen attempt holds no GPU.
        let attempts = step.attempts.iter().filter(|attempt| !attempt.is_frozen());
        let parts = attempts.flat_map(|attempt| &attempt.parts);
        for part in parts.filter(|part| part.phase < PartPhase::Released) {
            for gpu in &part.gpus {
                let first = granted.insert((&part.node, gpu));
                need("gpus_are_granted_once", first, || {
                    format!("`{gpu}` of `{}` again to `{}`", part.node, step.id)
                })?;
            }
        }
    }
    Ok(())
}

/// No port of a host is given to two attempts, and only what runs is ready.
fn ports_are_given_once(state: &State) -> CheckResult {
    for node in state.nodes().keys() {
        let mut given = BTreeSet::new();
        for (id, port) in ports_on(state, node) {
            need("ports_are_given_once", given.insert(port), || {
                format!("{port} of `{node}` again to {id}")
            })?;
        }
    }
    for step in state.steps().values() {
        for attempt in &step.attempts {
            let frozen = attempt.stopping.is_some() || attempt.suspension.is_some();
            let succeeds = |part: &&Part| part.endpoint.as_ref().is_some_and(|it| it.succeeds);
            let ready = attempt.parts.iter().find(succeeds);
            let runs = ready.is_none_or(|part| part.phase == PartPhase::Running && !frozen);
            need("only_what_runs_is_ready", runs, || format!("{attempt:?}"))?;
        }
    }
    Ok(())
}

fn at_most_one_attempt_lives(step: &Step) -> CheckResult {
    let earlier = step.attempts.split_last().map_or(&[][..], |(_, rest)| rest);
    need(
        "at_most_one_attempt_lives",
        earlier.iter().all(Attempt::has_ended),
        || format!("step `{}`: {:?}", step.id, step.attempts),
    )
}

/// An allocation has a lease, and is not queued again once its holder has had it.
fn allocations_are_had_once(step: &Step) -> CheckResult {
    let name = "allocations_are_had_once";
    let is_one = step.spec.lease.is_some();
    need(name, is_one == step.lease.is_some(), || {
        format!("step `{}` has the lease {:?}", step.id, step.lease)
    })?;
    let was_had = step.attempts.iter().any(Attempt::has_run);
    let is_again = is_one && was_had && step.state == StepState::Queued;
    need(name, !is_again, || {
        format!("`{}` is queued again: {:?}", step.id, step.reason)
    })
}

fn state_agrees_with_attempts(step: &Step) -> CheckResult {
    let live = step.live();
    let all = |least| live.is_some_and(|live| live.parts.iter().all(|p| p.phase >= least));
    let begun = live.is_some_and(|live| live.parts.iter().any(|p| p.phase > PartPhase::Allocated));
    let stopping = live.is_some_and(|live| live.stopping.is_some());
    let expected = match live {
        None => step.state == StepState::Queued || step.state.is_terminal(),
        Some(_) if stopping => step.state == StepState::Stopping,
        Some(live) if live.suspension.is_some() => {
            step.state
                == match live.suspension() {
                    Some(SuspensionPhase::Suspending) => StepState::Suspending,
                    Some(SuspensionPhase::Suspended) => StepState::Suspended,
                    Some(SuspensionPhase::Resuming) | None => StepState::Resuming,
                }
        }
        Some(_) if all(PartPhase::Running) => step.state == StepState::Running,
        Some(_) if begun => step.state == StepState::Starting,
        Some(_) => step.state == StepState::Allocated,
    };
    let expected = match &step.array {
        Some(_) => step.attempts.is_empty(),
        None => expected,
    };
    let over = step.finished.is_some() == step.state.is_terminal();
    need("state_agrees_with_attempts", expected && over, || {
        format!("{step:?}")
    })
}

/// A step waits for those on which it depends only while it is queued, and these are known and have not ended.
fn dependencies_are_awaited(state: &State, step: &Step) -> CheckResult {
    let is_open = |on: &StepId| {
        let known = state.state_of(on);
        known.is_some_and(|known| !known.is_terminal())
    };
    let holds = step.unmet.iter().all(is_open);
    // An array may run while it waits for the arrays with which it is paired.
    let waits = step.state == StepState::Queued || step.array.is_some();
    let queued = step.unmet.is_empty() || waits && !step.state.is_terminal();
    need("dependencies_are_awaited", holds && queued, || {
        format!("{step:?}")
    })
}

/// Each index of an array is in one place: it waits, is open as a step of its own, or has ended in one way. A part that is
/// remembered as a step agrees with that.
fn parts_agree_with_array(state: &State, step: &Step) -> CheckResult {
    let name = "parts_agree_with_array";
    if let Some(part) = &step.part_of {
        let array = state.step(&part.array).and_then(|it| it.array.as_ref());
        // An array may be forgotten before the last of its parts.
        let agrees = array.is_none_or(|array| match step.state.is_terminal() {
            true => array
                .end_of(part.index)
                .is_some_and(|end| end.state == step.state),
            false => array.open.contains(part.index),
        });
        let is_its = step.id == part_id(&part.array, part.index);
        need(name, agrees && is_its, || format!("{step:?} of {array:?}"))?;
    }
    let spec = step.spec.array.as_ref();
    let Some((array, spec)) = step.array.as_ref().zip(spec) else {
        return need(name, step.array.is_none() && spec.is_none(), || {
            format!("{step:?}")
        });
    };
    let mut all = IndexSet::default();
    let ends = array.ends.iter().map(|ends| &ends.parts);
    for parts in ends.chain([&array.waiting, &array.open]) {
        need(name, all.and(parts).is_empty(), || format!("{step:?}"))?;
        all.add_all(parts);
    }
    need(name, all == *spec.indexes, || format!("{step:?}"))?;
    let is_step = |index| {
        let part = state.step(&part_id(&step.id, index));
        part.is_some_and(|part| part.part_of.is_some() && !part.state.is_terminal())
    };
    need(name, array.open.iter().all(is_step), || format!("{step:?}"))?;
    let over = array.waiting.is_empty() && array.open.is_empty();
    need(name, over == step.state.is_terminal(), || {
        format!("{step:?}")
    })
}

/// No array has a next change that follows from its state.
fn arrays_are_advanced(state: &State) -> CheckResult {
    let due = state.index().arrays.first_due();
    need("arrays_are_advanced", due.is_none(), || format!("{due:?}"))
}

/// A part enters the queue once, and not beyond the parts that its array lets be at work at once.
fn part_may_enter(before: &State, queued: &record::PartQueued) -> CheckResult {
    let step = before.step(&queued.array);
    let array = step.and_then(|step| step.array.as_ref().zip(step.spec.array.as_ref()));
    let may = array.is_some_and(|(array, spec)| {
        array.waiting.contains(queued.index) && array.open.len() < spec.most_at_once()
    });
    need("part_may_enter", may, || format!("{queued:?} of {step:?}"))
}

/// No step starts before those on which it depends have ended as required.
fn starts_after_dependencies(before: &State, step: &Step) -> CheckResult {
    let broken = step.spec.after.iter().find(|dependency| {
        // One that ended long ago may be forgotten.
        let on = before.state_of(&dependency.step);
        on.is_some_and(|on| !on.is_terminal() || !dependency.end.is_met_by(on))
    });
    need(
        "starts_after_dependencies",
        broken.is_none() && step.is_ready(),
        || format!("`{}` starts before {broken:?}", step.id),
    )
}

/// A ready node is connected, has a supervisor and holds no strays; a reconciling one holds some.
fn ready_nodes_are_linked(core: &Core) -> CheckResult {
    for node in core.state().nodes().values() {
        let contact = core.context().contact(&node.name);
        let linked = contact.is_some_and(|contact| contact.session.is_some());
        let stray = contact.is_some_and(Contact::holds_unknown);
        let supervised =
            contact.is_some_and(|contact| contact.supervisor.unresponsive_reason().is_none());
        let holds = match node.state {
            NodeState::Ready => linked && supervised && !stray,
            NodeState::Reconciling => linked && supervised && stray,
            NodeState::Unsupervised => linked && !supervised,
            NodeState::Unreachable | NodeState::Lost => true,
        };
        need("ready_nodes_are_linked", holds, || {
            format!("`{}` is {} with {contact:?}", node.name, node.state)
        })?;
    }
    Ok(())
}

/// Preemptible attempts on a drained node are being stopped, and the node is marked as empty when nothing is left.
fn drained_nodes_are_left(state: &State) -> CheckResult {
    let drained = state.nodes().values().filter(|node| node.drain().is_some());
    for node in drained {
        for id in state.attempts_on(&node.name) {
            let step = state.step(&id.step);
            let stays = step.is_some_and(|step| {
                let attempt = step.attempt(id.number).filter(|a| !a.has_ended());
                let is_outside = step.spec.inside.is_none();
                is_outside && step.spec.preemptible && attempt.is_some_and(|a| a.stopping.is_none())
            });
            need("drained_nodes_are_left", !stays, || {
                format!("{id} stays on `{}`", node.name)
            })?;
        }
        let empty = state.attempts_on(&node.name).next().is_none();
        let noted = node
            .drain()
            .is_some_and(|drain| drain.empty_since.is_some());
        need("drained_nodes_are_left", empty == noted, || {
            format!("{node:?}")
        })?;
    }
    Ok(())
}

/// The scheduler was run after every change that could let a step start.
fn nobody_waits_who_could_start(core: &Core) -> CheckResult {
    if core.state().recovery().is_some() {
        return Ok(());
    }
    for pool in core.state().pools().keys() {
        let missed = core
            .state()
            .scheduler()
            .next_decision(pool, core.context().now());
        need("nobody_waits_who_could_start", missed.is_none(), || {
            format!("{missed:?}")
        })?;
    }
    Ok(())
}

fn finished_steps_are_bounded(core: &Core) -> CheckResult {
    let finished = core.state().index().finished().len();
    let bound = core.settings().bounds.keep_finished;
    need("finished_steps_are_bounded", finished <= bound, || {
        format!("{finished} of {bound}")
    })
}
