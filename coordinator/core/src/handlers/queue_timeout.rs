//! Ends a step that has been queued for longer than its `queue_timeout`.

use sluice_common::id::StepId;
use sluice_common::state::StepState;
use sluice_reasons::Cause;

use crate::attempts::queue_timeout::{await_units, queue_timeout_at};
use crate::context::Context;
use crate::record;
use crate::record::Record;

/// Handles the timer of a queue timeout. The step may be running by now, or have been queued again since.
pub(crate) fn on_queue_timer(ctx: &mut Context, id: &StepId) {
    match ctx.state().step(id).and_then(queue_timeout_at) {
        Some((at, queue_timeout)) if at <= ctx.now() => {
            ctx.record(Record::StepEnded(record::StepEnded {
                step: id.clone(),
                state: StepState::Failed,
                reason: Cause::WaitedTooLong { queue_timeout },
            }))
        }
        Some(_) => await_units(ctx, id),
        None => {}
    }
}
