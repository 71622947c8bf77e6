//! Finds the users of what a change takes away, before the change is made.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::amount::ResourceKey;
use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::pool::{PolicySpec, ResourceTable};
use sluice_common::state::StepState;
use sluice_reasons::{Cause, InUse, Shrunk};

use crate::context::Context;
use crate::input::Desired;
use crate::output::Use;
use crate::state::State;
use crate::submit::feasible::never_by_terms;
use crate::terms::platforms::loses_platform;

/// The users of what a change takes away.
pub(crate) fn uses(before: &State, wanted: &Desired) -> Vec<Use> {
    match wanted {
        Desired::Cluster { .. }
        | Desired::Topology { .. }
        | Desired::Validation { .. }
        | Desired::NoValidation { .. }
        | Desired::Access { .. }
        | Desired::Platform { .. }
        | Desired::NoPlatform { .. }
        | Desired::Template { .. }
        | Desired::NoTemplate { .. } => Vec::new(),
        Desired::Pool { pool, terms } => shrunk_pool(before, pool, &terms.spec.capacity),
        Desired::Policy {
            pool,
            subject,
            policy,
        } => shrunk_policy(before, pool, subject, policy),
        Desired::NoPolicy { pool, subject } => uses_of_deleted(before, pool, Some(subject)),
        Desired::NoPool { pool } => uses_of_deleted(before, pool, None),
    }
}

fn shrunk_pool(before: &State, pool: &PoolName, capacity: &ResourceTable) -> Vec<Use> {
    let (Some(known), Some(scheduler)) = (before.pool(pool), before.scheduler().pool(pool)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, used) in scheduler.used().iter() {
        let earlier = known.spec.capacity.get(key).copied();
        let now = match (capacity.get(key), earlier) {
            (Some(now), earlier) => Some(*now).filter(|now| earlier.is_none_or(|e| e > *now)),
            (None, Some(_)) if scheduler.detected(key.as_str()).is_none() => Some(0),
            (None, _) => None,
        };
        if let Some(now) = now.filter(|now| *now < used) {
            let shrunk = Shrunk::Capacity { used };
            found.push(shrinks(before, pool, None, (key, now), shrunk));
        }
    }
    found
}

fn shrunk_policy(
    before: &State,
    pool: &PoolName,
    subject: &Subject,
    policy: &PolicySpec,
) -> Vec<Use> {
    let known = before.pool(pool);
    let earlier = known.and_then(|known| known.policies.get(subject));
    let used = before.scheduler().pool(pool);
    let used = used.and_then(|pool| pool.used_by(subject));
    let (Some(earlier), Some((used, firm))) = (earlier, used) else {
        return Vec::new();
    };
    let lowered = |now: Option<u64>, earlier: Option<u64>, used: u64| {
        now.filter(|now| *now < used && earlier.is_none_or(|earlier| earlier > *now))
    };
    let shrinks = |key, now, shrunk| shrinks(before, pool, Some(subject), (key, now), shrunk);
    let limits = used.iter().filter_map(|(key, used)| {
        let earlier = earlier.policy.limit.get(key).copied();
        let now = lowered(policy.limit.get(key).copied(), earlier, used)?;
        Some(shrinks(key, now, Shrunk::Limit { used }))
    });
    let reserved = firm.iter().filter_map(|(key, used)| {
        let earlier = earlier.policy.reserved(key.as_str());
        let now = lowered(policy.reserved(key.as_str()), earlier, used)?;
        Some(shrinks(key, now, Shrunk::Reserved { used }))
    });
    limits.chain(reserved).collect()
}

fn uses_of_deleted(before: &State, pool: &PoolName, subject: Option<&Subject>) -> Vec<Use> {
    let steps = steps_in(before, pool, subject, None);
    if steps.is_empty() {
        return Vec::new();
    }
    let (pool, subject) = (pool.clone(), subject.cloned());
    let what = InUse::Gone { pool, subject };
    Vec::from([Use { what, steps }])
}

fn shrinks(
    before: &State,
    pool: &PoolName,
    subject: Option<&Subject>,
    (key, to): (&ResourceKey, u64),
    shrunk: Shrunk,
) -> Use {
    Use {
        steps: steps_in(before, pool, subject, Some(key.as_str())),
        what: InUse::Shrinks {
            pool: pool.clone(),
            subject: subject.cloned(),
            key: key.clone(),
            to,
            shrunk,
        },
    }
}

/// The steps that hold resources of a pool: of one subject or all, of one key or any.
fn steps_in(
    before: &State,
    pool: &PoolName,
    subject: Option<&Subject>,
    key: Option<&str>,
) -> Vec<StepId> {
    let runs = before.scheduler().runs_of(pool, subject);
    let runs = runs.filter(|(_, run)| key.is_none_or(|key| run.demand().get(key) > 0));
    let steps: BTreeSet<StepId> = runs.map(|(id, _)| id.step.clone()).collect();
    steps.into_iter().collect()
}

pub(crate) fn waiting(rejected: &[StepId]) -> Use {
    Use {
        what: InUse::Waiting,
        steps: rejected.to_vec(),
    }
}

/// The reason why a queued step could never start.
pub(crate) fn never_starts(ctx: &Context, id: &StepId, changed: &[&Desired]) -> Option<Cause> {
    let step = ctx.state().step(id);
    let step = step.filter(|step| step.state == StepState::Queued && step.spec.inside.is_none())?;
    let bereft = || {
        let waits = step.spec.allow_pending;
        let bereft = loses_platform(ctx, id, changed).filter(|_| !waits);
        bereft.map(Cause::rejected)
    };
    never_by_terms(ctx, step).or_else(bereft)
}
