//! Handles a heartbeat.

use alloc::borrow::ToOwned;

use sluice_common::id::NodeName;
use sluice_common::supervision::Exit;
use sluice_common::wire::Heartbeat;
use sluice_reasons::messages::recorded::ORDER_RAN_OUT;

use crate::attempts::live::live_on;
use crate::attempts::progress::vanish;
use crate::contact::delivery::DeliveryTerms;
use crate::context::Context;
use crate::hosts::link::{call_unreachable, on_heard};
use crate::input::SessionId;
use crate::model::step::PartPhase;

pub(crate) fn on_heartbeat(
    ctx: &mut Context,
    session: SessionId,
    node: &NodeName,
    beat: &Heartbeat,
) {
    let terms = DeliveryTerms::from(ctx.settings());
    let contact = ctx.contact_mut(node);
    let Some(contact) = contact.filter(|contact| contact.session == Some(session)) else {
        return;
    };
    let void = contact.delivery.on_heartbeat(beat, terms);
    if contact.delivery.is_deaf() {
        call_unreachable(ctx, node);
    }
    on_heard(ctx, session, node);
    for id in void {
        let live = live_on(ctx, node, &id);
        if live.is_some_and(|(_, _, part)| part.phase == PartPhase::Allocated) {
            vanish(ctx, node, &id, Exit::NotBegun(ORDER_RAN_OUT.to_owned()));
        }
    }
}
