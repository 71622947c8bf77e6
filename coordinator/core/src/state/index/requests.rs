//! Requests of steps to the scheduler.

use alloc::collections::BTreeSet;

use sluice_common::id::NodeName;
use sluice_common::supervision::Exit;
use sluice_scheduler::Request;

use crate::model::step::Step;

/// The request of a step to the scheduler.
pub(crate) fn request(step: &Step) -> Request {
    let mut request = Request::from_spec(step.id.clone(), step.order(), &step.spec);
    request.accepted_at = Some(step.moved_at.unwrap_or(step.place));
    request.excluded_pools = step.excluded_pools.clone();
    request.evictions = step.evictions.clone();
    request.guards = step.provenance.guards.clone();
    step.route.send(request)
}

/// The hosts whose prolog failed for the step: others are tried first.
pub(super) fn avoided_hosts(step: &Step) -> BTreeSet<NodeName> {
    let parts = step.attempts.iter().flat_map(|attempt| &attempt.parts);
    let failed = parts.filter(|part| {
        let end = part.end.as_ref();
        end.is_some_and(|end| matches!(end.exit, Exit::PrologFailed(_)))
    });
    failed.map(|part| part.node.clone()).collect()
}
