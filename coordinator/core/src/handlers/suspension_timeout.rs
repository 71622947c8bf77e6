//! An attempt may have been suspended for longer than allowed.

use sluice_common::id::AttemptId;
use sluice_common::wire::StopReason;

use crate::attempts::orders::stop_attempt;
use crate::attempts::suspension::{latest_id, overdue_at};
use crate::context::Context;
use crate::input::TimerKey;

/// Handles the timer of a suspension. The attempt may be running by now, or have been frozen again later.
pub(crate) fn on_suspension_timer(ctx: &mut Context, id: &AttemptId) {
    let step = ctx.state().step(&id.step);
    let same = step.filter(|step| latest_id(step).as_ref() == Some(id));
    match same.and_then(overdue_at) {
        Some(at) if at <= ctx.now() => {
            stop_attempt(ctx, id, StopReason::SuspendedTooLong);
        }
        Some(at) => ctx.set_timer(TimerKey::Suspension(id.clone()), at),
        None => {}
    }
}
