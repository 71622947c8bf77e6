//! Sends orders to hosts: start or stop an attempt.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::time::Span;
use sluice_common::wire::{Gang, StopReason, ToNode};

use crate::attempts::launch;
use crate::attempts::live::live_on;
use crate::context::Context;
use crate::model::step::{Attempt, Part};
use crate::record::{self, Record};

/// Repeats an order to stop that was lost with an earlier connection.
pub(crate) fn stop_again(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
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
    why: StopReason,
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

/// Records that an attempt is being stopped, for no other step, and tells every host on which it has not ended.
pub(crate) fn stop_attempt(ctx: &mut Context, id: &AttemptId, why: StopReason) {
    stop_as(ctx, record::Stopping::because(id.clone(), why));
}

/// Does the same with a stop of its own terms.
pub(crate) fn stop_as(ctx: &mut Context, stopping: record::Stopping) {
    let (id, why) = (stopping.attempt.clone(), stopping.why);
    ctx.record(Record::Stopping(stopping));
    send_stops(ctx, &id, why, None);
}

/// Tells every host on which an attempt has not ended to stop it, except the one that stopped it.
pub(crate) fn send_stops(
    ctx: &mut Context,
    id: &AttemptId,
    why: StopReason,
    but: Option<&NodeName>,
) {
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

/// Sends a host its assignment.
pub(crate) fn send_assignment(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    if let Some((step, attempt, part)) = live_on(ctx, node, id) {
        let gang = gang(ctx, attempt, part);
        let assignment = launch::assignment(id, (step, attempt, part), ctx.state(), gang);
        ctx.send(node, ToNode::Assign(Box::new(assignment)));
    }
}

/// The place of a part among the parts of a gang.
pub(crate) fn gang(ctx: &Context, attempt: &Attempt, part: &Part) -> Gang {
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
