//! Admins move nodes to other pools: first it is drained, then it is in the other pool, whatever its agent's config says.
//! Its units are granted by one pool at a time, for it moves when nothing holds any of them.
//!
//! ```text
//!            move                       (nothing is left)
//! in a pool ------> draining, on its way ---------------> in the other, open as it was before
//!      ^                   |
//!      +---- uncordon -----+
//! ```

use alloc::string::String;

use sluice_common::id::{NodeName, PoolName};
use sluice_common::time::Span;

use crate::admin::drain;
use crate::context::Context;
use crate::model::node::Node;
use crate::output::Refusal;
use crate::record::Record;

pub(crate) fn move_node(
    ctx: &mut Context,
    name: &NodeName,
    pool: PoolName,
    reason: Option<String>,
    deadline: Option<Span>,
) -> Result<(), Refusal> {
    if ctx.state().pool(&pool).is_none() {
        return Err(Refusal::UnknownPool { pool });
    }
    let Some(node) = ctx.state().node(name) else {
        return Ok(());
    };
    let on_its_way = node.moves_to().cloned();
    let node = name.clone();
    match on_its_way {
        // It is there already, or is to stay.
        None if is_in(ctx, name, &pool) => return Ok(()),
        Some(_) if is_in(ctx, name, &pool) => {
            ctx.record(Record::NodeUncordoned { node });
            return Ok(());
        }
        Some(other) if other == pool => {}
        None | Some(_) => ctx.record(Record::NodeMoving { node, pool }),
    }
    drain(ctx, name, reason, deadline);
    Ok(())
}

fn is_in(ctx: &Context, name: &NodeName, pool: &PoolName) -> bool {
    let node = ctx.state().node(name);
    node.is_some_and(|node| node.pool == *pool)
}

/// A node that was to move and holds nothing any more does.
pub(crate) fn move_if_empty(ctx: &mut Context, name: &NodeName) {
    let to = ctx.state().node(name).and_then(Node::moves_to).cloned();
    let empty = ctx.state().attempts_on(name).next().is_none();
    if let Some(pool) = to.filter(|_| empty) {
        let node = name.clone();
        ctx.record(Record::NodeMoved { node, pool });
    }
}
