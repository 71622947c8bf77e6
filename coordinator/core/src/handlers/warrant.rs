//! Handles the answer of a host that was asked for the warrant of an attempt.

use alloc::boxed::Box;

use sluice_common::id::{AttemptId, NodeName};

use crate::context::Context;
use crate::hosts::link::{on_heard, settle_node};
use crate::input::SessionId;
use crate::model::recovery::Warrant;
use crate::recovery::adoption::rule;

/// Handles a warrant, or the report that there is none.
pub(crate) fn on_warrant(
    ctx: &mut Context,
    session: SessionId,
    node: &NodeName,
    id: &AttemptId,
    warrant: Option<Box<Warrant>>,
) {
    if !on_heard(ctx, session, node) {
        return;
    }
    let contact = ctx.contact_mut(node);
    let Some(asked) = contact.and_then(|contact| contact.asked.get_mut(id)) else {
        return;
    };
    asked.warrant = warrant;
    rule(ctx, node, id);
    settle_node(ctx, node);
}
