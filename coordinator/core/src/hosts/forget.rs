//! Deletes a node when nothing on it can still run.

use sluice_common::id::NodeName;

use crate::context::Context;
use crate::record::Record;

/// Deletes a lost node whose deletion was requested.
pub(crate) fn forget_if_leaving(ctx: &mut Context, name: &NodeName) {
    let contact = ctx.contact(name);
    let linked = contact.is_some_and(|contact| contact.session.is_some());
    if !linked && ctx.state().node(name).is_some_and(|node| node.leaving) {
        forget_node(ctx, name);
    }
}

pub(crate) fn forget_node(ctx: &mut Context, name: &NodeName) {
    // The connection data of this run stays: a node that comes back was sent our epoch, and must still obey it.
    ctx.record(Record::NodeDeleted { node: name.clone() });
}
