//! Records checkpoints of steps: the work that a preemption would lose counts from the last one.

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::time::Span;

use crate::attempts::live::live_on;
use crate::context::Context;
use crate::model::step::PartPhase;
use crate::record::Record;

/// Shortest time between two recorded checkpoints of one attempt: a step that saves its work every second would fill
/// the log, and one minute of lost work hardly affects the choice of victims.
const RECORD_AGAIN: Span = Span::from_secs(60);

/// Records a checkpoint that a host reports. Hosts may repeat a report.
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
