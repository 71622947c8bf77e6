//! Judges fair share over time, without decay: sums are exact, so that they can be compared with those of the scheduler.

use alloc::collections::BTreeMap;

use sluice_common::id::{PoolName, Subject};

use super::amounts::{GPU, MCPU};
use super::facts::RemovedRuns;
use super::{Judge, JudgedRequest};

/// Millionths of GPU-seconds by pool, subject and, for all use of a user, user.
#[derive(Clone, Debug, Default)]
pub(super) struct JudgedUses {
    borrowed: BTreeMap<(PoolName, Subject), u64>,
    of_users: BTreeMap<(PoolName, Subject, Option<usize>), u64>,
}

impl Judge {
    /// "Decayed GPU-seconds (core-seconds for what holds no GPU) of *borrowed* use."
    fn borrowed_rate(&self, pool: &PoolName, subject: &Subject) -> u64 {
        let used = self.used_by(pool, subject, &RemovedRuns::new());
        let policy = self.policy(pool, subject);
        let above = |key: usize| {
            let reserved = policy.map_or(Some(0), |policy| policy.reserved(key));
            used[key].saturating_sub(reserved.unwrap_or(0))
        };
        let own = self.runs_of(pool).map(|(_, run)| run);
        let own = own.filter(|run| run.ask.subject == *subject && run.total()[GPU] == 0);
        let cores: u64 = own.map(|run| run.total()[MCPU]).sum();
        above(GPU) + cores.min(above(MCPU))
    }

    /// Lets time pass until `now`, in which nothing changes.
    pub(in crate::tests) fn pass(&mut self, now: u64) {
        let millis = now - self.now;
        let mut uses = self.fair_uses.clone();
        for run in self.runs.values() {
            let total = run.total();
            let rate = match total[GPU] {
                0 => total[MCPU],
                gpus => gpus,
            };
            let user = (run.pool.clone(), run.ask.subject.clone(), run.ask.user);
            *uses.of_users.entry(user).or_default() += rate * millis;
            let subject = (run.pool.clone(), run.ask.subject.clone());
            uses.borrowed.entry(subject).or_default();
        }
        for ((pool, subject), used) in &mut uses.borrowed {
            *used += self.borrowed_rate(pool, subject) * millis;
        }
        self.fair_uses = uses;
        self.now = now;
    }

    /// "The subject with the least ... divided by its policy's `weight` (default 1), comes first."
    pub(super) fn fair_rank(&self, pool: &PoolName, subject: &Subject) -> u64 {
        let of = (pool.clone(), subject.clone());
        let used = self
            .fair_uses
            .borrowed
            .get(&of)
            .filter(|_| self.pools[pool].fair_share);
        let weight = self.policy(pool, subject).map_or(1, |policy| policy.weight);
        used.map_or(0, |used| used / 1_000_000 / u64::from(weight))
    }

    /// "With `fair_users: true` the same among the users of one subject."
    pub(super) fn use_of_user(&self, pool: &PoolName, ask: &JudgedRequest) -> u64 {
        let of = (pool.clone(), ask.subject.clone(), ask.user);
        let used = self
            .fair_uses
            .of_users
            .get(&of)
            .filter(|_| self.pools[pool].fair_users);
        used.map_or(0, |used| used / 1_000_000)
    }
}
