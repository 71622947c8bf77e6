//! Tells how many replicas the policy of their subject reserves and allows: those within the reserved share cannot be
//! preempted, and the load of a service asks for none beyond the limit.

use sluice_common::amount::{MGPU, ResourceKey, STEP_RUN};
use sluice_common::pool::PolicySpec;
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
    let rooms = rooms(ctx, spec, |policy, key| {
        let is_named = policy.keys().any(|named| named.as_str() == key.as_str());
        let counts = is_named || key.as_str() == MGPU || !counted_by_hosts(key.as_str());
        let counts = counts && (is_named || key.as_str() != STEP_RUN);
        counts.then(|| policy.reserved.get(key).copied().unwrap_or(0))
    });
    rooms.unwrap_or(0)
}

/// The number of steps of this kind that the policy's limit lets run in the pool that they prefer, if they were alone.
pub(super) fn within_limit(ctx: &Context, spec: &StepSpec) -> u32 {
    let rooms = rooms(ctx, spec, |policy, key| policy.limit.get(key).copied());
    u32::try_from(rooms.unwrap_or(u64::MAX)).unwrap_or(u32::MAX)
}

/// The number of steps of this kind for which there is room in the amounts that `room` reads from the policy of their
/// subject, for each key that they ask for and that has one; `None` without a policy.
fn rooms(
    ctx: &Context,
    spec: &StepSpec,
    room: impl Fn(&PolicySpec, &ResourceKey) -> Option<u64>,
) -> Option<u64> {
    let route = route_of(ctx, spec);
    let request = route.send(Request::from_spec(placeholder_id(), u64::MAX, spec));
    let scheduler = ctx.state().scheduler();
    let pool = scheduler.pools_for(&request).into_iter().next();
    let policy = pool.and_then(|(_, pool)| pool.policy(&request.subject))?;
    let asked = spec.request.iter().filter(|(_, amount)| *amount > 0);
    let rooms = asked.filter_map(|(key, amount)| {
        let each = amount.saturating_mul(u64::from(spec.nodes.max(1))).max(1);
        room(policy, key).map(|room| room / each)
    });
    Some(rooms.min().unwrap_or(u64::MAX))
}
