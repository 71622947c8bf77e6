//! What is refused: policies that a pool cannot keep, and requests that no pool could ever grant.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{Key, STEP_RUN};
use sluice_common::id::{PoolName, Subject};
use sluice_common::nearest::nearest;

use super::Market;
use super::account::Policy;
use super::fit::Before;
use super::pool::Pool;
use super::request::Request;
use crate::units::HOST_KEYS;

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// The pool does not count this key.
    #[error("the pool has no `{key}`{}", meant(key))]
    UnknownKey {
        /// Which.
        key: Key,
    },
    /// More is reserved than the subject may use.
    #[error("reserved.{key} is {reserved} and limit.{key} is {limit}: reserve at most the limit")]
    ReservedAboveLimit {
        /// Which.
        key: Key,
        /// What is reserved.
        reserved: u64,
        /// The limit.
        limit: u64,
    },
    /// Together with the other policies it would reserve more than is declared.
    #[error(
        "reserved.{key} is {reserved}, others have reserved {others} and the pool declares {declared}: at most {} is left",
        declared.saturating_sub(*others)
    )]
    Oversold {
        /// Which.
        key: Key,
        /// What it reserves.
        reserved: u64,
        /// What others reserve.
        others: u64,
        /// What there is.
        declared: u64,
    },
}

/// What a key may have been meant for that hosts count.
fn meant(key: &Key) -> String {
    let known = match key.as_str() {
        "cpu" | "cpus" | "cpu_count" => Some("mcpu"),
        "memory" => Some("memory_mb"),
        "storage" => Some("storage_mb"),
        other => nearest(other, HOST_KEYS),
    };
    known.map_or_else(String::new, |known| format!(": did you mean `{known}`?"))
}

impl Pool {
    /// Whether a policy for `subject` could be kept beside the others.
    ///
    /// # Errors
    /// The first key for which it could not.
    pub fn vet(&self, subject: &Subject, policy: &Policy) -> Result<(), BadPolicy> {
        self.vet_beside(policy, |key| u128::from(self.reserved_beside(subject, key)))
    }

    /// Whether all policies can be kept. Those of `first` are blamed before others.
    ///
    /// # Errors
    /// The first subject whose policy cannot, and the first key for which it cannot.
    pub fn vet_all(&self, first: &[&Subject]) -> Result<(), (&Subject, BadPolicy)> {
        let sums = self.reserved_in_all();
        let named: BTreeSet<&Subject> = first.iter().copied().collect();
        let others = self
            .written()
            .filter(|(subject, _)| !named.contains(subject));
        let blamed = first.iter().filter_map(|subject| self.written_for(subject));
        for (subject, policy) in blamed.chain(others) {
            let beside = |key: &Key| {
                let own = policy.reserved.get(key).copied().unwrap_or(0);
                sums.get(key).map_or(0, |sum| sum - u128::from(own))
            };
            let kept = self.vet_beside(policy, beside);
            kept.map_err(|why| (subject, why))?;
        }
        Ok(())
    }

    /// Whether more is reserved of a key than there is: since hosts or GPUs are gone, or because nothing is declared that
    /// it would be held to.
    pub fn is_overcommitted(&self) -> bool {
        self.reserved_in_all().into_iter().any(|(key, sum)| {
            let key = key.as_str();
            let has = self.capacity(key).or_else(|| self.detected(key));
            has.is_some_and(|has| sum > u128::from(has))
        })
    }

    fn reserved_in_all(&self) -> BTreeMap<&Key, u128> {
        let mut sums: BTreeMap<&Key, u128> = BTreeMap::new();
        for (key, reserved) in self.written().flat_map(|(_, policy)| &policy.reserved) {
            *sums.entry(key).or_default() += u128::from(*reserved);
        }
        sums
    }

    fn vet_beside(&self, policy: &Policy, beside: impl Fn(&Key) -> u128) -> Result<(), BadPolicy> {
        for key in policy.keys() {
            if !self.counts(key.as_str()) {
                return Err(BadPolicy::UnknownKey { key: key.clone() });
            }
        }
        for (key, reserved) in &policy.reserved {
            let others = beside(key);
            let (key, reserved) = (key.clone(), *reserved);
            if let Some(limit) = policy.limit(key.as_str()).filter(|limit| reserved > *limit) {
                return Err(BadPolicy::ReservedAboveLimit {
                    key,
                    reserved,
                    limit,
                });
            }
            let declared = self.declared(key.as_str());
            let sum = others + u128::from(reserved);
            if let Some(declared) = declared.filter(|declared| sum > u128::from(*declared)) {
                return Err(BadPolicy::Oversold {
                    key,
                    reserved,
                    others: u64::try_from(others).unwrap_or(u64::MAX),
                    declared,
                });
            }
        }
        Ok(())
    }

    /// Whether policies may name a key.
    fn counts(&self, key: &str) -> bool {
        HOST_KEYS.contains(&key) || self.declared(key).is_some()
    }

