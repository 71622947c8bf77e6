//! Decides which replicas are in the reserved share of their subject, and so cannot be preempted.

use sluice_common::amount::{MGPU, STEP_RUN};
use sluice_common::step::StepSpec;
use sluice_scheduler::Request;

use crate::context::Context;
use crate::counted_by_hosts;
use crate::model::service::Service;
use crate::submit::effective_spec::placeholder_id;
use crate::submit::route::route_of;

/// Whether one more replica may be one that cannot be preempted: the first `min_replicas` are, as far as the policy
/// reserves them.
pub(super) fn may_be_guaranteed(ctx: &Context, service: &Service, spec: &StepSpec) -> bool {
    let steps = service
        .live()
        .filter_map(|replica| ctx.state().step(&replica.step));
    let guaranteed = steps.filter(|step| !step.spec.preemptible).count() as u64;
    let wanted = u64::from(service.scale.min);
    guaranteed < wanted.min(reserved_for(ctx, spec))
}

/// The number of steps of this kind for which the policy reserves enough in the pool that they prefer.
fn reserved_for(ctx: &Context, spec: &StepSpec) -> u64 {
    let route = route_of(ctx, spec);
    let request = route.send(Request::from_spec(placeholder_id(), u64::MAX, spec));
    let scheduler = ctx.state().scheduler();
    let pool = scheduler.pools_for(&request).into_iter().next();
    let Some(policy) = pool.and_then(|(_, pool)| pool.policy(&request.subject)) else {
        return 0;
    };
    let asked = spec.request.iter().filter(|(_, amount)| *amount > 0);
    let rooms = asked.filter_map(|(key, amount)| {
        let is_named = policy.keys().any(|named| named.as_str() == key.as_str());
        let counts = is_named || key.as_str() == MGPU || !counted_by_hosts(key.as_str());
        let counts = counts && (is_named || key.as_str() != STEP_RUN);
        let reserved = policy.reserved.get(key).copied().unwrap_or(0);
        counts.then(|| reserved / amount.saturating_mul(u64::from(spec.nodes.max(1))).max(1))
    });
    rooms.min().unwrap_or(u64::MAX)
}
