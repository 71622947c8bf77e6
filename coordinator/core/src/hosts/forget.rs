//! Deletes a node when nothing on it can still run.

use sluice_common::id::NodeName;

use crate::context::Context;
use crate::record::Record;

/// A node that was lost holds nothing any more.
pub(crate) fn forget_if_leaving(ctx: &mut Context, name: &NodeName) {
    let contact = ctx.contact(name);
    let linked = contact.is_some_and(|contact| contact.session.is_some());
    if !linked && ctx.state().node(name).is_some_and(|node| node.leaving) {
        forget_node(ctx, name);
    }
}

pub(crate) fn forget_node(ctx: &mut Context, name: &NodeName) {
    // What this run knows of its link stays: a node that comes back was told our epoch, and is to obey it still.
    ctx.record(Record::NodeDeleted { node: name.clone() });
}
