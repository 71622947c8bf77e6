//! Drains hosts: preemptible steps are stopped at once, the others at a deadline; then the node is empty.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::time::Span;
use sluice_common::wire::StopReason;

use crate::attempts::orders::stop_attempt;
use crate::context::Context;
use crate::input::TimerKey;
use crate::model::node::{Cordon, Node};
use crate::record::{self, Record};

pub(crate) fn cordon_of<'a>(ctx: &'a Context, name: &NodeName) -> Option<&'a Cordon> {
    ctx.state().node(name)?.cordon.as_ref()
}

pub(crate) fn drain(
    ctx: &mut Context,
    name: &NodeName,
    reason: Option<String>,
    deadline: Option<Span>,
) {
    let before = cordon_of(ctx, name);
    let reason = or_before(reason, before);
    let drain = before.and_then(|before| before.drain);
    let deadline = deadline.map(|span| ctx.now() + span);
    let deadline = deadline.or(drain.and_then(|drain| drain.deadline));
    let other = drain.is_none_or(|drain| drain.deadline != deadline);
    if other || before.is_none_or(|before| before.reason != reason) {
        ctx.record(Record::NodeDraining(record::NodeDraining {
            node: name.clone(),
            reason,
            deadline,
        }));
    }
    empty(ctx, name, false);
    await_deadline(ctx, name);
    note_empty(ctx, name);
}

/// Records that a drained node is empty.
pub(crate) fn note_empty(ctx: &mut Context, name: &NodeName) {
    let drain = ctx.state().node(name).and_then(Node::drain);
    let waited_for = drain.is_some_and(|drain| drain.empty_since.is_none());
    if waited_for && ctx.state().attempts_on(name).next().is_none() {
        ctx.record(Record::NodeDrained { node: name.clone() });
    }
    move_if_empty(ctx, name);
}

/// Stops attempts that came to a drained node after the drain began.
pub(crate) fn empty_drained(ctx: &mut Context, name: &NodeName) {
    if ctx.state().node(name).and_then(Node::drain).is_some() {
        empty(ctx, name, false);
        note_empty(ctx, name);
    }
}

/// Stops preemptible attempts on a node, or all of them, in the way of a preemption. Attempts that are being stopped
/// already are left alone.
pub(crate) fn empty(ctx: &mut Context, name: &NodeName, all: bool) {
    let held = ctx.state().attempts_on(name).cloned();
    let stays: Vec<AttemptId> = held.filter(|id| may_stop(ctx, id, all)).collect();
    for attempt in stays {
        stop_attempt(ctx, &attempt, StopReason::Drained);
    }
}

pub(crate) fn may_stop(ctx: &Context, id: &AttemptId, all: bool) -> bool {
    let step = ctx.state().step(&id.step);
    step.is_some_and(|step| {
        let attempt = step.attempt(id.number);
        let stays = attempt.is_some_and(|a| !a.has_ended() && a.stopping.is_none());
        // What runs inside an allocation goes with it.
        stays && (all || step.spec.preemptible) && step.spec.inside.is_none()
    })
}

/// Sets the timers of the deadlines of earlier runs.
pub(crate) fn await_deadlines(ctx: &mut Context) {
    let nodes = ctx.state().nodes().values();
    let drained = nodes.filter(|node| node.drain().is_some());
    let drained: Vec<NodeName> = drained.map(|node| node.name.clone()).collect();
    for node in drained {
        await_deadline(ctx, &node);
    }
}

pub(crate) fn await_deadline(ctx: &mut Context, name: &NodeName) {
    let drain = ctx.state().node(name).and_then(Node::drain);
    if let Some(deadline) = drain.and_then(|drain| drain.deadline) {
        ctx.set_timer(TimerKey::DrainDeadline(name.clone()), deadline);
    }
}

/// The new reason, or else the earlier one.
pub(crate) fn or_before(reason: Option<String>, before: Option<&Cordon>) -> String {
    let before = || before.map(|before| before.reason.clone());
    reason.or_else(before).unwrap_or_default()
}

/// Moves a node that is to move and holds nothing any more.
pub(crate) fn move_if_empty(ctx: &mut Context, name: &NodeName) {
    let to = ctx.state().node(name).and_then(Node::moves_to).cloned();
    let empty = ctx.state().attempts_on(name).next().is_none();
    if let Some(pool) = to.filter(|_| empty) {
        let node = name.clone();
        ctx.record(Record::NodeMoved { node, pool });
    }
}
