//! What hosts say of attempts, held against what is true here. A status is where an attempt stands now: it implies all
//! that came before, a repeat is harmless, and it never takes an attempt back.
//!
//! An attempt is *live on* a node while it holds units there. One that a host holds and that is not live on it is a
//! *stray*: it was ended here (its host was lost, say) or never known, so it is stopped, and none of the host's units
//! are given until it is gone.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::limit::{DEFAULT_GRACE, MAX_ATTEMPTS_PER_NODE};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::usage::Usage;
use sluice_common::wire::{
    AttemptEnd, AttemptPhase, AttemptStatus, Gang, Started, StopWhy, ToNode,
};

use crate::admin::note_empty;
use crate::context::Context;
use crate::launch;
use crate::model::step::{Attempt, Part, PartPhase, Step};
use crate::patience::queue_again;
use crate::record::Record;
use crate::recovery::adoption::{ask_for_warrant, may_be_adopted};
use crate::recovery::{follow_suspension, lose_track};
use crate::suspend::{
    on_answer_to_resume, on_host_not_suspended, on_host_runs, on_host_suspended, steer_again,
};
use crate::verdict::{Verdict, verdict};
use crate::words;

/// Settles what a hello lists, and what it does not list.
pub(crate) fn reconcile(
    ctx: &mut Context,
    node: &NodeName,
    statuses: Vec<AttemptStatus>,
    rebooted: bool,
) {
    let listed: BTreeSet<AttemptId> = statuses.iter().map(|s| s.attempt.clone()).collect();
    if ctx.state().recovery().is_some() {
        // What holds nothing there any more goes first: others may have its GPUs.
        miss(ctx, node, &listed, rebooted);
        let (running, idle) = statuses.into_iter().partition(|s| holds_gpus(&s.phase));
        let (running, idle): (Vec<_>, Vec<_>) = (running, idle);
        let in_order = idle.into_iter().chain(running);
        in_order.for_each(|status| take_listed(ctx, node, status));
        return;
    }
    for status in statuses {
        take_listed(ctx, node, status);
    }
    miss(ctx, node, &listed, rebooted);
}

/// Takes in a status that shows what its host missed.
pub(crate) fn take_listed(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    let id = status.attempt.clone();
    let is_frozen = matches!(
        status.phase,
        AttemptPhase::Suspending(_) | AttemptPhase::Suspended { .. }
    );
    let missed_stop = match &status.phase {
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Suspended { .. }
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. } => Some(id),
        AttemptPhase::Stopping { .. } | AttemptPhase::Ended(_) | AttemptPhase::Released(_) => None,
    };
    take_status(ctx, node, status);
    if let Some(attempt) = missed_stop {
        stop_again(ctx, node, &attempt);
        steer_again(ctx, &attempt, is_frozen);
    }
}

/// Settles what is live on a node that does not list it.
fn miss(ctx: &mut Context, node: &NodeName, listed: &BTreeSet<AttemptId>, rebooted: bool) {
    let held: Vec<AttemptId> = ctx.state().attempts_on(node).cloned().collect();
    for attempt in held.iter().filter(|attempt| !listed.contains(attempt)) {
        on_missing(ctx, node, attempt, rebooted);
    }
}

/// The order to stop was lost with an earlier connection.
fn stop_again(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    if let Some((step, attempt, _)) = live_on(ctx, node, id)
        && let Some(why) = attempt.stopping
    {
        let grace = attempt.grace(step);
        send_stop(ctx, node, id, why, grace);
    }
}

pub(crate) fn send_stop(
    ctx: &mut Context,
    node: &NodeName,
    id: &AttemptId,
    why: StopWhy,
    grace: Span,
) {
    let attempt = id.clone();
    let order = ToNode::Stop {
        attempt,
        why,
        grace,
    };
    ctx.send(node, order);
}

