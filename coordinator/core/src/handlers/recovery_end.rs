//! An admin ends a recovery before all hosts have reported.

use crate::context::Context;
use crate::input::ReplyId;
use crate::model::recovery::RecoveryEnd;
use crate::output::{Answer, Refusal};
use crate::recovery::end::end_recovery;

/// Ends the recovery without the hosts that have not reported.
pub(crate) fn on_end_recovery(ctx: &mut Context, reply: ReplyId) {
    let changed = match ctx.state().recovery() {
        Some(_) => {
            end_recovery(ctx, RecoveryEnd::Ordered);
            Ok(())
        }
        None => Err(Refusal::NotRecovering),
    };
    ctx.reply(reply, Answer::Changed(changed));
}
