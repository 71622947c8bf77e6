//! The account of one subject in one pool: its policy, its use, and the arithmetic of reserved shares and limits.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, ResourceKey};
use sluice_common::id::{AttemptId, UserName};
use sluice_common::pool::PolicySpec;

use crate::model::cached::Cached;
use crate::model::held_run::HeldRun;
use crate::model::queue::Queue;
use crate::model::request::Run;

/// A subject's account in a pool. An account outlives its policy as long as runs use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// The subject's own policy, or else the pool's policy for everyone.
    pub(crate) policy: Option<PolicySpec>,
    /// Whether the policy is the subject's own.
    pub(crate) own: bool,
    /// All that the subject uses of the pool.
    pub(crate) used: Amounts,
    /// The part of `used` that non-preemptible runs hold.
    pub(crate) non_preemptible: Amounts,
    /// Runs of the subject, including those that are stopping. What is cached of a run is cleared by all that changes it,
    /// and if a host joins the pool or leaves it.
    pub(crate) runs: BTreeMap<AttemptId, Cached<HeldRun>>,
    pub(crate) queue: Queue,
    /// Amounts that the runs of each user hold, in thousandths of a GPU, or of a core for runs without GPUs.
    pub(crate) rates: BTreeMap<Option<UserName>, u64>,
    /// Each of its runs as a victim, in their order; `None` of those that are protected whoever asks.
    /// Cleared by all that changes the account, and by what changes its runs and nominations.
    pub(crate) victims: Cached<Box<[Option<PossibleVictim>]>>,
}

/// A run that requests of others may preempt for what its subject holds beyond its share, as far as that does not depend
/// on the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PossibleVictim {
    /// Resources that it holds within its subject's share.
    pub(crate) in_share: Vec<ResourceKey>,
    /// Whether it does not fit in its subject's share of something metered.
    pub(crate) is_left_over: bool,
    /// Whether its subject would reclaim at once what it loses, from a request that must borrow.
    pub(crate) returns: bool,
}

impl Account {
    /// Forgets what is cached of the account and its runs.
    pub(crate) fn clear_cached(&mut self) {
        self.victims.clear();
        self.runs.values_mut().for_each(Cached::clear);
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.own && self.runs.is_empty() && self.queue.is_empty()
    }

    pub(crate) fn charge(&mut self, attempt: &AttemptId, run: &Run) {
        self.runs.insert(attempt.clone(), Cached::default());
        self.used.add(run.demand());
        let rate = run.rate();
        if rate > 0 {
            let user = self.rates.entry(run.request.user.clone()).or_default();
            *user = user.saturating_add(rate);
        }
        if !run.request.preemptible {
            self.non_preemptible.add(run.demand());
        }
    }

    pub(crate) fn refund(&mut self, attempt: &AttemptId, run: &Run) {
        self.runs.remove(attempt);
        self.used.subtract(run.demand());
        let rate = run.rate();
        if let Some(user) = self.rates.get_mut(&run.request.user) {
            *user = user.saturating_sub(rate);
        }
        self.rates.retain(|_, rate| *rate > 0);
        if !run.request.preemptible {
            self.non_preemptible.subtract(run.demand());
        }
    }

    /// Amount of a resource above the reserved share if `gone` of the use were released.
    pub(crate) fn above_reserved(&self, key: &str, gone: u64) -> u64 {
        let used = self.used.get(key).saturating_sub(gone);
        used.saturating_sub(self.reserved(key).unwrap_or(0))
    }

    /// Weight in fair share; at least 1.
    pub(crate) fn weight(&self) -> u64 {
        self.policy.as_ref().map_or(1, PolicySpec::weight)
    }

    pub(crate) fn priority(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.priority)
    }

    /// Amount of a resource that may be used before it counts as borrowed.
    pub(crate) fn reserved(&self, key: &str) -> Option<u64> {
        self.policy
            .as_ref()
            .map_or(Some(0), |policy| policy.reserved(key))
    }
}