/// An attempt that is live on a node which does not know it.
fn on_missing(ctx: &mut Context, node: &NodeName, id: &AttemptId, rebooted: bool) {
    let Some((_, attempt, part)) = live_on(ctx, node, id) else {
        return;
    };
    // A host lists whatever it has begun, so one that was not seen running has not: the order was lost with an
    // agent, be it before or after that agent had acknowledged it.
    let unbegun = part.phase <= PartPhase::Starting && attempt.stopping.is_none();
    if part.phase == PartPhase::Ended {
        record_released(ctx, node, id);
    } else if rebooted {
        vanish(ctx, node, id, Exit::HostRebooted);
    } else if ctx.state().recovery().is_some() {
        lose_track(ctx, node, id);
    } else if unbegun {
        send_assignment(ctx, node, id);
    } else {
        vanish(ctx, node, id, Exit::Unknown);
    }
}

/// Ends an attempt of which nothing is left, by our own clock and word.
pub(crate) fn vanish(ctx: &mut Context, node: &NodeName, id: &AttemptId, exit: Exit) {
    let Some((_, attempt, part)) = live_on(ctx, node, id) else {
        return;
    };
    let end = AttemptEnd {
        started: part.started,
        exit,
        stopped: attempt.stopping,
        at: ctx.now(),
        usage: Usage::default(),
    };
    at_least_ended(ctx, node, id, end);
    record_released(ctx, node, id);
}

/// Takes a status in. Whoever calls settles the node afterwards.
pub(crate) fn take_status(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    if live_on(ctx, node, &status.attempt).is_some() {
        follow(ctx, node, status);
    } else if may_be_adopted(ctx, &status.attempt) {
        ask_for_warrant(ctx, node, status);
    } else {
        on_stray(ctx, node, status);
    }
}

fn follow(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    let AttemptStatus { attempt: id, phase } = status;
    if !matches!(phase, AttemptPhase::Suspended { .. }) {
        on_answer_to_resume(ctx, node, &id);
    }
    match phase {
        AttemptPhase::Starting => at_least_starting(ctx, node, &id),
        AttemptPhase::Running(process) => {
            at_least_running(ctx, node, &id, process);
            follow_suspension(ctx, node, &id, None);
            on_host_runs(ctx, node, &id);
        }
        AttemptPhase::Suspending(process) => at_least_running(ctx, node, &id, process),
        AttemptPhase::Resuming(process) => {
            at_least_running(ctx, node, &id, process);
            follow_suspension(ctx, node, &id, None);
        }
        AttemptPhase::Suspended { started, moved_mb } => {
            at_least_running(ctx, node, &id, started);
            follow_suspension(ctx, node, &id, Some(moved_mb));
            on_host_suspended(ctx, node, &id, moved_mb);
        }
        AttemptPhase::NotSuspended { started, why } => {
            at_least_running(ctx, node, &id, started);
            on_host_not_suspended(ctx, node, &id, why);
        }
        AttemptPhase::Stopping { started, why } => at_least_stopping(ctx, node, &id, started, why),
        AttemptPhase::Ended(end) => at_least_ended(ctx, node, &id, end),
        AttemptPhase::Released(end) => {
            at_least_ended(ctx, node, &id, end);
            record_released(ctx, node, &id);
            ctx.send(node, ToNode::Forget { attempt: id });
        }
    }
}

fn at_least_starting(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    if phase_on(ctx, node, id) == Some(PartPhase::Allocated) {
        ctx.record(Record::Starting {
            attempt: id.clone(),
            node: node.clone(),
        });
    }
}

fn at_least_running(ctx: &mut Context, node: &NodeName, id: &AttemptId, process: Started) {
    at_least_starting(ctx, node, id);
    if phase_on(ctx, node, id) == Some(PartPhase::Starting) {
        ctx.record(Record::Started {
            attempt: id.clone(),
            node: node.clone(),
            process,
        });
    }
}

fn at_least_stopping(
    ctx: &mut Context,
    node: &NodeName,
    id: &AttemptId,
    started: Option<Started>,
    why: StopWhy,
) {
    match started {
        Some(process) => at_least_running(ctx, node, id, process),
        None => at_least_starting(ctx, node, id),
    }
    let live = live_on(ctx, node, id);
    let untold = live.is_some_and(|(_, attempt, part)| {
        part.phase < PartPhase::Ended && attempt.stopping.is_none()
    });
    if untold {
        ctx.record(Record::Stopping {
            attempt: id.clone(),
            why,
            by: None,
            grace: None,
        });
        // What a host stops by itself is stopped on the others too.
        send_stops(ctx, id, why, Some(node));
    }
}

