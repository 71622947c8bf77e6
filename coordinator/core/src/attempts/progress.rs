//! Follows the progress of an attempt: each stage is recorded once, whatever reports were missed, and at the end the
//! step is over or queued again.

use alloc::boxed::Box;

use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::keep::KeptFiles;
use sluice_common::supervision::Exit;
use sluice_common::usage::Usage;
use sluice_common::wire::{AttemptEnd, AttemptPhase, StartedProcess, StopReason};
use sluice_reasons::messages::recorded::closed_for;

use crate::attempts::live::{live_on, phase_on};
use crate::attempts::orders::{send_stops, stop_attempt};
use crate::attempts::queue_timeout::queue_again;
use crate::attempts::retry_policy::{RetryDecision, retry_decision};
use crate::context::Context;
use crate::hosts::drain::note_empty;
use crate::inside::room::is_used_inside;
use crate::model::step::{Attempt, PartPhase};
use crate::record;
use crate::record::Record;

/// Ends an attempt of which nothing is left, by the coordinator's own clock.
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
        kept: None,
    };
    if is_used_inside(ctx.state(), node, &id.step) {
        return hold_back(ctx, node, id.clone(), AttemptPhase::Released(end));
    }
    at_least_ended(ctx, node, id, end);
    record_released(ctx, node, id, None);
}

/// Keeps the end of an allocation until no step inside it holds a part of it on this host. One that ended by itself is over
/// at once, so that those steps are stopped.
pub(crate) fn hold_back(ctx: &mut Context, node: &NodeName, id: AttemptId, phase: AttemptPhase) {
    let live = live_on(ctx, node, &id);
    let is_stopped = live.is_some_and(|(_, attempt, _)| attempt.stopping.is_some());
    if let AttemptPhase::Ended(end) | AttemptPhase::Released(end) = &phase
        && !is_stopped
    {
        let end = AttemptEnd {
            kept: None,
            ..end.clone()
        };
        at_least_ended(ctx, node, &id, end);
    }
    if let Some(contact) = ctx.contact_mut(node) {
        contact.held_back.insert(id, phase);
    }
}

pub(crate) fn at_least_starting(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    if phase_on(ctx, node, id) == Some(PartPhase::Allocated) {
        ctx.record(Record::Starting {
            attempt: id.clone(),
            node: node.clone(),
        });
    }
}

pub(crate) fn at_least_running(
    ctx: &mut Context,
    node: &NodeName,
    id: &AttemptId,
    process: StartedProcess,
) {
    at_least_starting(ctx, node, id);
    if phase_on(ctx, node, id) == Some(PartPhase::Starting) {
        ctx.record(Record::Started(record::Started {
            attempt: id.clone(),
            node: node.clone(),
            process,
        }));
    }
}

pub(crate) fn at_least_stopping(
    ctx: &mut Context,
    node: &NodeName,
    id: &AttemptId,
    started: Option<StartedProcess>,
    why: StopReason,
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
        ctx.record(Record::Stopping(record::Stopping::because(id.clone(), why)));
        // An attempt that one host stops by itself is stopped on the other hosts too.
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
    ctx.record(Record::Ended(record::Ended {
        attempt: id.clone(),
        node: node.clone(),
        end,
    }));
    if let Some(sentence) = failed {
        close_failing(ctx, node, &id.step, &sentence);
    }
    end_as_one(ctx, id, stopped);
    conclude(ctx, id);
}

/// Cordons a host that cannot start a step: it could not start the next one either, and would fail the queue step by
/// step.
pub(crate) fn close_failing(ctx: &mut Context, node: &NodeName, step: &StepId, sentence: &str) {
    let open = ctx
        .state()
        .node(node)
        .is_some_and(|node| node.cordon.is_none());
    if open {
        ctx.record(Record::NodeCordoned {
            node: node.clone(),
            reason: closed_for(step, sentence),
        });
    }
}

/// Stops a gang on its other hosts after one part failed or was lost; `stopped` is the reason for which the host of
/// that part was stopping it, if any.
pub(crate) fn end_as_one(ctx: &mut Context, id: &AttemptId, stopped: Option<StopReason>) {
    let step = ctx.state().step(&id.step);
    let attempt = step.and_then(|step| step.attempt(id.number));
    let broken = attempt.is_some_and(|attempt| {
        attempt.broken_by.is_some()
            && attempt.stopping.is_none()
            && attempt.unended().next().is_some()
    });
    if broken {
        let why = stopped.unwrap_or(StopReason::PeerEnded);
        stop_attempt(ctx, id, why);
    }
}

/// Ends or requeues the step as soon as its attempt has ended on every host. Users see the end at once; the resources
/// come back when the hosts have seen them free.
pub(crate) fn conclude(ctx: &mut Context, id: &AttemptId) {
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
    match retry_decision(step, attempt, drained) {
        RetryDecision::End(state, reason) => ctx.record(Record::StepEnded(record::StepEnded {
            step: step_id,
            state,
            reason,
        })),
        RetryDecision::Retry(reason) => queue_again(
            ctx,
            Record::Requeued {
                step: step_id,
                reason,
            },
        ),
    }
}

pub(crate) fn record_released(
    ctx: &mut Context,
    node: &NodeName,
    id: &AttemptId,
    kept: Option<Box<KeptFiles>>,
) {
    ctx.record(Record::Released(record::Released {
        attempt: id.clone(),
        node: node.clone(),
        kept,
    }));
    note_empty(ctx, node);
}

pub(crate) fn unseen(
    ctx: &Context,
    attempt: &Attempt,
    started: Option<StartedProcess>,
) -> AttemptEnd {
    AttemptEnd {
        started,
        exit: Exit::Unknown,
        stopped: attempt.stopping,
        at: ctx.now(),
        usage: Usage::default(),
        kept: None,
    }
}
