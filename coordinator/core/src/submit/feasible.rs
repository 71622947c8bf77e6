//! What could never be granted, in words, with the numbers.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::Key;
use sluice_common::id::{PlatformName, PoolName};
use sluice_common::nearest::nearest;
use sluice_common::quantity::{figure, quantity};
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::step::StepSpec;
use sluice_scheduler::{HOST_KEYS, Infeasible, Pool, Request};

use crate::context::Context;
use crate::guard::kept_off;
use crate::model::step::Step;
use crate::state::request;
use crate::words::{did_you_mean, listed, quoted};

pub(crate) fn admit_at_all(ctx: &Context, spec: &StepSpec) -> Result<(), Reason> {
    if let Some(pool) = &spec.pool {
        admit_pool(ctx, pool)?;
    }
    Ok(())
}

/// Judged by what is declared, reserved and limited alone: hosts come and go. The rules of pools were looked at when
/// it was submitted.
pub(crate) fn admit_by_terms(ctx: &Context, step: &Step) -> Result<(), Reason> {
    let spec = &step.spec;
    admit_at_all(ctx, spec)?;
    let request = request(step);
    let market = ctx.state().market();
    market
        .admit(&request, true)
        .map_err(|found| never(ctx, &request, found))
}

pub(crate) fn admit_pool(ctx: &Context, pool: &PoolName) -> Result<(), Reason> {
    if ctx.state().pool(pool).is_some() {
        return Ok(());
    }
    let message = format!(
        "there is no pool `{pool}`{}",
        did_you_mean(ctx.state().pools(), pool)
    );
    Err(Reason::new(ReasonCode::UnknownPool, message).with("pool", pool.as_str()))
}

/// The reason is that of the most preferred pool; the others are listed.
pub(crate) fn never(
    ctx: &Context,
    request: &Request,
    never: Vec<(PoolName, Infeasible)>,
) -> Reason {
    let never = never.into_iter();
    let reasons = never.map(|(pool, never)| (never_in(ctx, &pool, request, never), pool));
    foremost(reasons).unwrap_or_else(|| no_policy(request))
}

pub(crate) fn never_in(
    ctx: &Context,
    pool: &PoolName,
    request: &Request,
    never: Infeasible,
) -> Reason {
    let subject = &request.subject;
    let numbers = |code, key: &Key, asked: u64, has: (&str, u64), message: String| {
        Reason::new(code, message)
            .with("pool", pool.as_str())
            .with("key", key.as_str())
            .with("asked", asked)
            .with(has.0, has.1)
    };
    match never {
        Infeasible::UnknownResource { key } => unknown_resource(pool, request, &key),
        Infeasible::ExceedsPoolCapacity {
            key,
            asked,
            capacity,
        } => {
            let message = format!(
                "it asks for {}, and pool `{pool}` has {}",
                quantity(key.as_str(), asked),
                figure(key.as_str(), capacity)
            );
            let code = ReasonCode::ExceedsPoolCapacity;
            numbers(code, &key, asked, ("capacity", capacity), message)
        }
        Infeasible::ExceedsLimit { key, asked, limit } => {
            let message = format!(
                "it asks for {}, and the limit of `{subject}` in pool `{pool}` is {}",
                quantity(key.as_str(), asked),
                figure(key.as_str(), limit)
            );
            let code = ReasonCode::ExceedsLimit;
            numbers(code, &key, asked, ("limit", limit), message)
        }
        Infeasible::ExceedsReserved {
            key,
            asked,
            reserved,
        } => {
            let message = format!(
                "it is not preemptible and asks for {}, and `{subject}` has {} reserved in pool `{pool}`: ask for \
                 less, or let it be preemptible",
                quantity(key.as_str(), asked),
                figure(key.as_str(), reserved)
            );
            let code = ReasonCode::ExceedsReserved;
            numbers(code, &key, asked, ("reserved", reserved), message)
        }
        Infeasible::NoHostFits { hosts } => no_host_fits(ctx, pool, request, hosts),
    }
}

/// No host that the pool remembers is large enough, with the one that comes closest.
pub(crate) fn no_host_fits(
    ctx: &Context,
    pool: &PoolName,
    request: &Request,
    hosts: usize,
) -> Reason {
    let reason = |message| Reason::new(ReasonCode::NoHostFits, message).with("pool", pool.as_str());
    let known = ctx.state().market().pool(pool);
    let kept_off = known.and_then(|known| kept_off(pool, known, request));
    if hosts > 0 {
        let message = too_few(pool, known, request, hosts);
        let closed = kept_off.map_or_else(String::new, |it| format!("; {it}"));
        return reason(format!("{message}{closed}"))
            .with("key", "nodes")
            .with("asked", u64::from(request.hosts))
            .with("available", hosts as u64);
    }
    if let Some(reason) = no_host_of_platform(ctx, pool, request) {
        return reason;
    }
    if let Some(kept_off) = kept_off {
        return reason(format!("no host of pool `{pool}` lets it in: {kept_off}"));
    }
    let closest = known.and_then(|pool| pool.closest(request));
    let Some((node, key, asked, has)) = closest else {
        return reason(format!("no host of pool `{pool}` is large enough"));
    };
    let message = format!(
        "no host of pool `{pool}` could hold it even when empty: it asks for {}, and `{node}`, which comes closest, \
         has {}",
        quantity(key, asked),
        figure(key, has)
    );
    reason(message)
        .with("node", node.as_str())
        .with("key", key)
        .with("asked", asked)
        .with("available", has)
}

