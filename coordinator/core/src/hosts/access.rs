//! Checks the access of a node's certificate, and ends it.

use sluice_common::credential::NodeClaim;
use sluice_common::id::NodeName;
use sluice_common::wire::Hello;
use sluice_reasons::HelloRefusal;

use crate::context::Context;
use crate::hosts::link::cut;
use crate::record::Record;

/// Checks whether a node's certificate admits it.
pub(crate) fn check_claim(
    ctx: &Context,
    hello: &Hello,
    claim: &NodeClaim,
) -> Result<(), HelloRefusal> {
    let wanted = ctx.state().admission().generation(&hello.node);
    if claim.generation < wanted {
        let node = hello.node.clone();
        return Err(HelloRefusal::AccessEnded { node, wanted });
    }
    Ok(())
}

/// Ends a node's access: no certificate admits it any more, and its connection is cut.
pub(crate) fn revoke(ctx: &mut Context, name: &NodeName) {
    let generation = ctx.state().admission().generation(name).next();
    let node = name.clone();
    ctx.record(Record::NodeRevoked { node, generation });
    cut(ctx, name, "the access of this node was ended");
}
