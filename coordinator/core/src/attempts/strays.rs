//! Stops strays. A *stray* is an attempt that a host holds and the coordinator does not consider live there: it was
//! ended (because its host was lost, say) or never known. Nothing new is granted on the host until its strays are
//! gone.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::limit::{DEFAULT_GRACE, MAX_ATTEMPTS_PER_NODE};
use sluice_common::wire::{AttemptPhase, AttemptStatus, StopReason, ToNode};

use crate::attempts::orders::send_stop;
use crate::context::Context;

pub(crate) fn on_stray(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    let AttemptStatus { attempt: id, phase } = status;
    match phase {
        AttemptPhase::Released(_) => {
            if let Some(contact) = ctx.contact_mut(node) {
                contact.strays.remove(&id);
            }
            ctx.send(node, ToNode::Forget { attempt: id });
        }
        AttemptPhase::Starting
        | AttemptPhase::Running(_)
        | AttemptPhase::Stopping { .. }
        | AttemptPhase::Suspending(_)
        | AttemptPhase::Suspended { .. }
        | AttemptPhase::Resuming(_)
        | AttemptPhase::NotSuspended { .. }
        | AttemptPhase::Ended(_) => stop_new_stray(ctx, node, &id),
    }
}

/// Orders a stray to stop, once on a connection. Strays beyond the number of attempts that a host can hold are told
/// to stop and not remembered.
pub(crate) fn stop_new_stray(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    let Some(contact) = ctx.contact_mut(node) else {
        return;
    };
    if contact.strays.contains(id) {
        return;
    }
    if contact.strays.len() < MAX_ATTEMPTS_PER_NODE {
        contact.strays.insert(id.clone());
    }
    stop_stray(ctx, node, id);
}

pub(crate) fn stop_stray(ctx: &mut Context, node: &NodeName, id: &AttemptId) {
    let step = ctx.state().step(&id.step);
    let grace = step.map_or(DEFAULT_GRACE, |step| step.spec.grace);
    send_stop(ctx, node, id, StopReason::Superseded, grace);
}

/// Orders every stray to stop again, after a silence in which the first order may have been lost.
pub(crate) fn stop_strays(ctx: &mut Context, node: &NodeName) {
    let contact = ctx.contact(node);
    let strays: Vec<AttemptId> = contact
        .map(|contact| contact.strays.iter().cloned().collect())
        .unwrap_or_default();
    for id in &strays {
        stop_stray(ctx, node, id);
    }
}
