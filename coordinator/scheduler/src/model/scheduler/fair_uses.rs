//! Counts use for fair share whenever what subjects hold changes.

use alloc::collections::BTreeMap;

use sluice_common::id::{PoolName, Subject};
use sluice_common::time::Time;

use crate::model::fair_share::FairUse;
use crate::model::scheduler::Scheduler;

/// Decayed use by pool and subject.
pub type FairUses = BTreeMap<PoolName, BTreeMap<Subject, FairUse>>;

impl Scheduler {
    /// Sets the time of the facts that follow.
    pub fn set_clock(&mut self, at: Time) {
        self.clock = at;
    }

    /// Updates a copy of the uses that changed since the last call.
    pub fn copy_fair_uses(&mut self, to: &mut FairUses) {
        for (pool, subject) in core::mem::take(&mut self.settled) {
            let known = self.pools.get(&pool);
            let used = known.and_then(|known| known.fair_uses().get(&subject));
            let pool_uses = to.entry(pool.clone()).or_default();
            match used {
                Some(used) => pool_uses.insert(subject, used.clone()),
                None => pool_uses.remove(&subject),
            };
            if pool_uses.is_empty() {
                to.remove(&pool);
            }
        }
    }

    /// Replaces all uses by those of a copy.
    pub fn set_fair_uses(&mut self, uses: &FairUses) {
        for (name, pool) in &mut self.pools {
            pool.set_fair_uses(uses.get(name).cloned().unwrap_or_default());
        }
        self.settled.clear();
    }

    /// Counts the use of a subject in a pool until now.
    pub(super) fn settle(&mut self, pool: &PoolName, subject: &Subject) {
        let clock = self.clock;
        let known = self.pools.get_mut(pool);
        let Some(known) = known.filter(|known| known.terms().fair_share.is_some()) else {
            return;
        };
        known.settle(subject, clock);
        let forgotten = known.forget_after(subject, clock);
        let settled = core::iter::once(subject.clone()).chain(forgotten);
        self.settled
            .extend(settled.map(|subject| (pool.clone(), subject)));
    }

    /// Counts the use of all whom a change of a subject's policy affects.
    pub(super) fn settle_affected(&mut self, pool: &PoolName, subject: &Subject) {
        match subject.is_everyone() {
            true => self.settle_pool(pool),
            false => self.settle(pool, subject),
        }
    }

    /// Counts the use of all subjects of a pool.
    pub(super) fn settle_pool(&mut self, name: &PoolName) {
        let clock = self.clock;
        let Some(pool) = self.pools.get_mut(name) else {
            return;
        };
        let subjects = pool.counted_subjects();
        if pool.terms().fair_share.is_none() {
            pool.set_fair_uses(BTreeMap::new());
        }
        subjects
            .iter()
            .for_each(|subject| pool.settle(subject, clock));
        let settled = subjects.into_iter().map(|subject| (name.clone(), subject));
        self.settled.extend(settled);
    }
}