/// So many hosts are large enough, of the platform that has most of them where there are several.
pub(crate) fn too_few(
    pool: &PoolName,
    known: Option<&Pool>,
    request: &Request,
    hosts: usize,
) -> String {
    let are = if hosts == 1 { "is" } else { "are" };
    let message = format!(
        "it asks for {} hosts at once, and {hosts} of pool `{pool}` {are} large enough",
        request.hosts
    );
    match known.is_some_and(|known| known.platforms().count() > 1) {
        false => message,
        true => {
            format!("{message} among those of any one platform, which all its hosts must be of")
        }
    }
}

/// The reason of the most preferred pool, with those of the others listed; `None` where there is no pool.
pub(crate) fn foremost(mut reasons: impl Iterator<Item = (Reason, PoolName)>) -> Option<Reason> {
    let (first, _) = reasons.next()?;
    Some(reasons.fold(first, |reason, (other, pool)| {
        reason.with(&format!("in {pool}"), other.message.as_str())
    }))
}

pub(crate) fn no_policy(request: &Request) -> Reason {
    let subject = &request.subject;
    let (place, pool) = match &request.pool {
        Some(pool) => (format!("pool `{pool}`"), pool.as_str()),
        None => (String::from("any pool"), "POOL"),
    };
    let message = format!(
        "`{subject}` has no policy in {place}: whoever leads {} gives it one by `echo '{{kind: policy, pool: {pool}, \
         subject: {subject}}}' | sluice apply -f -`",
        if request.pool.is_some() { "it" } else { "one" }
    );
    let reason = Reason::new(ReasonCode::NoPolicy, message).with("subject", subject.as_str());
    match &request.pool {
        Some(pool) => reason.with("pool", pool.as_str()),
        None => reason,
    }
}

/// Keys that hosts do not count must be declared.
pub(crate) fn unknown_resource(pool: &PoolName, request: &Request, key: &Key) -> Reason {
    let asked = request.demand.get(key.as_str());
    let hint = match nearest(key.as_str(), HOST_KEYS) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "there are `{}`, and what a pool declares",
            HOST_KEYS.join("`, `")
        ),
    };
    let message =
        format!("pool `{pool}` does not count `{key}`, of which it asks for {asked}: {hint}");
    Reason::new(ReasonCode::UnknownResource, message)
        .with("pool", pool.as_str())
        .with("key", key.as_str())
        .with("asked", asked)
}

/// No host of a pool is of what a request asks for; `None` where one is, or where it takes any.
pub(crate) fn no_host_of_platform(
    ctx: &Context,
    pool: &PoolName,
    request: &Request,
) -> Option<Reason> {
    let market = ctx.state().market().pool(pool)?;
    let asked = market.wanted(request);
    if asked.is_empty() || asked.iter().any(|asked| market.has(asked)) {
        return None;
    }
    let known = ctx.state().pool(pool)?;
    let declared = asked.iter().filter(|it| known.platforms.contains_key(*it));
    let declared: Vec<PlatformName> = declared.cloned().collect();
    let there: Vec<PlatformName> = market.platforms().cloned().collect();
    let message = format!(
        "no host of pool `{pool}` is of {}{}{}",
        spoken(asked),
        matching_none(&declared, request.takes_default),
        way_out(&there),
    );
    let reason = Reason::new(ReasonCode::NoHostFits, message).with("pool", pool.as_str());
    Some(reason.with("platform", listed(asked).as_str()))
}

pub(crate) fn spoken(asked: &[PlatformName]) -> String {
    match asked {
        [one] => format!("platform `{one}`"),
        several => format!("the platforms {}", quoted(several)),
    }
}

pub(crate) fn matching_none(declared: &[PlatformName], takes_default: bool) -> String {
    match (declared, takes_default) {
        ([], false) => String::new(),
        ([], true) => String::from(", the pool's default"),
        (_, true) => String::from(", the pool's default, whose selector means none of them"),
        ([_], false) => String::from(", whose selector means none of them"),
        (several, false) => format!(" (the selectors of {} mean none)", quoted(several)),
    }
}

pub(crate) fn way_out(there: &[PlatformName]) -> String {
    match there {
        [] => String::from(": say `allow_pending: true` to wait for one"),
        there => format!(
            ": ask for {} or `any`, or say `allow_pending: true` to wait for one",
            quoted(there)
        ),
    }
}
