//! A host that was held back may change once more.

use sluice_common::id::NodeName;

use crate::context::Context;
use crate::hosts::changes::{take_in, tell_held_back};
use crate::hosts::link::may_change;
use crate::input::TimerKey;

/// There may be one to be taken again.
pub(crate) fn on_changes_timer(ctx: &mut Context, name: &NodeName) {
    while may_change(ctx, name) {
        let contact = ctx.contact_mut(name);
        let Some(change) = contact.and_then(|contact| contact.pace.next_held()) else {
            break;
        };
        take_in(ctx, name, change);
    }
    let now = ctx.now();
    let Some(contact) = ctx.contact_mut(name) else {
        return;
    };
    let pace = &mut contact.pace;
    if pace.is_holding() {
        let at = pace.next_at();
        return ctx.set_timer(TimerKey::Changes(name.clone()), at);
    }
    let at = pace.quiet_at();
    if at > now {
        return ctx.set_timer(TimerKey::Changes(name.clone()), at);
    }
    if core::mem::replace(&mut pace.told, false) {
        tell_held_back(ctx, name);
    }
}
