//! Renews an allocation for its holder.

use alloc::boxed::Box;

use sluice_common::allocation::{HolderState, Lease};
use sluice_common::id::StepId;
use sluice_common::time::{Span, Time};

use crate::arrays::unknown_step;
use crate::attempts::leases::await_renewal;
use crate::context::Context;
use crate::input::ReplyId;
use crate::model::step::Step;
use crate::output::{Answer, Refusal};
use crate::record::{Record, Renewal};

/// Part of its lease that a renewal must add.
const WORTH: u64 = 10;

pub(crate) fn on_renew(
    ctx: &mut Context,
    reply: ReplyId,
    id: StepId,
    lease: Option<Span>,
    holder: Option<HolderState>,
) {
    let renewed = renew(ctx, &id, lease, holder);
    ctx.reply(reply, Answer::Steered(renewed.map(|()| id)));
}

/// Says that an allocation has ended.
pub(crate) fn allocation_over(allocation: &Step) -> Refusal {
    Refusal::StepOver {
        step: allocation.id.clone(),
        state: allocation.state,
        ended: Some(Box::new(allocation.reason.clone())),
    }
}

/// Lets an allocation last for `lease` from now, or for its own lease.
fn renew(
    ctx: &mut Context,
    id: &StepId,
    lease: Option<Span>,
    holder: Option<HolderState>,
) -> Result<(), Refusal> {
    let step = id.clone();
    let Some(known) = ctx.state().step(id) else {
        return Err(unknown_step(ctx, id));
    };
    let Some(own) = known.spec.lease else {
        return Err(Refusal::NotAnAllocation { step });
    };
    if known.state.is_terminal() {
        return Err(allocation_over(known));
    }
    let lease = lease.unwrap_or(own);
    let until = ctx.now() + lease;
    if known
        .lease
        .is_some_and(|last| says_nothing_new(last, until, lease, holder))
    {
        return Ok(());
    }
    ctx.record(Record::Renewed(Renewal {
        step,
        until,
        lease,
        holder,
    }));
    await_renewal(ctx, id);
    Ok(())
}

/// Whether a renewal comes so soon after the last that it is worth no record: those of a holder that renews all the time
/// would push everything else out of the log.
fn says_nothing_new(last: Lease, until: Time, lease: Span, holder: Option<HolderState>) -> bool {
    let longer = until.since(last.until);
    let is_soon = until >= last.until && longer.millis() < lease.millis() / WORTH;
    is_soon && lease == last.span && (holder.is_none() || holder == last.holder)
}
