//! Applies a host's own health check: while it fails, the node is cordoned, and a node cordoned for that alone is
//! opened again when it passes. Cordons of admins stay.
//!
//! A host reports its health when it changes and when it connects. So if an admin uncordons a node whose check fails,
//! that holds until the next report.

use alloc::format;

use sluice_common::host_health::HostHealth;
use sluice_common::id::NodeName;

use crate::context::Context;
use crate::record::Record;

/// Start of the reasons that this module writes.
const OWN: &str = "closed by its health check: ";

/// Handles a report of a host's health.
pub(crate) fn on_health(ctx: &mut Context, name: &NodeName, health: HostHealth) {
    let Some(node) = ctx.state().node(name) else {
        return;
    };
    let cordon = node.cordon.as_ref();
    let is_own = |reason: &str| reason.starts_with(OWN);
    // An admin has changed a cordon that is also a drain.
    let closed_here = cordon.is_some_and(|c| is_own(&c.reason) && c.drain.is_none());
    let node = name.clone();
    match health {
        HostHealth::Fit if closed_here => ctx.record(Record::NodeUncordoned { node }),
        HostHealth::Unfit(why) if cordon.is_none() || closed_here => {
            let reason = format!("{OWN}{why}");
            if cordon.is_none_or(|before| before.reason != reason) {
                ctx.record(Record::NodeCordoned { node, reason });
            }
        }
        HostHealth::Fit | HostHealth::Unfit(_) => {}
    }
}
