//! Admits steps that are to run inside an allocation, and fills in what they leave to it.
//!
//! A step that asks for no resources gets all that the allocation has, on all of its hosts, as `srun` does within `salloc`.
//! One that asks for some gets these on one host, or on as many as it says. Of the cores, the memory and the disk that it
//! leaves open it gets as large a part of the allocation as of the GPUs that it asks for, or else of the first of these that
//! it asks for.

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, ResourceKey, STORAGE_MB};
use sluice_common::id::StepId;
use sluice_common::mig::GpuClass;
use sluice_common::pool_rules::Setting;
use sluice_common::processors::CpuMode;
use sluice_common::request::ResourceSettings;
use sluice_common::step::StepSpec;
use sluice_reasons::{Cause, Rejection};
use sluice_scheduler::Request;

use crate::context::Context;
use crate::handlers::renew::open_allocation;
use crate::inside::room::is_counted;
use crate::model::step::Step;
use crate::output::Refusal;
use crate::state::request;
use crate::submit::default_amounts::states;
use crate::submit::feasible::rejected;
use crate::submit::rules::{SubmitDecision, queued_inside};

/// Admits or rejects a step that is to run inside `allocation`.
///
/// # Errors
/// There is no such allocation, it is over, or belongs to another subject, or nothing runs inside it.
pub(crate) fn admit_inside(
    ctx: &Context,
    step: &StepId,
    spec: StepSpec,
    allocation: &StepId,
) -> Result<SubmitDecision, Refusal> {
    let held = check_allocation(ctx, &spec, allocation)?;
    if let Some(never) = never_inside(&spec, held) {
        let reason = Cause::rejected(never);
        return Ok(SubmitDecision::Rejected { spec, reason });
    }
    let filled = filled(spec.clone(), held);
    let asks = Request::from_spec(step.clone(), 0, &filled);
    let asks = held.route.send(asks);
    let granted = held.live().map(|attempt| &attempt.pool);
    let held_request = request(held);
    let pools = ctx.state().scheduler().pools_for(&held_request);
    let candidates = pools.into_iter().map(|(name, _)| name);
    let candidates = granted
        .into_iter()
        .chain(candidates.filter(|_| granted.is_none()));
    let mut obstacles = alloc::vec::Vec::new();
    for name in candidates {
        let Some(pool) = ctx.state().pool(name) else {
            continue;
        };
        match queued_inside(ctx, pool, held, &asks, &filled) {
            Ok(queued) => return Ok(queued),
            Err(obstacle) => obstacles.push(*obstacle),
        }
    }
    let reason = rejected(obstacles.into_iter(), &asks);
    Ok(SubmitDecision::Rejected { spec, reason })
}

/// The allocation inside which a step is to run.
fn check_allocation<'a>(
    ctx: &'a Context,
    spec: &StepSpec,
    allocation: &StepId,
) -> Result<&'a Step, Refusal> {
    let (held, _) = open_allocation(ctx, allocation)?;
    let step = allocation.clone();
    if held.spec.subject != spec.subject {
        return Err(Refusal::OthersAllocation {
            allocation: step,
            owner: held.spec.subject.clone(),
            asked: spec.subject.clone(),
        });
    }
    let pool = ctx.state().pool_of(held);
    let terms = pool.and_then(|pool| ctx.state().pool(pool));
    if let Some(pool) = terms.filter(|pool| pool.is_hostless()) {
        let pool = pool.name.clone();
        return Err(Refusal::StepWithoutHost { step, pool });
    }
    let what = match (held.spec.gpu_class(), held.spec.cpu_mode) {
        (GpuClass::Slice(_), _) => "slices of GPUs",
        (GpuClass::Whole, CpuMode::Pinned) => "whole cores of its own",
        (GpuClass::Whole, _) => return Ok(held),
    };
    let allocation = step;
    Err(Refusal::NotDividable { allocation, what })
}

/// Whether a step asks for no resources, so that it gets all of its allocation.
fn asks_for_all(resources: &ResourceSettings) -> bool {
    let ResourceSettings {
        gpu_count,
        mig,
        cpu_count,
        memory,
        storage,
        pool_resources,
        ..
    } = resources;
    let is_open = gpu_count.is_none() && mig.is_none() && cpu_count.is_none();
    is_open && memory.is_none() && storage.is_none() && pool_resources.is_empty()
}

/// The spec with what its allocation decides.
fn filled(mut spec: StepSpec, held: &Step) -> StepSpec {
    let all = asks_for_all(&spec.resources);
    if spec.nodes == 0 {
        spec.nodes = match all {
            true => held.spec.nodes,
            false => 1,
        };
    }
    spec.request = match all {
        true => held.spec.request.clone(),
        false => with_shares(&spec, &held.spec.request),
    };
    spec.pool = held.live().map(|attempt| attempt.pool.clone());
    spec.pool = spec.pool.or_else(|| held.spec.pool.clone());
    spec.platform = held.spec.platform.clone();
    spec.preemptible = held.spec.preemptible;
    // Whole cores would be others than those of the allocation.
    spec.unset.remove(&Setting::CpuMode);
    spec
}

/// The amounts that a step asks for, and its part of those that it leaves open.
fn with_shares(spec: &StepSpec, whole: &Amounts) -> Amounts {
    let mut request = spec.request.clone();
    let open = |key: &&str| !states(&spec.resources, key);
    let measures = [MGPU, MCPU, MEMORY_MB, STORAGE_MB].into_iter();
    let mut measures = measures.filter(|key| spec.request.get(key) > 0 && whole.get(key) > 0);
    let Some(measure) = measures.next() else {
        return request;
    };
    let (part, of) = (spec.request.get(measure), whole.get(measure));
    for key in [MCPU, MEMORY_MB, STORAGE_MB].iter().filter(|key| open(key)) {
        let share = u128::from(whole.get(key)) * u128::from(part) / u128::from(of);
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        request = request.with(key, share.min(whole.get(key)));
    }
    request
}

/// Why a step never fits into an allocation, with the numbers.
fn never_inside(spec: &StepSpec, held: &Step) -> Option<Rejection> {
    let allocation = &held.id;
    if spec.nodes > held.spec.nodes {
        return Some(Rejection::FewerHostsInside {
            allocation: allocation.clone(),
            asked: spec.nodes,
            has: held.spec.nodes,
        });
    }
    let whole = &held.spec.request;
    let mut asked = spec.request.iter();
    let exceeds = |(key, asked): &(&ResourceKey, u64)| {
        is_counted(whole, key.as_str()) && *asked > whole.get(key.as_str())
    };
    let (key, asked) = asked.find(exceeds)?;
    Some(Rejection::ExceedsAllocation {
        allocation: allocation.clone(),
        key: key.clone(),
        asked,
        has: whole.get(key.as_str()),
    })
}
