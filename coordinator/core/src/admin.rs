//! Admins close nodes to new work, empty them, open them again, label and forget them. What is so already is answered
//! and not recorded.
//!
//! ```text
//!          cordon              drain                        (nothing is left)
//! open ------------> cordoned ------> draining ------------------------> drained
//!   ^                   |                |  what can give way is stopped    |
//!   |                   |                |  at once, the rest at a deadline |
//!   +--- uncordon ------+----------------+----------------------------------+
//! ```
//! A closed node is a closed host of the market, so nothing is granted there; who is stopped is decided here. A node
//! outlives its silence, and is forgotten only when nothing of it can still run: when it is away and holds nothing. With
//! it goes its access: it must join anew.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, StepId};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::limit::MAX_NODE_LABELS;
use sluice_common::time::Span;
use sluice_common::wire::StopWhy;

use crate::admission::revoke;
use crate::context::Context;
use crate::gpus::{cordon_gpus, uncordon_gpus};
use crate::input::{NodeChange, ReplyId, TimerKey};
use crate::model::node::{Cordon, Node};
use crate::moving::{move_if_empty, move_node};
use crate::output::{Answer, Refusal};
use crate::reconcile::stop_attempt;
use crate::record::Record;

type Labels = BTreeMap<LabelKey, Option<LabelValue>>;

pub(crate) fn on_change_node(
    ctx: &mut Context,
    reply: ReplyId,
    node: &NodeName,
    change: NodeChange,
) {
    let changed = change_node(ctx, node, change);
    ctx.reply(reply, Answer::Changed(changed));
}

fn change_node(ctx: &mut Context, name: &NodeName, change: NodeChange) -> Result<(), Refusal> {
    let Some(node) = ctx.state().node(name) else {
        return change_unlinked(ctx, name, &change);
    };
    match change {
        NodeChange::Cordon { reason } => cordon(ctx, name, reason),
        NodeChange::Uncordon if node.cordon.is_none() => {}
        NodeChange::Uncordon => ctx.record(Record::NodeUncordoned { node: name.clone() }),
        NodeChange::Drain { reason, deadline } => drain(ctx, name, reason, deadline),
        NodeChange::Move {
            pool,
            reason,
            deadline,
        } => return move_node(ctx, name, pool, reason, deadline),
        NodeChange::Label(labels) => return label(ctx, name, labels),
        NodeChange::Delete { force } => return delete(ctx, name, force),
        NodeChange::CordonGpu { gpu, reason } => return cordon_gpus(ctx, name, &gpu, reason),
        NodeChange::UncordonGpu { gpu } => return uncordon_gpus(ctx, name, &gpu),
        NodeChange::Revoke => revoke(ctx, name),
    }
    Ok(())
}

/// Of a host that has joined and was never linked there is nothing but its access.
fn change_unlinked(ctx: &mut Context, name: &NodeName, change: &NodeChange) -> Result<(), Refusal> {
    let access = ctx.state().admission().accesses().get(name);
    let ends = matches!(change, NodeChange::Revoke | NodeChange::Delete { .. });
    if ends && access.is_some_and(|access| access.admitted) {
        revoke(ctx, name);
        return Ok(());
    }
    let node = name.clone();
    Err(Refusal::UnknownNode { node })
}

fn cordon_of<'a>(ctx: &'a Context, name: &NodeName) -> Option<&'a Cordon> {
    ctx.state().node(name)?.cordon.as_ref()
}

fn cordon(ctx: &mut Context, name: &NodeName, reason: Option<String>) {
    let before = cordon_of(ctx, name);
    let reason = or_before(reason, before);
    if before.is_none_or(|before| before.reason != reason) {
        let node = name.clone();
        ctx.record(Record::NodeCordoned { node, reason });
    }
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
        ctx.record(Record::NodeDraining {
            node: name.clone(),
            reason,
            deadline,
        });
    }
    empty(ctx, name, false);
    await_deadline(ctx, name);
    note_empty(ctx, name);
}

/// Notes that a node which is to become empty is.
pub(crate) fn note_empty(ctx: &mut Context, name: &NodeName) {
    let drain = ctx.state().node(name).and_then(Node::drain);
    let waited_for = drain.is_some_and(|drain| drain.empty_since.is_none());
    if waited_for && ctx.state().attempts_on(name).next().is_none() {
        ctx.record(Record::NodeDrained { node: name.clone() });
    }
    move_if_empty(ctx, name);
}

/// What came to a node that is to become empty leaves it like what was there before.
pub(crate) fn empty_drained(ctx: &mut Context, name: &NodeName) {
    if ctx.state().node(name).and_then(Node::drain).is_some() {
        empty(ctx, name, false);
        note_empty(ctx, name);
    }
}

