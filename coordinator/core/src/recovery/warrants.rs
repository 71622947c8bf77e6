//! Decides which attempts may be adopted, and asks for their warrants.

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::wire::{AttemptStatus, ToNode};

use crate::attempts::strays::on_stray;
use crate::contact::PendingAdoption;
use crate::context::Context;
use crate::model::step::Step;

/// Whether an attempt that is not live on its host may be newer than the store.
pub(crate) fn may_be_adopted(ctx: &Context, id: &AttemptId) -> bool {
    if ctx.state().recovery().is_none() {
        return false;
    }
    ctx.state().find(&id.step).is_none_or(|step| {
        let last = step.latest().map_or(0, |last| last.number);
        last < id.number || is_past(&step)
    })
}

/// Asks a host for the warrant of an attempt, once, and stores its reports of the attempt from then on.
pub(crate) fn ask_for_warrant(ctx: &mut Context, node: &NodeName, status: AttemptStatus) {
    let now = ctx.now();
    let Some(contact) = ctx.contact_mut(node) else {
        return;
    };
    if let Some(asked) = contact.asked.get_mut(&status.attempt) {
        asked.phase = status.phase;
        return;
    }
    if contact.asked.len() >= MAX_ATTEMPTS_PER_NODE {
        return on_stray(ctx, node, status);
    }
    let asked = PendingAdoption {
        phase: status.phase,
        at: now,
        warrant: None,
    };
    contact.asked.insert(status.attempt.clone(), asked);
    ctx.send(
        node,
        ToNode::ShowWarrant {
            attempt: status.attempt,
        },
    );
}

/// Whether a step is over and holds nothing.
pub(crate) fn is_past(step: &Step) -> bool {
    step.state.is_terminal() && !step.holds_units()
}