    fn reserved_beside(&self, subject: &Subject, key: &Key) -> u64 {
        let others = self.written().filter(|(other, _)| *other != subject);
        let reserved = others.map(|(_, policy)| policy.reserved.get(key).copied().unwrap_or(0));
        reserved.fold(0, u64::saturating_add)
    }
}

/// Why a request could never be granted in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Never {
    /// The pool does not count this key at all.
    UnknownResource {
        /// Which.
        key: Key,
    },
    /// It asks for more than the pool has.
    ExceedsPoolCapacity {
        /// Of what.
        key: Key,
        /// How much.
        asked: u64,
        /// What there is.
        capacity: u64,
    },
    /// It asks for more than its subject may ever use.
    ExceedsLimit {
        /// Of what.
        key: Key,
        /// How much.
        asked: u64,
        /// What the policy allows.
        limit: u64,
    },
    /// It cannot be made to give way, and asks for more than is reserved.
    ExceedsReserved {
        /// Of what.
        key: Key,
        /// How much.
        asked: u64,
        /// What is reserved.
        reserved: u64,
    },
    /// Too few hosts that the pool remembers are large enough, even when empty.
    NoHostFits {
        /// How many are.
        hosts: usize,
    },
}

impl Market {
    /// Whether a request could ever be granted in one of its pools; if not, why in each, most preferred first. An
    /// empty list says that its subject has no policy.
    ///
    /// # Errors
    /// Where it could not.
    pub fn admit(
        &self,
        request: &Request,
        allow_pending: bool,
    ) -> Result<(), Vec<(PoolName, Never)>> {
        let mut reasons = Vec::new();
        for (name, pool) in self.candidates(request) {
            let Some(before) = Before::of(self, pool, request) else {
                continue;
            };
            match before.never(allow_pending) {
                None => return Ok(()),
                Some(never) => reasons.push((name.clone(), never)),
            }
        }
        Err(reasons)
    }

    /// Why a request could never be granted in a pool; `None` where it could, or its subject has no policy there. One that
    /// may pend is not held to what hosts there are.
    pub fn never(&self, pool: &Pool, request: &Request, allow_pending: bool) -> Option<Never> {
        Before::of(self, pool, request)?.never(allow_pending)
    }
}

impl Before<'_> {
    /// The first rule by which the request could never be granted here. One that waits for the first host of a platform
    /// is not held to what hosts there are.
    pub(crate) fn never(&self, allow_pending: bool) -> Option<Never> {
        self.never_now(allow_pending || self.pool.awaits_platform(self.request))
    }

    /// The same, whatever may be waited for.
    pub(crate) fn never_now(&self, allow_pending: bool) -> Option<Never> {
        let keys = || self.request.demand.iter();
        let unknown = keys().find(|(key, _)| !self.is_known(key.as_str()));
        if let Some((key, _)) = unknown {
            return Some(Never::UnknownResource { key: key.clone() });
        }
        let over_capacity =
            keys().find_map(|(key, asked)| self.over_capacity(key, asked, allow_pending));
        let policy = || keys().find_map(|(key, asked)| self.against_policy(key, asked));
        over_capacity
            .or_else(policy)
            .or_else(|| self.too_few_hosts(allow_pending))
    }

    fn is_known(&self, key: &str) -> bool {
        HOST_KEYS.contains(&key) || key == STEP_RUN || self.pool.declared(key).is_some()
    }

    /// What hosts report may grow with the next host, so one that may pend is not held to it.
    fn over_capacity(&self, key: &Key, asked: u64, allow_pending: bool) -> Option<Never> {
        let declared = self.pool.declared(key.as_str()).is_some();
        if !declared && (self.pool.hosts().is_empty() || allow_pending) {
            return None;
        }
        let capacity = self
            .pool
            .capacity(key.as_str())
            .filter(|capacity| asked > *capacity)?;
        let key = key.clone();
        Some(Never::ExceedsPoolCapacity {
            key,
            asked,
            capacity,
        })
    }

    fn against_policy(&self, key: &Key, asked: u64) -> Option<Never> {
        let policy = self.account.policy.as_ref()?;
        if !self.pool.is_metered(key.as_str()) {
            return None;
        }
        if let Some(limit) = policy.limit(key.as_str()).filter(|limit| asked > *limit) {
            let key = key.clone();
            return Some(Never::ExceedsLimit { key, asked, limit });
        }
        let reserved = policy
            .reserved(key.as_str())
            .filter(|_| !self.request.preemptible)?;
        (asked > reserved).then(|| Never::ExceedsReserved {
            key: key.clone(),
            asked,
            reserved,
        })
    }

    fn too_few_hosts(&self, allow_pending: bool) -> Option<Never> {
        if self.pool.hosts().is_empty() || allow_pending || self.request.resumes.is_some() {
            return None;
        }
        let wanted = self.request.hosts as usize;
        let large = |before: Before<'_>| {
            let large = before.covering(&before.shelf().known);
            large.take(wanted).count()
        };
        let hosts = self.each_view().map(large).max().unwrap_or(0);
        (hosts < wanted).then_some(Never::NoHostFits { hosts })
    }
}

/// Amounts by key, as files and the API write them.
pub type Table = BTreeMap<Key, u64>;
