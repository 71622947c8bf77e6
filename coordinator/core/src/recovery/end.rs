//! Ends a recovery: when every host has reported, or an admin does not wait.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::time::{Span, Time};
use sluice_common::wire::AttemptStatus;

use crate::attempts::strays::on_stray;
use crate::contact::PendingAdoption;
use crate::context::Context;
use crate::hosts::link::settle_again;
use crate::input::TimerKey;
use crate::model::recovery::RecoveryEnd;
use crate::record::Record;
use crate::recovery::{recovery_lasts_until, unreported};

/// Longest time for which a host that was asked for warrants delays the end of a recovery. Warrants are files that it
/// reads.
pub(crate) const ANSWER_LIMIT: Span = Span::from_secs(30);

/// Ends the recovery when all hosts have reported. Called after every input.
pub(crate) fn check_recovery(ctx: &mut Context) {
    let over = ctx.state().recovery().is_some() && ctx.now() >= recovery_lasts_until(ctx);
    if !over || unreported(ctx).next().is_some() {
        return;
    }
    match answers_due_at(ctx) {
        Some(at) if at > ctx.now() => ctx.set_timer(TimerKey::Recovery, at),
        Some(_) | None => end_recovery(ctx, RecoveryEnd::Complete),
    }
}

/// Time until which answers of hosts are awaited.
pub(crate) fn answers_due_at(ctx: &Context) -> Option<Time> {
    let asked = ctx
        .contacts()
        .values()
        .flat_map(|contact| contact.asked.values());
    let unanswered = asked.filter(|asked| asked.warrant.is_none());
    unanswered.map(|asked| asked.at + ANSWER_LIMIT).max()
}

/// Ends the recovery. Attempts that were not adopted by now are unknown here, and are stopped.
pub(crate) fn end_recovery(ctx: &mut Context, end: RecoveryEnd) {
    ctx.record(Record::RecoveryEnded { end });
    let nodes: Vec<NodeName> = ctx.contacts().keys().cloned().collect();
    for node in nodes {
        for (id, asked) in take_asked(ctx, &node) {
            on_stray(
                ctx,
                &node,
                AttemptStatus {
                    attempt: id,
                    phase: asked.phase,
                },
            );
        }
        settle_again(ctx, &node);
    }
}

pub(crate) fn take_asked(
    ctx: &mut Context,
    node: &NodeName,
) -> BTreeMap<AttemptId, PendingAdoption> {
    let contact = ctx.contact_mut(node);
    contact
        .map(|contact| core::mem::take(&mut contact.asked))
        .unwrap_or_default()
}
