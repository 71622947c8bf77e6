//! Entitlement to the host keys that GPUs carry.

use alloc::collections::BTreeSet;
use alloc::format;

use sluice_common::id::{AttemptId, NodeName, PoolName};

use super::amounts::{GPU, JudgedAmounts, JudgedClass, OF_HOSTS, STEP_RUN, less};
use super::facts::RemovedRuns;
use super::victims::JudgedPreemption;
use super::{Judge, JudgedRequest, JudgedRun, RuleResult, rule};

impl Judge {
    /// Thousandths of the GPUs of a host, those included that are cut into its slices.
    fn carrying(&self, node: &NodeName) -> u64 {
        let host = &self.hosts[node];
        host.has[JudgedClass::Whole.key()] + host.cut * JudgedClass::Whole.thousandths()
    }

    /// "On a host with G GPUs each GPU carries 1/G of the host's cores, memory and storage (a MIG slice its part of that).
    /// What a run holds of a host key that is not metered above what its GPUs there carry is borrowed from GPUs."
    fn borrowed(&self, pool: &PoolName, node: &NodeName, each: JudgedAmounts) -> JudgedAmounts {
        let has = self.hosts[node].has;
        core::array::from_fn(|key| {
            let is_host_key = key != GPU && key < OF_HOSTS;
            if !is_host_key || has[GPU] == 0 || self.is_metered(pool, key) {
                return 0;
            }
            each[key].saturating_sub(each[GPU] * has[key] / self.carrying(node))
        })
    }

    pub(super) fn borrows(&self, pool: &PoolName, node: &NodeName, each: JudgedAmounts) -> bool {
        self.borrowed(pool, node, each) != JudgedAmounts::default()
    }

    /// "A non-preemptible run may not borrow from GPUs, unless the pool says `gpu_hosts: open`."
    pub(super) fn may_borrow_on(
        &self,
        pool: &PoolName,
        node: &NodeName,
        ask: &JudgedRequest,
    ) -> bool {
        let is_free =
            ask.preemptible || self.pools[pool].open_gpu_hosts || ask.frozen_run.is_some();
        is_free || !self.borrows(pool, node, ask.each)
    }

    pub(super) fn non_preemptible_borrows_nothing_from_gpus(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> RuleResult {
        let mut hosts = hosts.iter();
        let wrong = hosts.find(|node| !self.may_borrow_on(pool, node, ask));
        rule(
            "non_preemptible_borrows_nothing_from_gpus",
            wrong.is_none(),
            || format!("{} on {wrong:?}", ask.step),
        )
    }

    /// "Placement puts what borrows from GPUs on hosts without GPUs first, then where the fewest free GPUs lose their
    /// part": asked of one host at a time, and if nothing is promised to others.
    pub(super) fn what_borrows_takes_from_the_fewest_gpus(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
        hosts: &[NodeName],
    ) -> RuleResult {
        let mut nominations = self.nominations.iter();
        let promised = nominations.any(|(step, it)| it.pool == *pool && *step != ask.step);
        if promised || ask.nodes > 1 || !ask.platforms.is_empty() || ask.frozen_run.is_some() {
            return Ok(());
        }
        let nothing = RemovedRuns::new();
        let lose = |node: &NodeName| {
            let whole = |free: JudgedAmounts| {
                let has = self.hosts[node].has;
                let of = |key: usize| free[key] * self.carrying(node) / has[key];
                let keys = (1..OF_HOSTS).filter(|key| has[*key] > 0);
                let parts = keys.map(of).fold(free[GPU], u64::min);
                match self.hosts[node].cut {
                    0 => parts - parts % JudgedClass::Whole.thousandths(),
                    _ => parts,
                }
            };
            let free = self.free_on(node, &nothing);
            let others = whole(free).saturating_sub(ask.each[GPU]);
            let lost = others.saturating_sub(whole(less(free, ask.each)));
            self.borrows(pool, node, ask.each).then_some(lost)
        };
        let taken = lose(&hosts[0]);
        let reservations = Default::default();
        let better = self.choices(pool, ask).into_iter().find(|hosts| {
            self.fits(pool, ask, hosts, &nothing, &reservations) && lose(&hosts[0]) < taken
        });
        rule(
            "what_borrows_takes_from_the_fewest_gpus",
            better.is_none(),
            || format!("{} on {hosts:?}, not on {better:?}", ask.step),
        )
    }

    /// "The run holds a metered key beyond its subject's share (it is left over when the share is filled)."
    fn is_left_over(&self, pool: &PoolName, id: &AttemptId, run: &JudgedRun) -> bool {
        let policy = self.policy(pool, &run.ask.subject);
        let counts = |key: &usize| {
            let reserved = policy.map_or(Some(0), |policy| policy.reserved(*key));
            run.total()[*key] > 0 && reserved.is_some()
        };
        let mut keys = self.metered(pool).filter(counts);
        keys.any(|key| !self.fits_in_its_share(pool, id, key))
    }

    /// "*entitlement*: the short key is a host key that is not metered, and either (a) the run borrows it from the GPUs of
    /// that host, the waiter asks for no more of it than it is entitled to, and the waiter is in share or its policy
    /// priority is strictly higher; or (b) the waiter is in share and the run is left over. A request without a metered
    /// key (`step_run` aside) is not in share for this rule. For an unmetered key nothing else is reclaimed."
    pub(super) fn is_entitled_to(
        &self,
        preemption: JudgedPreemption<'_>,
        id: &AttemptId,
        key: usize,
        short_on: &BTreeSet<&NodeName>,
    ) -> bool {
        let JudgedPreemption { ask, pool, .. } = preemption;
        let run = &self.runs[id];
        let higher = self.priority(pool, &ask.subject) > self.priority(pool, &run.ask.subject);
        let in_share = self.is_in_metered_share(pool, ask);
        let mut hosts = short_on.iter();
        let borrowed = hosts.any(|node| {
            let borrows = |each| self.borrowed(pool, node, each)[key] > 0;
            borrows(run.each()) && !borrows(ask.each)
        });
        (borrowed && (in_share || higher)) || (in_share && self.is_left_over(pool, id, run))
    }

    pub(super) fn is_in_metered_share(&self, pool: &PoolName, ask: &JudgedRequest) -> bool {
        let asked = ask.total();
        let mut keys = self.metered(pool);
        self.is_in_share(pool, ask) && keys.any(|key| key != STEP_RUN && asked[key] > 0)
    }
}
