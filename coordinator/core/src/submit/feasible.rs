//! Rejections of steps that could never be granted.

use alloc::string::ToString;
use alloc::vec::Vec;

use sluice_common::id::PoolName;
use sluice_common::mig::GpuClass;
use sluice_reasons::rejection::{AmountBound, DomainShortage, HostMismatch, Shortage};
use sluice_reasons::{Cause, Rejection, SimilarPools};
use sluice_scheduler::{Infeasible, Pool, Request};

use crate::context::Context;
use crate::guard::denied_hosts;
use crate::model::step::Step;
use crate::state::request;
use crate::submit::default_amounts::default_of;

/// The reason why a queued step could never start, by declared, reserved and limited amounts alone, because hosts
/// come and go. The rules of pools were checked at the submit.
pub(crate) fn never_by_terms(ctx: &Context, step: &Step) -> Option<Cause> {
    if let Some(unknown) = unknown_pool(ctx, step.only_pool()) {
        return Some(Cause::rejected(unknown));
    }
    let request = request(step);
    let found = match ctx.state().scheduler().admit(&request, true) {
        Err(found) => found,
        Ok(()) => never_without_hosts(ctx, &request)?,
    };
    let found = found.into_iter();
    let found = found.map(|(pool, never)| never_in(ctx, &pool, &request, never));
    Some(rejected(found, &request))
}

/// Why each pool could never grant a request, if some of them have no hosts and get none.
fn never_without_hosts(ctx: &Context, request: &Request) -> Option<Vec<(PoolName, Infeasible)>> {
    let scheduler = ctx.state().scheduler();
    let pools = scheduler.pools_for(request).into_iter();
    let in_each = pools.map(|(name, pool)| {
        let terms = ctx.state().pool(name);
        let gets_hosts = terms.is_none_or(|terms| !terms.is_hostless());
        let never = scheduler.infeasible(pool, request, gets_hosts)?;
        Some((name.clone(), never))
    });
    let found: Vec<_> = in_each.collect::<Option<_>>()?;
    (!found.is_empty()).then_some(found)
}

/// The rejection of a step that names an unknown pool.
pub(crate) fn unknown_pool(ctx: &Context, named: Option<&PoolName>) -> Option<Rejection> {
    let pool = named.filter(|pool| ctx.state().pool(pool).is_none())?;
    Some(Rejection::UnknownPool {
        pool: pool.clone(),
        near: SimilarPools::to(pool, ctx.state().pools().keys()),
    })
}

/// The rejection by each pool that was checked, the most preferred first. A request without a pool has no policy.
pub(crate) fn rejected(by: impl Iterator<Item = Rejection>, request: &Request) -> Cause {
    let mut by: Vec<Rejection> = by.collect();
    match by.is_empty() {
        true => Cause::rejected(no_policy(request)),
        false => Cause::Rejected {
            first: by.remove(0).into(),
            elsewhere: by,
        },
    }
}

pub(crate) fn never_in(
    ctx: &Context,
    pool: &PoolName,
    request: &Request,
    never: Infeasible,
) -> Rejection {
    let (key, asked, most, bound) = match never {
        Infeasible::UnknownResource { key } => {
            return Rejection::UnknownResource {
                pool: pool.clone(),
                asked: request.demand.get(key.as_str()),
                key,
            };
        }
        Infeasible::NoHostFits { hosts } => return no_host_fits(ctx, pool, request, hosts),
        Infeasible::NoLevel { level } => {
            let levels = ctx.state().scheduler().levels().to_vec();
            return none_fits(pool, HostMismatch::NoLevel { level, levels });
        }
        Infeasible::NoDomainFits {
            level,
            domain,
            hosts,
        } => {
            let closest = DomainShortage::of(&level, &domain, request.hosts, hosts);
            return none_fits(pool, HostMismatch::TooFewInDomain(closest));
        }
        Infeasible::ExceedsPoolCapacity {
            key,
            asked,
            capacity,
        } => (key, asked, capacity, AmountBound::Capacity),
        Infeasible::ExceedsLimit { key, asked, limit } => (
            key,
            asked,
            limit,
            AmountBound::Limit(request.subject.clone()),
        ),
        Infeasible::ExceedsReserved {
            key,
            asked,
            reserved,
        } => (
            key,
            asked,
            reserved,
            AmountBound::Reserved(request.subject.clone()),
        ),
        Infeasible::ExceedsEntitlement {
            key,
            asked,
            entitled,
            node,
        } => {
            let gpus = request.each.mgpu() / request.class.mgpu();
            (
                key,
                asked,
                entitled,
                AmountBound::Entitlement { node, gpus },
            )
        }
    };
    Rejection::TooMuch {
        pool: pool.clone(),
        by_default: default_of(ctx.state(), &request.step, key.as_str()),
        key,
        asked,
        most,
        bound,
        profile: request.class.profile().cloned(),
    }
}