pub(crate) fn at_least_ended(ctx: &mut Context, node: &NodeName, id: &AttemptId, end: AttemptEnd) {
    if let Some(process) = end.started {
        at_least_running(ctx, node, id, process);
    }
    if phase_on(ctx, node, id).is_none_or(|p| p >= PartPhase::Ended) {
        return;
    }
    let failed = match &end.exit {
        Exit::HostFailed(sentence) => Some(sentence.clone()),
        Exit::Code(_)
        | Exit::Signal(_)
        | Exit::PrologFailed(_)
        | Exit::NotBegun(_)
        | Exit::StartFailed(_)
        | Exit::LeaseExpired
        | Exit::HostRebooted
        | Exit::OutOfMemory(_)
        | Exit::StorageExceeded(_)
        | Exit::Unknown => None,
    };
    let stopped = end.stopped;
    ctx.record(Record::Ended {
        attempt: id.clone(),
        node: node.clone(),
        end,
    });
    if let Some(sentence) = failed {
        close_failing(ctx, node, &id.step, &sentence);
    }
    end_as_one(ctx, id, stopped);
    conclude(ctx, id);
}

/// A host that cannot start a step cannot start the next one either: it would take the queue and fail it, step by
/// step. It is closed until an admin has seen to it.
fn close_failing(ctx: &mut Context, node: &NodeName, step: &StepId, sentence: &str) {
    let open = ctx
        .state()
        .node(node)
        .is_some_and(|node| node.cordon.is_none());
    if open {
        ctx.record(Record::NodeCordoned {
            node: node.clone(),
            reason: words::closed_for(step, sentence),
        });
    }
}

/// A gang of which one part failed or was lost is stopped on its other hosts; `stopped` is why the part was being
/// stopped by its own host, where it was.
fn end_as_one(ctx: &mut Context, id: &AttemptId, stopped: Option<StopWhy>) {
    let step = ctx.state().step(&id.step);
    let attempt = step.and_then(|step| step.attempt(id.number));
    let broken = attempt.is_some_and(|attempt| {
        attempt.broken_by.is_some()
            && attempt.stopping.is_none()
            && attempt.unended().next().is_some()
    });
    if broken {
        let why = stopped.unwrap_or(StopWhy::PeerEnded);
        stop_attempt(ctx, id, why, None);
    }
}

/// Records that an attempt is to stop and tells every host on which it has not ended.
pub(crate) fn stop_attempt(ctx: &mut Context, id: &AttemptId, why: StopWhy, by: Option<StepId>) {
    stop_attempt_within(ctx, id, why, by, None);
}

/// The same, with a grace of its own where that is the shorter one.
pub(crate) fn stop_attempt_within(
    ctx: &mut Context,
    id: &AttemptId,
    why: StopWhy,
    by: Option<StepId>,
    grace: Option<Span>,
) {
    ctx.record(Record::Stopping {
        attempt: id.clone(),
        why,
        by,
        grace,
    });
    send_stops(ctx, id, why, None);
}

/// Tells every host on which an attempt has not ended to stop it, but for the one that knows.
pub(crate) fn send_stops(ctx: &mut Context, id: &AttemptId, why: StopWhy, but: Option<&NodeName>) {
    let Some(step) = ctx.state().step(&id.step) else {
        return;
    };
    let attempt = step.attempt(id.number);
    let grace = attempt.map_or(step.spec.grace, |attempt| attempt.grace(step));
    let parts = attempt.into_iter();
    let hosts = parts.flat_map(Attempt::unended).map(|part| &part.node);
    let hosts = hosts.filter(|host| Some(*host) != but);
    for host in hosts.cloned().collect::<Vec<NodeName>>() {
        send_stop(ctx, &host, id, why, grace);
    }
}

