//! Sentences about steps that can never be granted, with the numbers.

mod breach;
pub(super) mod hosts;
mod invalid;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::ResourceKey;
use sluice_common::amount::table::{key_name, meant_key};
use sluice_common::id::{PoolName, StepId, Subject};
use sluice_common::mig::MigProfile;
use sluice_common::nearest::nearest;
use sluice_common::quantity::{figure, quantity};
use sluice_common::reason::{Detail, Reason};
use sluice_scheduler::HOST_KEYS;

use super::slices::{allowed, available, requested};
use super::with_source;
use crate::Cause;
use crate::rejection::{AmountBound, Exclusion, Rejection};

impl Rejection {
    /// The code, the sentence and the details.
    pub fn to_reason(&self) -> Reason {
        let of = |message: String| Reason::new(self.code(), message);
        let reason = match self {
            Rejection::UnknownPool { pool, near } => of(format!("there is no pool `{pool}`{near}")),
            Rejection::NoPolicy { subject, pool } => {
                of(no_policy(subject, pool.as_ref())).with("subject", subject.as_str())
            }
            Rejection::UnknownResource { pool, key, asked } => {
                let reason = of(unknown_resource(pool, key, *asked));
                reason
                    .with_key(key.as_str())
                    .with_amount("asked", key.as_str(), *asked)
            }
            Rejection::TooMuch {
                pool,
                key,
                asked,
                most,
                bound,
                by_default,
                profile,
            } => {
                let amount = requested(key.as_str(), *asked, profile.as_ref());
                let amount = with_source(amount, by_default.as_ref());
                let (name, message) =
                    too_much(pool, key, (&amount, *most), (bound, profile.as_ref()));
                let reason = of(message).with_key(key.as_str());
                let reason = reason.with_amount("asked", key.as_str(), *asked);
                reason.with_amount(name, key.as_str(), *most)
            }
            Rejection::NoHostFits { pool, hosts } => hosts.to_reason(pool),
            Rejection::ExceedsAllocation {
                allocation,
                key,
                asked,
                has,
            } => {
                let reason = of(exceeds_allocation(allocation, key, *asked, *has));
                let reason = reason.with("allocation", allocation.as_str());
                let reason = reason.with_key(key.as_str());
                let reason = reason.with_amount("asked", key.as_str(), *asked);
                reason.with_amount("has", key.as_str(), *has)
            }
            Rejection::FewerHostsInside {
                allocation,
                asked,
                has,
            } => of(fewer_hosts(allocation, *asked, *has))
                .with("allocation", allocation.as_str())
                .with("asked", u64::from(*asked))
                .with("has", u64::from(*has)),
            Rejection::BreaksRule { pool, breach } => breach.to_reason(self.code(), pool),
            Rejection::Invalid {
                pool,
                judge,
                validation,
                advice,
                unkept,
            } => {
                let reason = unkept.to_reason(&judge.named(pool), validation, advice);
                judge.noted(reason).with("validation", validation.as_str())
            }
        };
        match self.pool() {
            Some(pool) => reason.with("pool", pool.as_str()),
            None => reason,
        }
    }
}

impl Exclusion {
    /// The sentence for people.
    pub fn message(&self, pool: &PoolName) -> String {
        match self {
            Exclusion::MadeAfter => format!(
                "pool `{pool}` was created after the step was submitted: submit it again to use this pool"
            ),
            Exclusion::Never(never) => never.to_reason().message,
            Exclusion::Maintenance(message) => {
                format!("pool `{pool}` takes no new steps: {message}")
            }
            Exclusion::BeforeChange => format!(
                "a rule of pool `{pool}` rejected it when it was submitted: submit it again to use this pool"
            ),
        }
    }
}

/// The reason of the most preferred pool, with those of the others listed.
pub(super) fn rejected(first: &Rejection, elsewhere: &[Rejection]) -> Reason {
    let others = elsewhere.iter().filter_map(|other| {
        let pool = other.pool()?;
        Some((format!("in {pool}"), other.to_reason().message))
    });
    others.fold(first.to_reason(), |reason, (pool, message)| {
        reason.with(&pool, message.as_str())
    })
}

