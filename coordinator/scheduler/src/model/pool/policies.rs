//! The policies of a pool: changes of them, and whether they fit together.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

use sluice_common::amount::ResourceKey;
use sluice_common::amount::table::{key_name, meant_key};
use sluice_common::id::Subject;
use sluice_common::nearest::nearest;
use sluice_common::pool::PolicySpec;
use sluice_common::quantity::figure;

use crate::model::pool::Pool;
use crate::model::resources::HOST_KEYS;

/// Why a policy is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The pool does not know this resource.
    #[error("the pool has no `{key}`{}", suggestion(key))]
    UnknownKey { key: ResourceKey },
    /// More is reserved than the subject may use.
    #[error(
        "reserved.{key} is {} and limit.{key} is {}: reserve at most the limit",
        figure(key.as_str(), *reserved),
        figure(key.as_str(), *limit)
    )]
    ReservedAboveLimit {
        key: ResourceKey,
        /// Amount that the policy reserves.
        reserved: u64,
        limit: u64,
    },
    /// All policies together would reserve more than the pool declares.
    #[error(
        "reserved.{key} is {}, others have reserved {} and the pool declares {}: at most {} is left",
        figure(key.as_str(), *reserved),
        figure(key.as_str(), *others),
        figure(key.as_str(), *declared),
        figure(key.as_str(), declared.saturating_sub(*others))
    )]
    Oversold {
        key: ResourceKey,
        /// Amount that this policy reserves.
        reserved: u64,
        /// Amount that the other policies reserve.
        others: u64,
        declared: u64,
    },
}

/// The resource that a misspelled key may mean.
fn suggestion(key: &ResourceKey) -> String {
    let known = meant_key(key.as_str());
    let known = known.or_else(|| nearest(key.as_str(), HOST_KEYS.map(key_name)));
    let known = known.filter(|known| *known != key.as_str());
    known.map_or_else(String::new, |known| format!(": did you mean `{known}`?"))
}

impl Pool {
    /// Sets a policy; returns whether there was one before.
    pub(crate) fn put_policy(&mut self, subject: &Subject, policy: PolicySpec) -> bool {
        // Which resources are metered concerns all.
        self.clear_cached();
        for key in policy.keys() {
            *self.named.entry(key.clone()).or_default() += 1;
        }
        if subject.is_everyone() {
            let before = self.everyone.replace((subject.clone(), policy));
            before
                .iter()
                .for_each(|(_, policy)| self.uncount_keys(policy));
            self.apply_default_policy();
            return before.is_some();
        }
        let account = self.account_mut(subject);
        let before = account.policy.replace(policy);
        let had_own = core::mem::replace(&mut account.own, true);
        let had_one = before.is_some();
        let own = before.into_iter().filter(|_| had_own);
        own.for_each(|policy| self.uncount_keys(&policy));
        had_one
    }

    pub(crate) fn remove_policy(&mut self, subject: &Subject) {
        self.clear_cached();
        if subject.is_everyone() {
            let before = self.everyone.take();
            before
                .iter()
                .for_each(|(_, policy)| self.uncount_keys(policy));
            self.apply_default_policy();
            return;
        }
        let default_policy = self.default_policy();
        let account = self.accounts.get_mut(subject).filter(|it| it.own);
        let Some(account) = account else { return };
        account.own = false;
        let policy = core::mem::replace(&mut account.policy, default_policy);
        policy.iter().for_each(|policy| self.uncount_keys(policy));
        self.drop_if_empty(subject);
    }

    /// The policy for everyone.
    pub(super) fn default_policy(&self) -> Option<PolicySpec> {
        self.everyone.as_ref().map(|(_, policy)| policy.clone())
    }

    /// Gives each account without a policy of its own the one for everyone.
    fn apply_default_policy(&mut self) {
        let default_policy = self.default_policy();
        for account in self.accounts.values_mut().filter(|it| !it.own) {
            account.policy = default_policy.clone();
        }
    }

