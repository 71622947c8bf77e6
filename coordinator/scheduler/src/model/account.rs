//! One subject in one pool: its policy, what it uses, and the arithmetic of reserved and limit.

use alloc::collections::BTreeSet;

use sluice_common::amount::Amounts;
use sluice_common::id::AttemptId;
use sluice_common::pool::PolicySpec;

use crate::model::queue::Queue;
use crate::model::request::Run;

/// A subject's account in a pool. It outlives its policy while something of it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its own policy, or else that of whoever has none.
    pub(crate) policy: Option<PolicySpec>,
    /// Whether the policy is its own.
    pub(crate) own: bool,
    /// All that it uses of the pool.
    pub(crate) used: Amounts,
    /// The part of it that cannot be made to give way.
    pub(crate) non_preemptible: Amounts,
    /// What runs, or is being stopped.
    pub(crate) runs: BTreeSet<AttemptId>,
    pub(crate) queue: Queue,
}

impl Account {
    pub(crate) fn is_empty(&self) -> bool {
        !self.own && self.runs.is_empty() && self.queue.is_empty()
    }

    pub(crate) fn charge(&mut self, attempt: &AttemptId, run: &Run) {
        self.runs.insert(attempt.clone());
        self.used.add(run.demand());
        if !run.request.preemptible {
            self.non_preemptible.add(run.demand());
        }
    }

    pub(crate) fn refund(&mut self, attempt: &AttemptId, run: &Run) {
        self.runs.remove(attempt);
        self.used.subtract(run.demand());
        if !run.request.preemptible {
            self.non_preemptible.subtract(run.demand());
        }
    }

    /// How much of a key it would hold beyond its reserved share if `gone` of what it uses were not.
    pub(crate) fn above_reserved(&self, key: &str, gone: u64) -> u64 {
        let used = self.used.get(key).saturating_sub(gone);
        used.saturating_sub(self.reserved(key).unwrap_or(0))
    }

    pub(crate) fn priority(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.priority)
    }

    /// How much of a key may be used before it is borrowed.
    pub(crate) fn reserved(&self, key: &str) -> Option<u64> {
        self.policy
            .as_ref()
            .map_or(Some(0), |policy| policy.reserved(key))
    }
}