fn none_fits(pool: &PoolName, hosts: HostMismatch) -> Rejection {
    let pool = pool.clone();
    Rejection::NoHostFits { pool, hosts }
}

/// The rejection because no host that the pool remembers is large enough, or too few are.
fn no_host_fits(ctx: &Context, pool: &PoolName, request: &Request, large: usize) -> Rejection {
    let known = ctx.state().scheduler().pool(pool);
    let closed = known.and_then(|known| denied_hosts(pool, known, request));
    let hosts = if large > 0 {
        HostMismatch::TooFew {
            asked: request.hosts,
            large: large as u64,
            of_one_platform: known.is_some_and(|known| known.platforms().count() > 1),
            closed,
        }
    } else if let Some(of_no_platform) = of_no_platform(ctx, pool, request) {
        of_no_platform
    } else if let Some(of_no_class) = known.and_then(|known| of_no_class(known, request)) {
        of_no_class
    } else if let Some(closed) = closed {
        HostMismatch::Closed(closed)
    } else {
        let closest = known.and_then(|pool| pool.closest(request));
        let shortage = closest.map(|closest| {
            let by_default = default_of(ctx.state(), &request.step, closest.1);
            Shortage::of(closest, by_default, &request.class)
        });
        HostMismatch::TooSmall(shortage)
    };
    none_fits(pool, hosts)
}

pub(crate) fn no_policy(request: &Request) -> Rejection {
    Rejection::NoPolicy {
        subject: request.subject.clone(),
        pool: request.pool.clone(),
    }
}

/// The rejection because a pool has no GPU of the class that a request asks for; `None` if it has one.
fn of_no_class(pool: &Pool, request: &Request) -> Option<HostMismatch> {
    let found = pool.gpus_by_class(pool.wanted(request));
    if request.each.mgpu() == 0 || found.contains_key(&request.class) {
        return None;
    }
    let slices = found.iter();
    let slices = slices.filter_map(|(class, gpus)| Some((class.profile()?.to_string(), *gpus)));
    Some(HostMismatch::OfNoClass {
        asked: request.class.profile().map(ToString::to_string),
        whole: found.get(&GpuClass::Whole).copied().unwrap_or(0),
        slices: slices.collect(),
    })
}

/// The rejection because no host of a pool is of a requested platform; `None` if one is, or if any will do.
fn of_no_platform(ctx: &Context, pool: &PoolName, request: &Request) -> Option<HostMismatch> {
    let scheduler = ctx.state().scheduler().pool(pool)?;
    let asked = scheduler.wanted(request);
    if asked.is_empty() || asked.iter().any(|asked| scheduler.has(asked)) {
        return None;
    }
    let known = ctx.state().pool(pool)?;
    let declared = asked.iter().filter(|it| known.platforms.contains_key(*it));
    Some(HostMismatch::OfNoPlatform {
        asked: asked.to_vec(),
        declared: declared.cloned().collect(),
        by_default: request.takes_default,
        there: scheduler.platforms().cloned().collect(),
    })
}