impl Cause {
    /// The pools that rejected a step, each with the sentence.
    pub fn refusals(&self) -> Vec<(String, String)> {
        let reason = self.to_reason();
        let text = |detail: &Detail| match detail {
            Detail::Text(text) => Some(text.clone()),
            Detail::Number(_) => None,
        };
        let first = reason.detail.get("pool").and_then(text);
        let first = first.map(|pool| (pool, reason.message.clone()));
        let others = reason.detail.iter().filter_map(|(name, detail)| {
            let pool = name.strip_prefix("in ")?;
            Some((String::from(pool), text(detail)?))
        });
        first.into_iter().chain(others).collect()
    }
}

fn exceeds_allocation(allocation: &StepId, key: &ResourceKey, asked: u64, has: u64) -> String {
    let (asked, has) = (quantity(key.as_str(), asked), figure(key.as_str(), has));
    format!(
        "it asks for {asked} per host, and the allocation `{allocation}` has {has} on each: ask for less, or leave out the \
         amounts to get all of it"
    )
}

fn fewer_hosts(allocation: &StepId, asked: u32, has: u32) -> String {
    format!("it asks for {asked} hosts, and the allocation `{allocation}` has {has}: ask for fewer")
}

fn no_policy(subject: &Subject, named: Option<&PoolName>) -> String {
    let (place, pool, owner) = match named {
        Some(pool) => (format!("pool `{pool}`"), pool.as_str(), "the pool"),
        None => (String::from("any pool"), "POOL", "a pool"),
    };
    format!(
        "`{subject}` has no policy in {place}: an admin of {owner} can create one with `echo '{{kind: policy, pool: {pool}, \
         subject: {subject}}}' | sluice apply -f -`"
    )
}

/// Keys that hosts do not count must be declared.
fn unknown_resource(pool: &PoolName, key: &ResourceKey, asked: u64) -> String {
    let known = HOST_KEYS.map(key_name);
    let near = meant_key(key.as_str()).or_else(|| nearest(key.as_str(), known));
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "known are `{}`, and what a pool declares",
            known.join("`, `")
        ),
    };
    format!(
        "pool `{pool}` does not know the resource `{key}`, of which it asks for {asked}: {hint}"
    )
}

/// The name of the bound, and the sentence.
fn too_much(
    pool: &PoolName,
    key: &ResourceKey,
    (asked, most): (&str, u64),
    (bound, profile): (&AmountBound, Option<&MigProfile>),
) -> (&'static str, String) {
    let has = available(key.as_str(), most, profile);
    let (most, enough) = allowed(key.as_str(), most, profile);
    match bound {
        AmountBound::Capacity => (
            "capacity",
            format!("it asks for {asked}, and pool `{pool}` has {has}"),
        ),
        AmountBound::Limit(subject) => (
            "limit",
            format!(
                "it asks for {asked}, and the limit of `{subject}` in pool `{pool}` is {most}{enough}"
            ),
        ),
        AmountBound::Reserved(subject) => (
            "reserved",
            format!(
                "it is not preemptible and asks for {asked}, and `{subject}` has {most} reserved in pool `{pool}`{enough}: ask for less, or make it preemptible"
            ),
        ),
        AmountBound::Entitlement { node, gpus } => {
            let noun = profile.map_or("GPU", |_| "slice");
            let carried = match gpus {
                0 => format!("which all belong to the GPUs of `{node}`"),
                1 => format!("and one {noun} of `{node}` carries {most}"),
                gpus => format!("and {gpus} {noun}s of `{node}` carry {most}"),
            };
            (
                "entitled",
                format!(
                    "it is not preemptible and asks for {asked} per host in pool `{pool}`, {carried}: ask for less, make it \
                     preemptible, reserve `{key}` in its policy, or set `gpu_hosts: open` in the pool"
                ),
            )
        }
    }
}
