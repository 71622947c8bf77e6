//! Renews an allocation for its holder.

use sluice_common::allocation::HolderState;
use sluice_common::id::StepId;
use sluice_common::time::Span;

use crate::arrays::unknown_step;
use crate::attempts::leases::await_renewal;
use crate::context::Context;
use crate::input::ReplyId;
use crate::output::{Answer, Refusal};
use crate::record::{Record, Renewal};

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
        let state = known.state;
        return Err(Refusal::StepOver { step, state });
    }
    let until = ctx.now() + lease.unwrap_or(own);
    ctx.record(Record::Renewed(Renewal {
        step,
        until,
        holder,
    }));
    await_renewal(ctx, id);
    Ok(())
}
