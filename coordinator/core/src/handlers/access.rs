//! Creates and revokes API tokens, and records calls for the audit log.

use sluice_common::access::AuditEntry;

use crate::context::Context;
use crate::input::ReplyId;
use crate::model::access::AccessChange;
use crate::output::Answer;
use crate::record::Record;
use crate::terms::access::change_access;

/// Makes or takes back a token.
pub(crate) fn on_access(ctx: &mut Context, reply: ReplyId, change: AccessChange) {
    let done = change_access(ctx, &change);
    ctx.reply(reply, Answer::Changed(done));
}

/// Notes who did what.
pub(crate) fn on_audit(ctx: &mut Context, entry: AuditEntry) {
    ctx.record(Record::Audited { entry });
}
