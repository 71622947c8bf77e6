//! Platforms that pools declare: how they are put and deleted, and what happens to steps whose platform has no host.
//! `state/index.rs` finds the GPUs of each platform.

use crate::input::DesiredPool;
use crate::record;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::id::{PlatformName, PoolName, StepId};
use sluice_common::platform;
use sluice_common::platform::spec::{MAX_PLATFORMS, PlatformSpec, PlatformSpecs};
use sluice_reasons::Rejection;
use sluice_scheduler::{self, Infeasible};

use crate::context::Context;
use crate::input::{Desired, TermsChange};
use crate::model::pool::Pool;
use crate::output::{Refusal, Refused};
use crate::record::{PoolPut, Record};
use crate::submit::feasible::never_in;

/// Default platforms, by pool.
pub(crate) type Defaults = BTreeMap<PoolName, PlatformName>;

pub(crate) fn put_pool(
    ctx: &mut Context,
    pool: &PoolName,
    terms: &DesiredPool,
) -> Result<(), Refusal> {
    let known = ctx.state().pool(pool);
    if known.is_some_and(|known| known.spec.hosts != terms.spec.hosts) {
        let pool = pool.clone();
        return Err(Refusal::PoolHostsFixed { pool });
    }
    if known.is_none_or(|known| known.spec != terms.spec) {
        let (pool, spec) = (pool.clone(), terms.spec.clone());
        ctx.record(Record::PoolPut(PoolPut { pool, spec }));
    }
    match &terms.platforms {
        Some(declared) => declare(ctx, pool, declared),
        None => Ok(()),
    }
}

/// Completes the changes: a pool with an empty list of platforms keeps those that other changes of the same call set.
pub(crate) fn with_platforms(ctx: &Context, changes: &[TermsChange]) -> Vec<TermsChange> {
    let mut own: BTreeSet<(&PoolName, &PlatformName)> = BTreeSet::new();
    let about = changes.iter().filter_map(|it| about_platforms(&it.desired));
    own.extend(about.filter_map(|(pool, platform)| Some((pool, platform?))));
    let mut whole = changes.to_vec();
    for change in &mut whole {
        let Desired::Pool { pool, terms } = &mut change.desired else {
            continue;
        };
        if terms
            .platforms
            .as_ref()
            .is_some_and(PlatformSpecs::is_empty)
        {
            let mut declared = ctx
                .state()
                .pool(pool)
                .map(Pool::declared)
                .unwrap_or_default();
            declared.retain(|platform, _| own.contains(&(&*pool, platform)));
            terms.platforms = Some(declared);
        }
    }
    whole
}

/// Sets the complete list of platforms of a pool.
fn declare(ctx: &mut Context, pool: &PoolName, declared: &PlatformSpecs) -> Result<(), Refusal> {
    for (platform, terms) in declared {
        put_platform(ctx, pool, platform, terms)?;
    }
    let known = ctx.state().pool(pool).into_iter();
    let known = known.flat_map(|pool| pool.platforms.keys());
    let deleted = known.filter(|known| !declared.contains_key(*known));
    for platform in deleted.cloned().collect::<Vec<_>>() {
        let pool = pool.clone();
        ctx.record(Record::PlatformDeleted { pool, platform });
    }
    Ok(())
}

pub(crate) fn put_platform(
    ctx: &mut Context,
    pool: &PoolName,
    platform: &PlatformName,
    terms: &PlatformSpec,
) -> Result<(), Refusal> {
    if platform.as_str() == platform::ANY {
        let platform = platform.clone();
        return Err(Refusal::ReservedPlatform { platform });
    }
    let known = ctx.state().pool(pool);
    let known = known.and_then(|pool| pool.platforms.get(platform));
    if known.is_none_or(|known| known.terms != *terms) {
        ctx.record(Record::PlatformPut(record::PlatformPut {
            pool: pool.clone(),
            platform: platform.clone(),
            terms: terms.clone(),
        }));
    }
    Ok(())
}

pub(crate) fn delete_platform(
    ctx: &mut Context,
    pool: &PoolName,
    platform: &PlatformName,
) -> Result<(), Refusal> {
    let known = ctx.state().pool(pool);
    if !known.is_some_and(|known| known.platforms.contains_key(platform)) {
        return Err(unknown_platform(ctx, pool, platform, false));
    }
    let (pool, platform) = (pool.clone(), platform.clone());
    ctx.record(Record::PlatformDeleted { pool, platform });
    Ok(())
}

fn unknown_platform(
    ctx: &Context,
    pool: &PoolName,
    platform: &PlatformName,
    named: bool,
) -> Refusal {
    let declared = ctx.state().pool(pool).into_iter();
    let declared = declared.flat_map(|pool| pool.platforms.keys());
    let mut known: Vec<PlatformName> = declared.cloned().collect();
    let hosts = ctx
        .state()
        .scheduler()
        .pool(pool)
        .filter(|_| named)
        .into_iter();
    let hosts = hosts.flat_map(|pool| pool.platforms());
    known.extend(hosts.cloned());
    known.sort_unstable();
    known.dedup();
    Refusal::UnknownPlatform {
        pool: pool.clone(),
        platform: platform.clone(),
        known,
        named,
    }
}