    fn uncount_keys(&mut self, policy: &PolicySpec) {
        for key in policy.keys() {
            if let Some(count) = self.named.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.named.remove(key);
                }
            }
        }
    }
}

impl Pool {
    /// Checks a policy for `subject` against the others.
    ///
    /// # Errors
    /// The first resource that does not fit.
    pub fn check_policy(&self, subject: &Subject, policy: &PolicySpec) -> Result<(), PolicyError> {
        self.check_policy_against(policy, |key| {
            u128::from(self.reserved_by_others(subject, key))
        })
    }

    /// Checks all policies. Those of `first` are blamed before others.
    ///
    /// # Errors
    /// The first subject whose policy does not fit, and the first resource.
    pub fn check_policies(&self, first: &[&Subject]) -> Result<(), (&Subject, PolicyError)> {
        let sums = self.total_reserved();
        let named: BTreeSet<&Subject> = first.iter().copied().collect();
        let others = self
            .defined_policies()
            .filter(|(subject, _)| !named.contains(subject));
        let blamed = first
            .iter()
            .filter_map(|subject| self.defined_policy(subject));
        for (subject, policy) in blamed.chain(others) {
            let of_others = |key: &ResourceKey| {
                let own = policy.reserved.get(key).copied().unwrap_or(0);
                sums.get(key).map_or(0, |sum| sum - u128::from(own))
            };
            let checked = self.check_policy_against(policy, of_others);
            checked.map_err(|why| (subject, why))?;
        }
        Ok(())
    }

    /// Whether more of a resource is reserved than there is: because hosts or GPUs are gone, or because nothing is
    /// declared to check against.
    pub fn is_overcommitted(&self) -> bool {
        self.total_reserved().into_iter().any(|(key, sum)| {
            let key = key.as_str();
            let has = self.capacity(key).or_else(|| self.detected(key));
            has.is_some_and(|has| sum > u128::from(has))
        })
    }

    fn total_reserved(&self) -> BTreeMap<&ResourceKey, u128> {
        let mut sums: BTreeMap<&ResourceKey, u128> = BTreeMap::new();
        for (key, reserved) in self
            .defined_policies()
            .flat_map(|(_, policy)| &policy.reserved)
        {
            *sums.entry(key).or_default() += u128::from(*reserved);
        }
        sums
    }

    fn check_policy_against(
        &self,
        policy: &PolicySpec,
        of_others: impl Fn(&ResourceKey) -> u128,
    ) -> Result<(), PolicyError> {
        for key in policy.keys() {
            if !self.counts(key.as_str()) {
                return Err(PolicyError::UnknownKey { key: key.clone() });
            }
        }
        for (key, reserved) in &policy.reserved {
            let others = of_others(key);
            let (key, reserved) = (key.clone(), *reserved);
            if let Some(limit) = policy.limit(key.as_str()).filter(|limit| reserved > *limit) {
                return Err(PolicyError::ReservedAboveLimit {
                    key,
                    reserved,
                    limit,
                });
            }
            let declared = self.declared(key.as_str());
            let sum = others + u128::from(reserved);
            if let Some(declared) = declared.filter(|declared| sum > u128::from(*declared)) {
                return Err(PolicyError::Oversold {
                    key,
                    reserved,
                    others: u64::try_from(others).unwrap_or(u64::MAX),
                    declared,
                });
            }
        }
        Ok(())
    }

    /// Whether policies may name a resource.
    fn counts(&self, key: &str) -> bool {
        HOST_KEYS.contains(&key) || self.declared(key).is_some()
    }

    fn reserved_by_others(&self, subject: &Subject, key: &ResourceKey) -> u64 {
        let others = self
            .defined_policies()
            .filter(|(other, _)| *other != subject);
        let reserved = others.map(|(_, policy)| policy.reserved.get(key).copied().unwrap_or(0));
        reserved.fold(0, u64::saturating_add)
    }
}
