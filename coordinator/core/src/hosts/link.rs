//! The connection of a host: whether it is heard, the state of its node, and how the connection ends.

use alloc::string::String;

use sluice_common::host_health::SupervisorState;
use sluice_common::id::NodeName;
use sluice_common::state::NodeState;
use sluice_common::time::Time;

use crate::attempts::strays::stop_strays;
use crate::contact::Contact;
use crate::context::Context;
use crate::input::{SessionId, TimerKey};
use crate::model::node::Node;
use crate::record::Record;

/// Handles a sign of life. Returns whether it came by the connection in use.
pub(crate) fn on_heard(ctx: &mut Context, session: SessionId, node: &NodeName) -> bool {
    let now = ctx.now();
    let Some(contact) = ctx.contact_mut(node) else {
        return false;
    };
    if contact.session != Some(session) {
        return false;
    }
    contact.heard_at = Some(now);
    contact.silent_since = now;
    let is_deaf = contact.delivery.is_deaf();
    match ctx.state().node(node).map(|node| node.state) {
        // Hearing our messages again is a change too: a host may report with each heartbeat that it does, or does
        // not.
        Some(NodeState::Unreachable | NodeState::Lost) if !is_deaf && may_change(ctx, node) => {
            charge(ctx, node);
            stop_strays(ctx, node);
            settle_node(ctx, node);
            watch(ctx, node);
        }
        Some(_) | None => {}
    }
    true
}

/// Updates the state of a connected node that is heard and hears us: ready; or reconciling while it holds strays; or
/// unsupervised, if it can neither start nor stop anything.
pub(crate) fn settle_node(ctx: &mut Context, node: &NodeName) {
    let contact = ctx.contact(node);
    if contact.is_some_and(|contact| contact.delivery.is_deaf()) {
        return;
    }
    if let Some(why) = contact.and_then(|contact| contact.supervisor.unresponsive_reason()) {
        let why = String::from(why);
        return call_unsupervised(ctx, node, why);
    }
    let stray = contact.is_some_and(Contact::holds_unknown);
    let state = ctx.state().node(node).map(|node| node.state);
    let node = node.clone();
    match (stray, state) {
        (true, Some(NodeState::Reconciling)) | (false, Some(NodeState::Ready)) | (_, None) => {}
        (true, Some(_)) => ctx.record(Record::NodeReconciling { node }),
        (false, Some(_)) => ctx.record(Record::NodeReady { node }),
    }
}

pub(crate) fn call_unsupervised(ctx: &mut Context, name: &NodeName, why: String) {
    let is_same = |node: &Node| node.unsupervised.as_deref() == Some(&why);
    if ctx.state().node(name).is_some_and(|node| !is_same(node)) {
        let node = name.clone();
        ctx.record(Record::NodeUnsupervised { node, why });
    }
}

pub(crate) fn on_node_gone(ctx: &mut Context, session: SessionId, node: &NodeName) {
    let Some(contact) = ctx.contact_mut(node) else {
        return;
    };
    if contact.session == Some(session) {
        contact.session = None;
        contact.strays.clear();
        contact.asked.clear();
        call_unreachable(ctx, node);
    }
}

pub(crate) fn call_unreachable(ctx: &mut Context, node: &NodeName) {
    match ctx.state().node(node).map(|node| node.state) {
        Some(NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised) => {
            ctx.record(Record::NodeUnreachable { node: node.clone() });
        }
        Some(NodeState::Unreachable | NodeState::Lost) | None => {}
    }
}

/// Sets the timer for the time at which a node's silence makes it unreachable.
pub(crate) fn watch(ctx: &mut Context, node: &NodeName) {
    let at = ctx.now() + ctx.settings().unreachable_after;
    ctx.set_timer(TimerKey::NodeSilence(node.clone()), at);
}

/// Time at which a node is declared lost, if it stays silent.
pub(crate) fn lost_at(ctx: &Context, node: &NodeName) -> Option<Time> {
    let contact = ctx.contact(node)?;
    Some(lost_at_after(ctx, contact.silent_since))
}

pub(crate) fn lost_at_after(ctx: &Context, silent_since: Time) -> Time {
    (silent_since + ctx.settings().lost_after).max(ctx.state().no_loss_before())
}

/// Takes a token from the node's bucket for a change.
pub(crate) fn charge(ctx: &mut Context, name: &NodeName) {
    let now = ctx.now();
    if let Some(contact) = ctx.contact_mut(name) {
        contact.change_rate.take(now);
    }
}

/// Whether a host may change once more now.
pub(crate) fn may_change(ctx: &Context, name: &NodeName) -> bool {
    let contact = ctx.contact(name);
    contact.is_some_and(|contact| contact.change_rate.next_at() <= ctx.now())
}

/// Updates the state of a node, unless it is silent: then its next message does.
pub(crate) fn settle_again(ctx: &mut Context, node: &NodeName) {
    let state = ctx.state().node(node).map(|node| node.state);
    if let Some(NodeState::Ready | NodeState::Reconciling | NodeState::Unsupervised) = state {
        settle_node(ctx, node);
    }
}

/// Cuts the connection of a node, if it has one.
pub(crate) fn cut(ctx: &mut Context, node: &NodeName, why: &str) {
    let contact = ctx.contact(node);
    if let Some(session) = contact.and_then(|contact| contact.session) {
        ctx.unhold_step(session, why);
        on_node_gone(ctx, session, node);
    }
}

pub(crate) fn on_supervisor(ctx: &mut Context, node: &NodeName, supervisor: SupervisorState) {
    if let Some(contact) = ctx.contact_mut(node) {
        contact.supervisor = supervisor;
    }
    settle_node(ctx, node);
}
