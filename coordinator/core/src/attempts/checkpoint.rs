//! Records checkpoints of steps: the work that a preemption would lose counts from the last one.

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::time::Span;

use crate::attempts::live::live_on;
use crate::context::Context;
use crate::model::step::PartPhase;
use crate::record::Record;

/// Between two that are recorded of one attempt: a step that saves its work every second would fill the log, and a
/// minute more or less of lost work decides nothing that matters.
const RECORD_AGAIN: Span = Span::from_secs(60);

/// A host has seen that an attempt on it saved its work so long ago. Hosts repeat themselves.
pub(crate) fn on_checkpoint(ctx: &mut Context, node: &NodeName, id: AttemptId, ago: Span) {
    let Some((_, attempt, part)) = live_on(ctx, node, &id) else {
        return;
    };
    let (PartPhase::Running, Some(began)) = (part.phase, attempt.began_at) else {
        return;
    };
    let saved_at = ctx.now().before(ago);
    let is_news = match attempt.saved_at {
        None => saved_at > began,
        Some(last) => saved_at >= last + RECORD_AGAIN,
    };
    if is_news {
        ctx.record(Record::Checkpointed {
            attempt: id,
            saved_at,
        });
    }
}
