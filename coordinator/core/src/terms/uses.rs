//! Who uses what a change of terms takes away: asked before the change is made, by whoever makes it.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::pool::{PolicySpec, Table};
use sluice_common::quantity::figure;
use sluice_common::state::StepState;
use sluice_reasons::Why;

use crate::context::Context;
use crate::input::Wanted;
use crate::output::Use;
use crate::state::State;
use crate::submit::feasible::never_by_terms;
use crate::terms::platforms::bereft_of_platform;

/// Who uses what a change takes away.
pub(crate) fn uses(before: &State, wanted: &Wanted) -> Vec<Use> {
    match wanted {
        Wanted::Cluster { .. }
        | Wanted::Validation { .. }
        | Wanted::NoValidation { .. }
        | Wanted::Access { .. }
        | Wanted::Platform { .. }
        | Wanted::NoPlatform { .. }
        | Wanted::Template { .. }
        | Wanted::NoTemplate { .. } => Vec::new(),
        Wanted::Pool { pool, terms } => shrunk_pool(before, pool, &terms.spec.capacity),
        Wanted::Policy {
            pool,
            subject,
            policy,
        } => shrunk_policy(before, pool, subject, policy),
        Wanted::NoPolicy { pool, subject } => gone(before, pool, Some(subject)),
        Wanted::NoPool { pool } => gone(before, pool, None),
    }
}

fn shrunk_pool(before: &State, pool: &PoolName, capacity: &Table) -> Vec<Use> {
    let (Some(known), Some(market)) = (before.pool(pool), before.market().pool(pool)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, used) in market.used().iter() {
        let earlier = known.spec.capacity.get(key).copied();
        let now = match (capacity.get(key), earlier) {
            (Some(now), earlier) => Some(*now).filter(|now| earlier.is_none_or(|e| e > *now)),
            (None, Some(_)) if market.detected(key.as_str()).is_none() => Some(0),
            (None, _) => None,
        };
        if let Some(now) = now.filter(|now| *now < used) {
            let (now, used) = (figure(key.as_str(), now), figure(key.as_str(), used));
            let message = format!("capacity.{key} would be {now}, and {used} are in use");
            found.push(use_of(before, pool, None, Some(key.as_str()), message));
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
    let used = before.market().pool(pool);
    let used = used.and_then(|pool| pool.used_by(subject));
    let (Some(earlier), Some((used, firm))) = (earlier, used) else {
        return Vec::new();
    };
    let lowered = |now: Option<u64>, earlier: Option<u64>, used: u64| {
        now.filter(|now| *now < used && earlier.is_none_or(|earlier| earlier > *now))
    };
    let used_of = |key: &str, message| use_of(before, pool, Some(subject), Some(key), message);
    let limits = used.iter().filter_map(|(key, used)| {
        let earlier = earlier.policy.limit.get(key).copied();
        let now = lowered(policy.limit.get(key).copied(), earlier, used)?;
        let (now, used) = (figure(key.as_str(), now), figure(key.as_str(), used));
        let message = format!("limit.{key} would be {now}, and `{subject}` uses {used}");
        Some(used_of(key.as_str(), message))
    });
    let reserved = firm.iter().filter_map(|(key, used)| {
        let key = key.as_str();
        let now = lowered(policy.reserved(key), earlier.policy.reserved(key), used)?;
        let (now, used) = (figure(key, now), figure(key, used));
        let message = format!(
            "reserved.{key} would be {now}, and steps of `{subject}` that cannot be made to give way use {used}"
        );
        Some(used_of(key, message))
    });
    limits.chain(reserved).collect()
}

fn gone(before: &State, pool: &PoolName, subject: Option<&Subject>) -> Vec<Use> {
    let message = match subject {
        Some(subject) => format!("steps of `{subject}` run in it"),
        None => "steps run in it".to_string(),
    };
    let found = use_of(before, pool, subject, None, message);
    if found.steps.is_empty() {
        Vec::new()
    } else {
        Vec::from([found])
    }
}

/// The steps that hold units of a pool: of a subject, or all; of a key, or any.
fn use_of(
    before: &State,
    pool: &PoolName,
    subject: Option<&Subject>,
    key: Option<&str>,
    message: String,
) -> Use {
    let runs = before.market().runs_of(pool, subject);
    let runs = runs.filter(|(_, run)| key.is_none_or(|key| run.demand().get(key) > 0));
    let steps: BTreeSet<StepId> = runs.map(|(id, _)| id.step.clone()).collect();
    let what = match subject {
        Some(subject) => format!("policy of `{subject}` in pool `{pool}`"),
        None => format!("pool `{pool}`"),
    };
    Use {
        message: format!("{what}: {message}"),
        steps: steps.into_iter().collect(),
    }
}

pub(crate) fn waiting(rejected: &[StepId]) -> Use {
    let message = match rejected.len() {
        1 => "a step that waits could never start and would be rejected".to_string(),
        n => format!("{n} steps that wait could never start and would be rejected"),
    };
    Use {
        message,
        steps: rejected.to_vec(),
    }
}

/// Why a step that waits could never start.
pub(crate) fn never_starts(ctx: &Context, id: &StepId, changed: &[&Wanted]) -> Option<Why> {
    let step = ctx.state().step(id);
    let step = step.filter(|step| step.state == StepState::Queued)?;
    let bereft = || {
        let waits = step.spec.allow_pending;
        let bereft = bereft_of_platform(ctx, id, changed).filter(|_| !waits);
        bereft.map(Why::rejected)
    };
    never_by_terms(ctx, step).or_else(bereft)
}
