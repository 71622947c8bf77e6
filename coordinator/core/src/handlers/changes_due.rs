//! A rate-limited host may change once more.

use sluice_common::id::NodeName;

use crate::context::Context;
use crate::hosts::changes::{take_in, tell_held_back};
use crate::hosts::link::may_change;
use crate::input::TimerKey;

/// Applies held changes of a node, if the bucket has a token again.
pub(crate) fn on_changes_timer(ctx: &mut Context, name: &NodeName) {
    while may_change(ctx, name) {
        let contact = ctx.contact_mut(name);
        let Some(change) = contact.and_then(|contact| contact.change_rate.next_held()) else {
            break;
        };
        take_in(ctx, name, change);
    }
    let now = ctx.now();
    let Some(contact) = ctx.contact_mut(name) else {
        return;
    };
    let change_rate = &mut contact.change_rate;
    if change_rate.is_holding() {
        let at = change_rate.next_at();
        return ctx.set_timer(TimerKey::Changes(name.clone()), at);
    }
    let at = change_rate.quiet_at();
    if at > now {
        return ctx.set_timer(TimerKey::Changes(name.clone()), at);
    }
    if core::mem::replace(&mut change_rate.is_noted, false) {
        tell_held_back(ctx, name);
    }
}
