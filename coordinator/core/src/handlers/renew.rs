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

/// Returns an allocation that has not ended, and the lease that it was asked for with.
///
/// # Errors
/// There is no such step, it is no allocation, or it has ended.
pub(crate) fn open_allocation<'a>(
    ctx: &'a Context,
    id: &StepId,
) -> Result<(&'a Step, Span), Refusal> {
    let Some(known) = ctx.state().step(id) else {
        return Err(unknown_step(ctx, id));
    };
    let step = id.clone();
    let Some(lease) = known.spec.lease else {
        return Err(Refusal::NotAnAllocation { step });
    };
    if known.state.is_terminal() {
        return Err(Refusal::StepOver {
            step,
            state: known.state,
            ended: Some(Box::new(known.reason.clone())),
        });
    }
    Ok((known, lease))
}

/// Lets an allocation last for `lease` from now, or for its own lease.
fn renew(
    ctx: &mut Context,
    id: &StepId,
    lease: Option<Span>,
    holder: Option<HolderState>,
) -> Result<(), Refusal> {
    let (known, own) = open_allocation(ctx, id)?;
    let lease = lease.unwrap_or(own);
    let until = ctx.now() + lease;
    if known
        .lease
        .is_some_and(|last| says_nothing_new(last, until, lease, holder))
    {
        return Ok(());
    }
    ctx.record(Record::Renewed(Renewal {
        step: id.clone(),
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
