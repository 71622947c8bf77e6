//! Invariants of services and their replicas.

use alloc::format;

use sluice_common::id::ServiceName;
use sluice_common::state::StepState;
use sluice_common::time::Span;

use super::{CheckResult, need};
use crate::core::Core;
use crate::record;
use crate::services::plan::{PlanStep, plan};
use crate::services::{current_revisions, views};
use crate::state::State;

/// Services have no replica among the endpoints that is not ready, no replica whose step has ended, and nothing left to do.
pub(super) fn services_are_settled(core: &Core) -> CheckResult {
    let state = core.state();
    for (name, service) in state.services() {
        for (number, replica) in &service.replicas {
            let step = state
                .step(&replica.step)
                .filter(|step| !step.state.is_terminal());
            let place = step.and_then(|step| step.spec.service.as_ref());
            let is_its = place.is_some_and(|it| it.name == *name && it.number == *number);
            let recovering = state.recovery().is_some();
            need("replicas_are_open_steps", is_its || recovering, || {
                format!("`{}` of `{name}`", replica.step)
            })?;
            let runs = step.is_some_and(|step| step.state == StepState::Running);
            let serves = replica.phase.is_serving();
            need("endpoints_are_ready", runs || !serves || recovering, || {
                format!("`{}` of `{name}`", replica.step)
            })?;
            need(
                "numbers_are_used_once",
                *number < service.next_replica,
                || format!("{number} of `{name}`"),
            )?;
        }
        if state.recovery().is_none() {
            let ctx = core.context();
            // What is due just now is done when its timer fires.
            let current = current_revisions(service);
            let at = |now| plan(service, &views(ctx, service, &current, now), now);
            let waits = |now| matches!(at(now), PlanStep::Wait(_));
            let is_settled = waits(ctx.now()) || waits(ctx.now().before(Span::from_millis(1)));
            need("services_are_settled", is_settled, || {
                format!("{:?} of `{name}`", at(ctx.now()))
            })?;
        }
    }
    Ok(())
}

/// The number of replicas is set within the bounds of the service, by whomever.
pub(super) fn number_is_in_range(before: &State, name: &ServiceName, count: u32) -> CheckResult {
    let scale = before.services().get(name).map(|service| &service.scale);
    let fits = scale.is_some_and(|it| it.fixed || (it.min..=it.max).contains(&count));
    need("replicas_are_in_range", fits, || {
        format!("{count} of `{name}`")
    })
}

/// A replica is added only while there are fewer than wanted, and as many more as a change of version allows.
pub(super) fn replica_may_be_added(before: &State, added: &record::ReplicaStarted) -> CheckResult {
    let service = before.services().get(&added.service);
    let fits = service.is_some_and(|it| {
        let most = it.count.saturating_add(it.rollout_spec.max_surge) as usize;
        it.replicas.len() < most && added.number >= it.next_replica
    });
    need("replicas_are_bounded", fits, || format!("{added:?}"))
}
