//! Records that a host was refused.

use alloc::string::String;

use sluice_common::id::NodeName;

use crate::context::Context;
use crate::record::Record;

/// Records the first refusal after a welcome. A refused host dials again and again.
pub(crate) fn note_refusal(ctx: &mut Context, node: &NodeName, message: &str) {
    let contact = ctx.contact_mut(node);
    let Some(contact) = contact.filter(|contact| !contact.refused) else {
        return;
    };
    contact.refused = true;
    if ctx.state().node(node).is_some() {
        ctx.record(Record::NodeRefused {
            node: node.clone(),
            why: String::from(message),
        });
    }
}