/// The step goes on as soon as its attempt has ended on every host: users see the end at once, while the units
/// come back when the hosts have seen them free.
fn conclude(ctx: &mut Context, id: &AttemptId) {
    let Some(step) = ctx.state().step(&id.step) else {
        return;
    };
    let Some(attempt) = step.attempt(id.number).filter(|a| a.has_ended()) else {
        return;
    };
    let step_id = id.step.clone();
    let mut hosts = attempt.parts.iter().map(|part| &part.node);
    let drained = hosts.find(|host| {
        let node = ctx.state().node(host);
        node.is_some_and(|node| node.drain().is_some())
    });
    match verdict(step, attempt, drained) {
        Verdict::Over(state, reason) => ctx.record(Record::StepEnded {
            step: step_id,
            state,
            reason,
        }),
        Verdict::Again(reason) => queue_again(
            ctx,
            Record::Requeued {
                step: step_id,
                reason,
            },
        ),
    }
}

pub(crate) fn record_released(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    ctx.record(Record::Released {
        attempt: id.clone(),
        node: node.clone(),
    });
    note_empty(ctx, node);
}

pub(crate) fn on_stray(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    let AttemptStatus { attempt: id, phase } = status;
    match phase {
        AttemptPhase::Released(_) => {
            if let Some(contact) = ctx.contact_mut(node) {
                contact.strays.remove(&id);
            }
            ctx.send(node, ToNode::Forget { attempt: id });
        }
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Stopping { .. }
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Suspended { .. }
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. }
        | AttemptPhase::Ended(_) => stop_new_stray(ctx, node, &id),
    }
}

/// Each stray is told once on a connection. A host cannot hold more attempts than its bound, so what is made up
/// beyond it is told to stop and not remembered.
fn stop_new_stray(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    let Some(contact) = ctx.contact_mut(node) else {
        return;
    };
    if contact.strays.contains(id) {
        return;
    }
    if contact.strays.len() < MAX_ATTEMPTS_PER_NODE {
        contact.strays.insert(id.clone());
    }
    stop_stray(ctx, node, id);
}

fn stop_stray(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    let step = ctx.state().step(&id.step);
    let grace = step.map_or(DEFAULT_GRACE, |step| step.spec.grace);
    send_stop(ctx, node, id, StopWhy::Superseded, grace);
}

/// Tells every stray again, after a silence in which the first order may have been lost.
pub(crate) fn stop_strays(ctx: &mut Context, node: &NodeName) {
    let contact = ctx.contact(node);
    let strays: Vec<AttemptId> = contact
        .map(|contact| contact.strays.iter().cloned().collect())
        .unwrap_or_default();
    for id in &strays {
        stop_stray(ctx, node, id);
    }
}

/// Tells a host what to run.
pub(crate) fn send_assignment(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    if let Some((step, attempt, part)) = live_on(ctx, node, id) {
        let gang = gang(ctx, attempt, part);
        let assignment = launch::assignment(id, (step, attempt, part), ctx.state(), gang);
        ctx.send(node, ToNode::Assign(Box::new(assignment)));
    }
}

/// The place of a part among the others.
fn gang(ctx: &Context, attempt: &Attempt, part: &Part) -> Gang {
    let rank = (0..).zip(&attempt.parts);
    let rank = rank.filter(|(_, other)| other.node == part.node);
    let address = |part: &Part| match ctx.state().node(&part.node) {
        Some(node) => String::from(node.address()),
        None => String::from(part.node.as_str()),
    };
    Gang {
        rank: rank.map(|(rank, _)| rank).next().unwrap_or_default(),
        hosts: attempt.parts.iter().map(address).collect(),
        port: attempt.port,
    }
}

fn phase_on(ctx: &Context, node: &NodeName, id: &AttemptId) -> Option<PartPhase> {
    live_on(ctx, node, id).map(|(_, _, part)| part.phase)
}

/// An attempt that holds units on a node.
pub(crate) fn live_on<'a>(
    ctx: &'a Context,
    node: &NodeName,
    id: &AttemptId,
) -> Option<(&'a Step, &'a Attempt, &'a Part)> {
    let step = ctx.state().step(&id.step)?;
    let attempt = step.attempt(id.number)?;
    let part = attempt.on(node)?;
    (part.phase < PartPhase::Released).then_some((step, attempt, part))
}

/// Whether an attempt in this phase may have the GPUs that it was given.
fn holds_gpus(phase: &AttemptPhase) -> bool {
    match phase {
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Stopping { .. }
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. }
        | AttemptPhase::Ended(_) => true,
        AttemptPhase::Suspended { .. } | AttemptPhase::Released(_) => false,
    }
}