/// Stops what can be made to give way on a node, or all that is there. How it is stopped is what preemption does;
/// what is on its way out already is left to it.
fn empty(ctx: &mut Context, name: &NodeName, all: bool) {
    let held = ctx.state().attempts_on(name).cloned();
    let stays: Vec<AttemptId> = held.filter(|id| may_stop(ctx, id, all)).collect();
    for attempt in stays {
        stop_attempt(ctx, &attempt, StopWhy::Drained, None);
    }
}

fn may_stop(ctx: &Context, id: &AttemptId, all: bool) -> bool {
    let step = ctx.state().step(&id.step);
    step.is_some_and(|step| {
        let attempt = step.attempt(id.number);
        let stays = attempt.is_some_and(|a| !a.has_ended() && a.stopping.is_none());
        stays && (all || step.spec.preemptible)
    })
}

/// Wakes us at the deadlines that earlier runs have set.
pub(crate) fn await_deadlines(ctx: &mut Context) {
    let nodes = ctx.state().nodes().values();
    let drained = nodes.filter(|node| node.drain().is_some());
    let drained: Vec<NodeName> = drained.map(|node| node.name.clone()).collect();
    for node in drained {
        await_deadline(ctx, &node);
    }
}

fn await_deadline(ctx: &mut Context, name: &NodeName) {
    let drain = ctx.state().node(name).and_then(Node::drain);
    if let Some(deadline) = drain.and_then(|drain| drain.deadline) {
        ctx.set_timer(TimerKey::DrainDeadline(name.clone()), deadline);
    }
}

/// The timer came due; the deadline may be another now, or the node open again.
pub(crate) fn on_drain_deadline(ctx: &mut Context, name: &NodeName) {
    let drain = ctx.state().node(name).and_then(Node::drain);
    let deadline = drain.and_then(|drain| drain.deadline);
    match deadline {
        Some(deadline) if deadline <= ctx.now() => empty(ctx, name, true),
        Some(_) => await_deadline(ctx, name),
        None => {}
    }
}

pub(crate) fn label(ctx: &mut Context, name: &NodeName, labels: Labels) -> Result<(), Refusal> {
    let Some(node) = ctx.state().node(name) else {
        return Ok(());
    };
    let labels = changes(node, labels);
    let (set, removed): (Labels, Labels) =
        labels.into_iter().partition(|(_, value)| value.is_some());
    let kept = node.labels_set.keys();
    let count = kept.filter(|key| !set.contains_key(*key)).count() + set.len();
    if !set.is_empty() && count > MAX_NODE_LABELS {
        return Err(Refusal::TooManyLabels {
            node: name.clone(),
            count,
            limit: MAX_NODE_LABELS,
        });
    }
    if !set.is_empty() || !removed.is_empty() {
        let set = set.into_iter();
        ctx.record(Record::NodeLabelled {
            node: name.clone(),
            set: set.filter_map(|(key, value)| Some((key, value?))).collect(),
            removed: removed.into_keys().collect(),
        });
    }
    Ok(())
}

fn delete(ctx: &mut Context, name: &NodeName, force: bool) -> Result<(), Refusal> {
    let node = name.clone();
    let contact = ctx.contact(name);
    if !force && contact.is_some_and(|contact| contact.session.is_some()) {
        return Err(Refusal::NodeLinked { node });
    }
    let steps = ctx.state().attempts_on(name).map(|id| id.step.clone());
    let steps: BTreeSet<StepId> = steps.collect();
    if !force && !steps.is_empty() {
        let steps = steps.into_iter().collect();
        return Err(Refusal::NodeHoldsSteps { node, steps });
    }
    if ctx.state().node(name).is_some_and(|node| node.leaving) && !steps.is_empty() {
        return Ok(());
    }
    revoke(ctx, name);
    if steps.is_empty() {
        forget_node(ctx, name);
        return Ok(());
    }
    ctx.record(Record::NodeLeaving { node });
    Ok(())
}

/// A node that was lost holds nothing any more.
pub(crate) fn forget_if_leaving(ctx: &mut Context, name: &NodeName) {
    let contact = ctx.contact(name);
    let linked = contact.is_some_and(|contact| contact.session.is_some());
    if !linked && ctx.state().node(name).is_some_and(|node| node.leaving) {
        forget_node(ctx, name);
    }
}

fn forget_node(ctx: &mut Context, name: &NodeName) {
    // What this run knows of its link stays: a node that comes back was told our epoch, and is to obey it still.
    ctx.record(Record::NodeDeleted { node: name.clone() });
}

/// What is to be the reason: what was given now, or before.
fn or_before(reason: Option<String>, before: Option<&Cordon>) -> String {
    let before = || before.map(|before| before.reason.clone());
    reason.or_else(before).unwrap_or_default()
}

/// Those of the labels that are not so already.
fn changes(node: &Node, labels: Labels) -> Labels {
    let labels = labels.into_iter();
    let changed = labels.filter(|(key, value)| match (node.labels_set.get(key), value) {
        (Some(set), value) => set != value,
        (None, Some(_)) => true,
        (None, None) => node.labels.contains_key(key.as_str()),
    });
    changed.collect()
}
