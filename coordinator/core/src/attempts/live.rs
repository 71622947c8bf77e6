//! Looks up attempts that hold resources on a node.

use sluice_common::id::{AttemptId, NodeName};

use crate::context::Context;
use crate::model::step::{Attempt, Part, PartPhase, Step};

pub(crate) fn phase_on(ctx: &Context, node: &NodeName, id: &AttemptId) -> Option<PartPhase> {
    live_on(ctx, node, id).map(|(_, _, part)| part.phase)
}

/// Returns an attempt that holds resources on a node.
pub(crate) fn live_on<'a>(
    ctx: &'a Context,
    node: &NodeName,
    id: &AttemptId,
) -> Option<(&'a Step, &'a Attempt, &'a Part)> {
    let step = ctx.state().step(&id.step)?;
    let attempt = step.attempt(id.number)?;
    let part = attempt.on(node)?;
    (part.phase < PartPhase::Released).then_some((step, attempt, part))
}
