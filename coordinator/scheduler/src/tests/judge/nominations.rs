//! Properties that must hold once no decision is left.

use alloc::collections::BTreeMap;
use alloc::format;

use sluice_common::id::PoolName;

use super::amounts::{JudgedAmounts, ON_HOSTS};
use super::facts::{JudgedReservations, RemovedRuns};
use super::{Judge, JudgedNomination, JudgedRequest, RuleResult, rule};

impl Judge {
    /// Judges the final state.
    pub(in crate::tests) fn judge_rest(&self) -> RuleResult {
        self.no_host_is_overfull()?;
        self.victims_go_for_somebody()?;
        self.one_head_is_promised_units()?;
        for ask in self.waiting.values() {
            for pool in self.pools_of(ask) {
                self.nobody_waits_who_could_start(ask, &pool)?;
                self.in_share_does_not_wait_for_victims(ask, &pool)?;
            }
        }
        Ok(())
    }

    /// "Units granted never exceed capacity, on any host, for any key."
    fn no_host_is_overfull(&self) -> RuleResult {
        for (node, host) in &self.hosts {
            let there = self.runs.values().filter(|run| run.holding.contains(node));
            for key in ON_HOSTS {
                let held: u64 = there.clone().map(|run| run.each()[key]).sum();
                rule("no_host_is_overfull", held <= host.has[key], || {
                    format!("{node}: {held} of {:?}", host.has)
                })?;
            }
        }
        Ok(())
    }

    /// "The waiter stays `queued` with a nomination until its victims are released": while some are not.
    fn victims_go_for_somebody(&self) -> RuleResult {
        let mut firm = self
            .nominations
            .iter()
            .filter(|(_, nomination)| nomination.firm);
        let idle = firm.find(|(_, nomination)| {
            let mut awaited = nomination.awaits.iter().filter_map(|id| self.runs.get(id));
            !awaited.any(|run| run.stopping)
        });
        rule("victims_go_for_somebody", idle.is_none(), || {
            format!("{idle:?} awaits nothing and does not start")
        })
    }

    /// A pool has one nominated head.
    fn one_head_is_promised_units(&self) -> RuleResult {
        let mut heads: BTreeMap<&PoolName, usize> = BTreeMap::new();
        for nomination in self
            .nominations
            .values()
            .filter(|nomination| !nomination.firm)
        {
            *heads.entry(&nomination.pool).or_default() += 1;
        }
        let holds = heads.values().all(|heads| *heads == 1);
        rule("one_head_is_promised_units", holds, || format!("{heads:?}"))
    }

    /// "The head never starves and hosts never idle."
    fn nobody_waits_who_could_start(&self, ask: &JudgedRequest, pool: &PoolName) -> RuleResult {
        let could = self.could_start(pool, ask);
        rule("nobody_waits_who_could_start", !could, || {
            format!("{ask:?} in {pool}")
        })
    }

    /// "An in-share request that some set of victims could satisfy does not wait, except behind the nominated units of
    /// an earlier in-share request, `min_runtime`, or a release under way."
    fn in_share_does_not_wait_for_victims(
        &self,
        ask: &JudgedRequest,
        pool: &PoolName,
    ) -> RuleResult {
        // In any of its pools: what is being released in one may make a preemption in another unnecessary.
        let pools = self.pools_of(ask);
        let under_way = pools
            .iter()
            .any(|pool| self.runs_of(pool).any(|(_, run)| run.stopping));
        // "It does not move elsewhere meanwhile": its victims go in one pool, so it waits in the others for a release too.
        let promised = self.nominations.get(&ask.step);
        let under_way = under_way || promised.is_some_and(|nomination| nomination.firm);
        if under_way || !self.is_in_share(pool, ask) {
            return Ok(());
        }
        // "Own ... come before all others, whatever the excess": what they cure is no ground for taking somebody else's
        // any more, so a set that leaves them out is not one that the order of victims leads to.
        let mut runs = self.runs_of(pool);
        if !ask.preemptible
            && runs.any(|(_, run)| run.ask.subject == ask.subject && run.ask.preemptible)
        {
            return Ok(());
        }
        // The first of several that are alike is promised its place only when somebody behind it could move: the others wait
        // behind that place, whatever one of them might take back.
        let mut ahead = self.ahead_of(pool, ask).into_iter();
        if ahead.any(|other| other.is_like(ask) && !self.is_firm(other)) {
            return Ok(());
        }
        let help = self.some_victims_help_with(pool, ask, Self::promised_in_share);
        rule("in_share_does_not_wait_for_victims", help.is_none(), || {
            format!("{} could have {help:?} in {pool}", ask.step)
        })
    }

    fn is_firm(&self, ask: &JudgedRequest) -> bool {
        self.nominations.get(&ask.step).is_some_and(|it| it.firm)
    }

    /// Reservations for in-share requests that go before it.
    fn promised_in_share(
        &self,
        pool: &PoolName,
        ask: &JudgedRequest,
        gone: &RemovedRuns,
    ) -> JudgedReservations {
        let mut reservations = self.firm_promises(pool, ask, gone);
        let head = self.head_before(pool, ask);
        if let Some(head) = head.filter(|head| self.is_in_share(pool, &self.waiting[*head])) {
            self.keep(&mut reservations, head, gone);
            // Resources of the awaited runs count too.
            let nomination = &self.nominations[head];
            if !gone.is_disjoint(&nomination.awaits) {
                let everything: JudgedAmounts = core::array::from_fn(|_| 1 << 40);
                let all = self.hosts.keys().map(|node| (node.clone(), everything));
                reservations.hosts.extend(all);
            }
        }
        reservations
    }

    /// A nomination of the scheduler, as a fact.
    pub(in crate::tests) fn promise_of(nomination: &crate::Nomination) -> JudgedNomination {
        JudgedNomination {
            pool: nomination.pool.clone(),
            hosts: nomination.hosts.clone(),
            awaits: nomination.awaits.clone(),
            firm: nomination.is_firm(),
            disturbed: false,
        }
    }
}
