//! Cordons, uncordons, drains, moves, labels and deletes nodes. A change that alters nothing is not recorded.
//!
//! ```text
//!          cordon              drain                        (nothing is left)
//! open ------------> cordoned ------> draining ------------------------> drained
//!   ^                   |                |  what can give way is stopped    |
//!   |                   |                |  at once, the rest at a deadline |
//!   +--- uncordon ------+----------------+----------------------------------+
//! ```
//! The scheduler grants nothing on a cordoned node; who is stopped is decided here. A node is deleted only when
//! nothing on it can still run: when it is away and holds nothing. Its access ends with it, so it must join again.
//!
//! A node that moves to another pool is drained first. Its resources belong to one pool at a time, because it moves
//! when nothing holds any of them.
//!
//! ```text
//!            move                       (nothing is left)
//! in a pool ------> draining, on its way ---------------> in the other, open as it was before
//!      ^                   |
//!      +---- uncordon -----+
//! ```

use alloc::collections::BTreeSet;
use alloc::string::String;

use sluice_common::id::{NodeName, PoolName, StepId};
use sluice_common::time::Span;

use crate::context::Context;
use crate::handlers::join::is_hostless;
use crate::hosts::access::revoke;
use crate::hosts::drain::{cordon_of, drain, or_before};
use crate::hosts::forget::forget_node;
use crate::hosts::gpus::{cordon_gpus, uncordon_gpus};
use crate::hosts::labels::label;
use crate::input::{NodeChange, ReplyId};
use crate::output::{Answer, Refusal};
use crate::record::Record;

pub(crate) fn on_change_node(
    ctx: &mut Context,
    reply: ReplyId,
    node: &NodeName,
    change: NodeChange,
) {
    let changed = change_node(ctx, node, change);
    ctx.reply(reply, Answer::Changed(changed));
}

pub(crate) fn change_node(
    ctx: &mut Context,
    name: &NodeName,
    change: NodeChange,
) -> Result<(), Refusal> {
    let Some(node) = ctx.state().node(name) else {
        return change_unlinked(ctx, name, &change);
    };
    match change {
        NodeChange::Cordon { reason } => cordon(ctx, name, reason),
        NodeChange::Uncordon if node.cordon.is_none() => {}
        NodeChange::Uncordon => ctx.record(Record::NodeUncordoned { node: name.clone() }),
        NodeChange::Drain { reason, deadline } => drain(ctx, name, reason, deadline),
        NodeChange::Move {
            pool,
            reason,
            deadline,
        } => return move_node(ctx, name, pool, reason, deadline),
        NodeChange::Label(labels) => return label(ctx, name, labels),
        NodeChange::Delete { force } => return delete(ctx, name, force),
        NodeChange::CordonGpu { gpu, reason } => return cordon_gpus(ctx, name, &gpu, reason),
        NodeChange::UncordonGpu { gpu } => return uncordon_gpus(ctx, name, &gpu),
        NodeChange::Revoke => revoke(ctx, name),
    }
    Ok(())
}

/// Handles a change of a host that has joined and was never connected: only its access exists.
pub(crate) fn change_unlinked(
    ctx: &mut Context,
    name: &NodeName,
    change: &NodeChange,
) -> Result<(), Refusal> {
    let access = ctx.state().admission().accesses().get(name);
    let ends = matches!(change, NodeChange::Revoke | NodeChange::Delete { .. });
    if ends && access.is_some_and(|access| access.admitted) {
        revoke(ctx, name);
        return Ok(());
    }
    let node = name.clone();
    Err(Refusal::UnknownNode { node })
}

pub(crate) fn cordon(ctx: &mut Context, name: &NodeName, reason: Option<String>) {
    let before = cordon_of(ctx, name);
    let reason = or_before(reason, before);
    if before.is_none_or(|before| before.reason != reason) {
        let node = name.clone();
        ctx.record(Record::NodeCordoned { node, reason });
    }
}

pub(crate) fn delete(ctx: &mut Context, name: &NodeName, force: bool) -> Result<(), Refusal> {
    let node = name.clone();
    let contact = ctx.contact(name);
    if !force && contact.is_some_and(|contact| contact.session.is_some()) {
        return Err(Refusal::NodeLinked { node });
    }
    let steps = ctx.state().attempts_on(name).map(|id| id.step.clone());
    let steps: BTreeSet<StepId> = steps.collect();
    if !force && !steps.is_empty() {
        let steps = steps.into_iter().collect();
        return Err(Refusal::NodeHoldsSteps { node, steps });
    }
    if ctx.state().node(name).is_some_and(|node| node.leaving) && !steps.is_empty() {
        return Ok(());
    }
    revoke(ctx, name);
    if steps.is_empty() {
        forget_node(ctx, name);
        return Ok(());
    }
    ctx.record(Record::NodeLeaving { node });
    Ok(())
}

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
    if is_hostless(ctx, &pool) {
        return Err(Refusal::PoolWithoutHosts { pool });
    }
    let Some(node) = ctx.state().node(name) else {
        return Ok(());
    };
    let on_its_way = node.moves_to().cloned();
    let node = name.clone();
    match on_its_way {
        // The node is in the pool already, or stays there.
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

pub(crate) fn is_in(ctx: &Context, name: &NodeName, pool: &PoolName) -> bool {
    let node = ctx.state().node(name);
    node.is_some_and(|node| node.pool == *pool)
}
