//! Chooses hosts and victims for a gang. Victims are counted as one set over all hosts, so the cost of a host depends
//! on the others: the cheapest single hosts may have no allowed set of victims together.
//!
//! The search adds hosts one by one, cheapest first, and drops a host if no allowed set makes room on all chosen
//! ones, because more hosts cannot change that. It then starts again with a dearer first host, since runs that span
//! several hosts may make that the better choice.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::NodeName;

use crate::model::request::ResourcesByHost;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::index::CandidateIndex;
use crate::preemption::offer::{Offer, PreemptionCost};
use crate::preemption::what_if::WhatIf;

/// Number of first hosts that are tried if runs span several hosts; each costs as much as the first.
const MAX_FIRST_HOSTS: usize = 8;
/// Number of host sets that are tried beyond the number of hosts that the gang needs; bounds the cost of one
/// decision.
const MAX_HOST_SETS: usize = 128;

/// The hosts on which a gang could run at the lowest cost, of those that are tried.
pub(crate) fn cheapest_hosts<'a, 'c>(
    in_pool: RequestInPool<'a>,
    base: &WhatIf<'a, '_>,
    index: &CandidateIndex<'a, 'c>,
) -> Option<Offer<'a, 'c>> {
    let wanted = in_pool.request.hosts as usize;
    let mut search = HostSetSearch {
        in_pool,
        base,
        index,
        wanted,
        wide: index.candidates.iter().any(|it| it.run().holding.len() > 1),
        tries: MAX_HOST_SETS + MAX_FIRST_HOSTS.saturating_mul(wanted),
    };
    let offers = search.alone();
    search.cheapest(&offers)
}

/// One host alone, with its cost.
struct PricedHost<'a, 'c> {
    cost: PreemptionCost,
    host: NodeName,
    offer: Offer<'a, 'c>,
}

struct HostSetSearch<'s, 'a, 'c> {
    in_pool: RequestInPool<'a>,
    base: &'s WhatIf<'a, 's>,
    index: &'s CandidateIndex<'a, 'c>,
    wanted: usize,
    /// Whether a candidate spans several hosts.
    wide: bool,
    /// Number of host sets that may still be tried.
    tries: usize,
}

impl<'a, 'c> HostSetSearch<'_, 'a, 'c> {
    /// All hosts worth trying, each by itself, cheapest first: those with candidates or with runs that are being
    /// released, and as many free hosts as the gang could use.
    fn alone(&self) -> Vec<PricedHost<'a, 'c>> {
        let RequestInPool { pool, .. } = self.in_pool;
        let host_index = self.in_pool.host_index();
        let busy = self.index.hosts().chain(self.base.freed_hosts());
        let busy: BTreeSet<&NodeName> = busy.collect();
        let fits = |node: &NodeName| self.base.could_cover(node, self.index.held_on(node));
        let idle = self
            .in_pool
            .covering(&host_index.by_free)
            .map(|(node, _)| node);
        let idle = idle.filter(|node| !busy.contains(node) && fits(node));
        let idle: Vec<&NodeName> = idle.take(self.wanted).collect();
        let open = |node: &&&NodeName| pool.hosts().get(node).is_some_and(|host| host.schedulable);
        let lets = |node: &&NodeName| self.in_pool.may_run_on(node);
        let busy = busy
            .iter()
            .filter(open)
            .copied()
            .filter(lets)
            .filter(|node| fits(node));
        let hosts = busy.chain(idle);
        let offers = hosts.filter_map(|node| {
            let host = node.clone();
            let offer = self.on(Vec::from([host.clone()]))?;
            let cost = offer.cost();
            Some(PricedHost { cost, host, offer })
        });
        let mut offers: Vec<PricedHost<'a, 'c>> = offers.collect();
        offers.sort_by(|a, b| (&a.cost, &a.host).cmp(&(&b.cost, &b.host)));
        offers
    }

    fn on(&self, hosts: Vec<NodeName>) -> Option<Offer<'a, 'c>> {
        Offer::for_hosts(self.base, self.index, hosts)
    }

    /// The best result over several first hosts; if none is found, over all.
    fn cheapest(&mut self, offers: &[PricedHost<'a, 'c>]) -> Option<Offer<'a, 'c>> {
        if let Some(found) = self.all_at_once(offers) {
            return Some(found);
        }
        let first_hosts = if self.wide { MAX_FIRST_HOSTS } else { 1 };
        let mut best: Option<(PreemptionCost, Offer<'a, 'c>)> = None;
        for (n, first) in offers.iter().enumerate() {
            let enough = best.is_some() && n >= first_hosts;
            if enough || self.tries == 0 {
                break;
            }
            let others = offers[n + 1..].iter().collect();
            let Some(found) = self.grow(&first.offer, others) else {
                continue;
            };
            let cost = found.cost();
            let better = best.as_ref().is_none_or(|(known, _)| cost < *known);
            if better {
                best = Some((cost, found));
            }
        }
        best.map(|(_, offer)| offer)
    }

    /// The cheapest hosts, if they have an allowed set together. No other set can be cheaper then.
    fn all_at_once(&self, offers: &[PricedHost<'a, 'c>]) -> Option<Offer<'a, 'c>> {
        let first = offers.get(..self.wanted).filter(|_| !self.wide)?;
        self.on(first.iter().map(|one| one.host.clone()).collect())
    }

    /// The first way to extend `offer` by `others` to as many hosts as are wanted.
    fn grow(
        &mut self,
        offer: &Offer<'a, 'c>,
        others: Vec<&PricedHost<'a, 'c>>,
    ) -> Option<Offer<'a, 'c>> {
        let missing = self.wanted - offer.hosts.len();
        if missing == 0 {
            return Some(offer.clone());
        }
        let order = self.nearest_first(offer, others);
        for n in 0..=order.len().checked_sub(missing)? {
            self.tries = self.tries.checked_sub(1)?;
            let hosts = offer.hosts.iter().chain([&order[n].host]);
            let Some(with) = self.on(hosts.cloned().collect()) else {
                continue;
            };
            let found = self.grow(&with, order[n + 1..].to_vec());
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Other hosts, those first that the victims chosen so far free already.
    fn nearest_first<'o>(
        &self,
        offer: &Offer<'a, 'c>,
        mut others: Vec<&'o PricedHost<'a, 'c>>,
    ) -> Vec<&'o PricedHost<'a, 'c>> {
        let mut freed = ResourcesByHost::new();
        let wide = offer.taken.iter();
        for candidate in wide.filter(|candidate| candidate.run().holding.len() > 1) {
            for node in &candidate.run().holding {
                let sum = freed.entry(node.clone()).or_default();
                let each = candidate.run().each();
                let each = self.in_pool.released_for(node, candidate.id, each);
                *sum = sum.plus(each);
            }
        }
        let is_far = |node: &NodeName| {
            let room = freed.get(node);
            !room.is_some_and(|room| self.base.could_cover(node, *room))
        };
        if !freed.is_empty() {
            others.sort_by_cached_key(|other| is_far(&other.host));
        }
        others
    }
}
