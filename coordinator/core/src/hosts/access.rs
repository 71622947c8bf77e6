//! Whether a node's certificate opens anything, and how its access ends.

use crate::hosts::link::cut;
use alloc::format;
use alloc::string::String;

use sluice_common::id::NodeName;
use sluice_common::proof::Claim;
use sluice_common::wire::Hello;

use crate::context::Context;
use crate::record::Record;

/// Whether a node's certificate opens anything.
pub(crate) fn check_claim(ctx: &Context, hello: &Hello, claim: &Claim) -> Result<(), String> {
    let node = &hello.node;
    let wanted = ctx.state().admission().generation(node);
    if claim.generation < wanted {
        return Err(format!(
            "the access of node `{node}` was ended, or given to a host that joined later: where this host is to be let in, \
             `sluice token create --node {node}` makes a line for `sluice-agent join`, and `sluice-coordinator issue-node {node} \
             --generation {wanted}` a certificate"
        ));
    }
    Ok(())
}

/// Ends a node's access: no certificate that it has opens anything any more, and its link is cut.
pub(crate) fn revoke(ctx: &mut Context, name: &NodeName) {
    let generation = ctx.state().admission().generation(name).next();
    let node = name.clone();
    ctx.record(Record::NodeRevoked { node, generation });
    cut(ctx, name, "the access of this node was ended");
}