/// Default platforms of changed pools that no pool declares. Hosts come and go, and an unchanged default is not
/// refused.
pub(crate) fn undeclared_defaults(ctx: &Context, changed: &[&Desired]) -> Defaults {
    let pools = changed.iter().filter_map(|wanted| about_platforms(wanted));
    let pools = pools.filter_map(|(name, _)| ctx.state().pool(name));
    let defaults = pools.filter_map(|pool| {
        let default = pool.spec.default_platform.clone()?;
        let declared = pool.platforms.contains_key(&default);
        (!declared).then(|| (pool.name.clone(), default))
    });
    defaults.collect()
}

/// Checks that every affected pool has its default platform and not too many platforms, once all changes are made.
pub(crate) fn check_platforms(
    ctx: &Context,
    undeclared: &Defaults,
    changes: &[TermsChange],
) -> Result<(), Refused> {
    for (at, change) in changes.iter().enumerate() {
        let pool = about_platforms(&change.desired);
        let pool = pool.and_then(|(name, _)| ctx.state().pool(name));
        let checked = pool.map_or(Ok(()), |pool| check_platforms_of(ctx, undeclared, pool));
        let at = Some(at);
        checked.map_err(|refusal| Refused { at, refusal })?;
    }
    Ok(())
}

fn check_platforms_of(ctx: &Context, undeclared: &Defaults, pool: &Pool) -> Result<(), Refusal> {
    let count = pool.platforms.len();
    let name = &pool.name;
    if count > MAX_PLATFORMS {
        let pool = name.clone();
        return Err(Refusal::TooManyPlatforms { pool, count });
    }
    let Some(default) = &pool.spec.default_platform else {
        return Ok(());
    };
    let known = default.as_str() == platform::ANY || has_platform(ctx, name, default);
    match known || undeclared.get(name) == Some(default) {
        true => Ok(()),
        false => Err(unknown_platform(ctx, name, default, true)),
    }
}

/// Whether a pool declares a platform or has a host of it.
fn has_platform(ctx: &Context, pool: &PoolName, platform: &PlatformName) -> bool {
    let declared = ctx.state().pool(pool);
    let declared = declared.is_some_and(|pool| pool.platforms.contains_key(platform));
    let hosts = ctx.state().scheduler().pool(pool);
    declared || hosts.is_some_and(|pool| pool.has(platform))
}

/// The rejection of a queued step whose platforms have no host left after the changes; `None` if it may wait by its
/// own setting or its pool's.
pub(crate) fn loses_platform(
    ctx: &Context,
    id: &StepId,
    changed: &[&Desired],
) -> Option<Rejection> {
    let scheduler = ctx.state().scheduler();
    let request = scheduler.request(id)?;
    let bereft = |(name, pool): &(&PoolName, &sluice_scheduler::Pool)| {
        let wanted = pool.wanted(request);
        pool.nodes().len() > 0
            && !wanted.is_empty()
            && !wanted.iter().any(|it| pool.has(it))
            && !pool.awaits_platform(request)
            && wanted.iter().any(|it| concerns(changed, name, it))
    };
    let candidates = scheduler.pools_for(request);
    let foremost = candidates.first();
    let (pool, _) = foremost.filter(|_| candidates.iter().all(bereft))?;
    Some(never_in(
        ctx,
        pool,
        request,
        Infeasible::NoHostFits { hosts: 0 },
    ))
}

/// The pool whose platforms a change is about, and the platform if it is about only one.
pub(crate) fn about_platforms(wanted: &Desired) -> Option<(&PoolName, Option<&PlatformName>)> {
    match wanted {
        Desired::Pool { pool, .. } => Some((pool, None)),
        Desired::Platform { pool, platform, .. } | Desired::NoPlatform { pool, platform } => {
            Some((pool, Some(platform)))
        }
        Desired::Policy { .. }
        | Desired::NoPolicy { .. }
        | Desired::NoPool { .. }
        | Desired::Validation { .. }
        | Desired::NoValidation { .. }
        | Desired::Template { .. }
        | Desired::NoTemplate { .. }
        | Desired::Access { .. }
        | Desired::Topology { .. }
        | Desired::Cluster { .. } => None,
    }
}

/// The change of a pool that lists all its platforms, if `wanted` is about one of them.
pub(crate) fn listing(changes: &[TermsChange], wanted: &Desired) -> Option<usize> {
    let (Desired::Platform { pool: of, .. } | Desired::NoPlatform { pool: of, .. }) = wanted else {
        return None;
    };
    let lists = |change: &TermsChange| matches!(&change.desired, Desired::Pool { pool, terms } if pool == of && terms.platforms.as_ref().is_some_and(|all| !all.is_empty()));
    changes.iter().position(lists)
}

/// Whether changes are about a platform, or about all of a pool.
fn concerns(changed: &[&Desired], name: &PoolName, platform: &PlatformName) -> bool {
    let mut about = changed.iter().filter_map(|wanted| about_platforms(wanted));
    about.any(|(pool, one)| pool == name && one.is_none_or(|it| it == platform))
}

impl Pool {
    /// The terms of the pool in the form of the request: without platforms if the request leaves them out.
    pub(crate) fn spec_as_requested(&self, terms: Option<&DesiredPool>) -> DesiredPool {
        let alone = terms.is_some_and(|terms| terms.platforms.is_none());
        DesiredPool {
            spec: self.spec.clone(),
            platforms: (!alone).then(|| self.declared()),
        }
    }
}
