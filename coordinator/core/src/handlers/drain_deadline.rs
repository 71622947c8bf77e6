//! The deadline of a drain has passed.

use sluice_common::id::NodeName;

use crate::context::Context;
use crate::hosts::drain::{await_deadline, empty};
use crate::model::node::Node;

/// Handles the timer of a drain. The deadline may have been changed, or the node opened again.
pub(crate) fn on_drain_deadline(ctx: &mut Context, name: &NodeName) {
    let drain = ctx.state().node(name).and_then(Node::drain);
    let deadline = drain.and_then(|drain| drain.deadline);
    match deadline {
        Some(deadline) if deadline <= ctx.now() => empty(ctx, name, true),
        Some(_) => await_deadline(ctx, name),
        None => {}
    }
}
