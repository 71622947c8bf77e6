//! Handles a message of an agent after its hello.

use sluice_common::id::NodeName;
use sluice_common::wire::FromNode;

use crate::attempts::checkpoint::on_checkpoint;
use crate::attempts::endpoint::on_endpoint;
use crate::contact::change_rate::HostChange;
use crate::context::Context;
use crate::hosts::carving::on_carved;
use crate::hosts::changes::on_change;
use crate::hosts::link::{on_heard, settle_node};
use crate::hosts::statuses::take_status;
use crate::input::SessionId;
use crate::services::usage::on_usages;

pub(crate) fn on_from_node(
    ctx: &mut Context,
    session: SessionId,
    node: &NodeName,
    message: FromNode,
) {
    if !on_heard(ctx, session, node) {
        return;
    }
    match message {
        FromNode::Status(status) => {
            take_status(ctx, node, status);
            settle_node(ctx, node);
        }
        FromNode::Inventory(inventory) => on_change(ctx, node, HostChange::Inventory(inventory)),
        FromNode::Labels(labels) => on_change(ctx, node, HostChange::Labels(labels)),
        // The driver keeps the latest readings; the core does not use them.
        FromNode::Readings(_) => {}
        // Warrants come as an input of their own after the driver has checked their seal.
        FromNode::Warrant { .. } => {}
        FromNode::GpuStates(states) => on_change(ctx, node, HostChange::GpuStates(states)),
        FromNode::Checkpoint { attempt, ago } => on_checkpoint(ctx, node, attempt, ago),
        FromNode::Endpoint(report) => on_endpoint(ctx, node, *report),
        FromNode::Usages(usages) => on_usages(ctx, node, usages),
        FromNode::Health(health) => on_change(ctx, node, HostChange::Health(health)),
        FromNode::Carved { gpu, outcome } => on_carved(ctx, node, &gpu, outcome),
        FromNode::Supervisor(supervisor) => {
            on_change(ctx, node, HostChange::Supervisor(supervisor));
        }
    }
}
