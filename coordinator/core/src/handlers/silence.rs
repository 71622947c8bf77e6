//! Marks a silent node as unreachable or lost.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::state::NodeState;
use sluice_common::supervision::Exit;

use crate::attempts::progress::vanish;
use crate::context::Context;
use crate::hosts::forget::forget_if_leaving;
use crate::hosts::link::{call_unreachable, cut, lost_at_after};
use crate::input::TimerKey;
use crate::record::Record;

/// Handles the timer of a node's silence. The timer is not set again by each heartbeat, so the time of the last
/// message decides.
pub(crate) fn on_silence(ctx: &mut Context, node: &NodeName) {
    let Some(contact) = ctx.contact(node) else {
        return;
    };
    let since = contact.silent_since;
    let known = ctx.state().node(node).map(|node| node.state);
    if known.is_none_or(|state| state == NodeState::Lost) {
        return;
    }
    let unreachable_at = since + ctx.settings().unreachable_after;
    let lost_at = lost_at_after(ctx, since);
    if ctx.now() >= lost_at {
        return lose(ctx, node);
    }
    let next = if ctx.now() >= unreachable_at {
        call_unreachable(ctx, node);
        lost_at
    } else {
        unreachable_at
    };
    ctx.set_timer(TimerKey::NodeSilence(node.clone()), next);
}

pub(crate) fn lose(ctx: &mut Context, node: &NodeName) {
    ctx.record(Record::NodeLost { node: node.clone() });
    // Messages under way on this connection must never arrive: the network may hold them back for minutes.
    cut(
        ctx,
        node,
        "this node was silent for too long and was declared lost",
    );
    let held: Vec<AttemptId> = ctx.state().attempts_on(node).cloned().collect();
    for attempt in held {
        vanish(ctx, node, &attempt, Exit::Unknown);
    }
    forget_if_leaving(ctx, node);
}
