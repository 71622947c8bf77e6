//! Finds free hosts for a request in a pool.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::amount::Amounts;
use sluice_common::id::{NodeName, PlatformName, StepId};
use sluice_common::pool::HostPlacement;

use crate::model::host::{HardwareFilter, Host};
use crate::model::host_ranking::HostRanking;
use crate::model::reservations::Reservations;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;

/// Number of hosts that are compared, the tightest fitting ones, so that a grant costs the same with a hundred hosts
/// as with ten thousand.
const MAX_HOSTS_COMPARED: usize = 128;

/// Order of hosts for a request; the lowest is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacementRank {
    is_avoided: bool,
    /// `None` if the request borrows nothing from GPUs there, as on each host without GPUs.
    gpus_that_lose: Option<u64>,
    /// Other replicas from which it is to be apart.
    replicas: u32,
    room: HostRank,
}

/// Order of hosts by their free resources, as the pool wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostRank {
    /// The least change of fragmentation.
    Pack(i128),
    /// The most GPUs, then the most thousandths of a core.
    Spread(Reverse<(u64, u64)>),
}

impl<'a> RequestInPool<'a> {
    /// Free amount of a declared resource beyond `reservations`.
    pub(crate) fn free_of(&self, key: &str, reservations: &Reservations) -> Option<u64> {
        let declared = self.pool.declared(key)?;
        let taken = self
            .pool
            .used()
            .get(key)
            .saturating_add(reservations.pool.get(key));
        Some(declared.saturating_sub(taken))
    }

    fn pool_covers(&self, reservations: &Reservations) -> bool {
        let mut keys = self.request.demand.iter();
        keys.all(|(key, asked)| {
            self.free_of(key.as_str(), reservations)
                .is_none_or(|free| asked <= free)
        })
    }

    /// The best hosts for the request out of what is free beyond `reservations`: first those that it does not avoid,
    /// then those whose GPUs it does not borrow from; then those with the fewest other replicas of its service, if these
    /// are spread; then those with the least fragmentation and the tightest, or, if
    /// the pool spreads its steps, those with the most free. If it asks for hosts that are near to each other, they are of
    /// as narrow a domain as possible.
    pub(crate) fn best_hosts(&self, reservations: &Reservations) -> Option<Vec<NodeName>> {
        if !self.pool_covers(reservations) {
            return None;
        }
        if let Some(resumes) = &self.request.resumes {
            let own = Vec::from([resumes.node.clone()]);
            return self.fits_on(&own, reservations).then_some(own);
        }
        let Some(within) = self.request.asks_within() else {
            return self.best_hosts_there(reservations).map(|(_, hosts)| hosts);
        };
        let in_one_domain = self.scheduler.depth(within).and_then(|depth| {
            let mut depths = (depth..=self.scheduler.levels.len()).rev();
            depths.find_map(|depth| self.best_hosts_of_a_domain(depth, reservations))
        });
        in_one_domain.or_else(|| {
            let hosts = self
                .best_hosts_there(reservations)
                .filter(|_| !within.required);
            hosts.map(|(_, hosts)| hosts)
        })
    }

    /// The best hosts of one domain of a level: of the domain with the fewest hosts that have room, so that others stay
    /// whole, or, if the pool spreads its steps, with the most.
    fn best_hosts_of_a_domain(
        &self,
        depth: usize,
        reservations: &Reservations,
    ) -> Option<Vec<NodeName>> {
        let domains = self.domains_at(depth);
        let found = domains.filter_map(|it| it.best_hosts_there(reservations));
        let best = match self.spreads() {
            true => found.min_by_key(|(with_room, _)| Reverse(*with_room)),
            false => found.min_by_key(|(with_room, _)| *with_room),
        };
        best.map(|(_, hosts)| hosts)
    }

    /// The best hosts in the domain that is being tried, and how many were compared.
    fn best_hosts_there(&self, reservations: &Reservations) -> Option<(usize, Vec<NodeName>)> {
        let wanted = self.request.hosts as usize;
        let mut offers = self.offers(reservations);
        let compared = offers.len();
        // Hosts are sorted by what is free already; the sort is stable.
        offers.sort_by_key(|(rank, _)| *rank);
        let hosts: Vec<NodeName> = offers
            .into_iter()
            .take(wanted)
            .map(|(_, node)| node.clone())
            .collect();
        (hosts.len() == wanted).then_some((compared, hosts))
    }

    /// Number of hosts that have enough free beyond `reservations`, in the domain that is being tried; counted up to the
    /// number of hosts that are compared.
    pub(crate) fn hosts_with_room(&self, reservations: &Reservations) -> usize {
        self.offers(reservations).len()
    }

    /// Hosts that have enough free, at most as many as are compared: the tightest, or those with the most free.
    fn offers(&self, reservations: &Reservations) -> Vec<(PlacementRank, &'a NodeName)> {
        let each = self.request.each;
        let demand_profile = &self.pool.demand_profile;
        let wanted = self.request.hosts as usize;
        let borrows = self.may_borrow();
        let in_order = demand_profile.is_unknown() && !self.spreads();
        let spread_in = self.request.spread_in.as_ref();
        let replicas = spread_in.and_then(|group| self.scheduler.replicas.of(group));
        let with_replicas = replicas.map_or(0, BTreeMap::len);
        let considered = match in_order && !borrows && self.domain.is_none() {
            true => wanted.saturating_add(self.request.avoided_hosts.len()),
            false => wanted.max(MAX_HOSTS_COMPARED),
        };
        // Where the others are is full first, and must not hide the rest.
        let considered = considered.saturating_add(with_replicas);
        let index = self.host_index();
        // Hosts without GPUs must not be missed among many whose GPUs are all taken.
        let without_gpus = borrows.then(|| self.in_pool_order(&index.without_gpus));
        let with_gpus = self.in_pool_order(&index.by_free).filter(|(node, _)| {
            !borrows || self.pool.hosts().get(node).is_some_and(Host::has_gpus)
        });
        let hosts = without_gpus.into_iter().flatten().chain(with_gpus);
        let hosts =
            hosts.filter_map(|(node, free)| Some((node, self.pool.hosts().get(node)?, free)));
        let left = hosts.map(|(node, host, free)| {
            let reserved = reservations.unavailable_on(node, host, self.filter);
            (node, host, free.less(reserved))
        });
        let fitting = left.filter(|(.., free)| free.cover(each)).take(considered);
        let offers = fitting.map(|(node, host, free)| {
            let rank = PlacementRank {
                is_avoided: self.request.avoided_hosts.contains(node),
                gpus_that_lose: self.gpus_that_lose((node, host), free, reservations),
                replicas: replicas
                    .and_then(|hosts| hosts.get(node))
                    .copied()
                    .unwrap_or_default(),
                room: match self.spreads() {
                    true => HostRank::Spread(Reverse((free.mgpu(), free.mcpu()))),
                    false => HostRank::Pack(demand_profile.fragmentation_change(each, free)),
                },
            };
            (rank, node)
        });
        offers.collect()
    }

    fn spreads(&self) -> bool {
        self.pool.terms().placement == HostPlacement::Spread
    }

    /// Hosts of a ranking that cover the request and that it may run on, in the order of the pool.
    fn in_pool_order(
        self,
        ranking: &'a HostRanking,
    ) -> impl Iterator<Item = (&'a NodeName, HostResources)> + use<'a> {
        let packed = (!self.spreads()).then(|| self.covering(ranking));
        let spread = self.spreads().then(|| {
            let hosts = ranking.covering_most_first(self.request.each);
            hosts.filter(move |(node, _)| self.may_run_on(node))
        });
        let packed = packed.into_iter().flatten();
        packed.chain(spread.into_iter().flatten())
    }

    /// Whether the request asks for anything that it could borrow from GPUs.
    fn may_borrow(&self) -> bool {
        let keys = self.request.each.beside_gpus_by_key();
        let mut borrowed = keys.filter(|(key, asked)| *asked > 0 && !self.pool.is_metered(key));
        borrowed.next().is_some()
    }

    /// Thousandths of free GPUs of a host that lose what they carry to the request, those that it does not ask for
    /// included; `None` if it borrows nothing there.
    fn gpus_that_lose(
        &self,
        (node, host): (&NodeName, &Host),
        free: HostResources,
        reservations: &Reservations,
    ) -> Option<u64> {
        let each = self.request.each;
        let borrowed = self.pool.borrowed_from_gpus(host, each);
        (borrowed != HostResources::default()).then(|| {
            let reserved = reservations.unavailable_on(node, host, HardwareFilter::ANY);
            let gpus = host.free().less(reserved).mgpu();
            host.gpus_that_lose(free.with_mgpu(gpus), each)
        })
    }

    /// Whether enough schedulable hosts are large enough, however full they are.
    pub(crate) fn has_enough_hosts(&self) -> bool {
        if let Some(resumes) = &self.request.resumes {
            return self.could_hold(core::slice::from_ref(&resumes.node));
        }
        let wanted = self.request.hosts as usize;
        let large = self.covering(&self.host_index().by_usable);
        large.take(wanted).count() == wanted
    }

    /// Whether these hosts have enough free beyond `reservations`.
    pub(crate) fn fits_on(&self, hosts: &[NodeName], reservations: &Reservations) -> bool {
        let covers = |node: &NodeName| {
            let host = self.pool.hosts().get(node).filter(|host| host.schedulable);
            let host = host.filter(|_| self.may_run_on(node));
            let fits = host.is_some_and(|host| {
                let left = self.left_on((node, host), HostResources::default(), reservations);
                left.cover(self.request.each)
            });
            fits && self.own_gpus_taken(node, reservations, |_| false) == 0
        };
        self.pool_covers(reservations) && hosts.iter().all(covers)
    }

    /// Whether these hosts are schedulable and large enough, however full they are, and the request still asks for
    /// their platform: the pool's default may have changed.
    pub(crate) fn could_hold(&self, hosts: &[NodeName]) -> bool {
        let asked = self.pool.wanted(self.request);
        let asks = self.filter.platform.map_or(asked.is_empty(), |platform| {
            asked.is_empty() || asked.contains(platform)
        });
        let asks = asks || self.request.resumes.is_some();
        asks && (hosts.len() == 1 || self.are_near(hosts))
            && hosts.iter().all(|node| {
                let host = self.pool.hosts().get(node);
                let large = |host: &Host| host.usable_for(self.filter).cover(self.request.each);
                host.is_some_and(|host| host.schedulable && large(host)) && self.may_run_on(node)
            })
    }

    /// The free hosts on which the request would start now, on the first platform that has some, if its own policy
    /// allows it.
    pub(crate) fn find_placement(&self) -> Option<FreePlacement<'a>> {
        self.each_platform().find_map(|in_pool| {
            let (hosts, passed) = in_pool.find_hosts()?;
            Some(FreePlacement {
                hosts,
                passed,
                platform: in_pool.filter.platform,
            })
        })
    }

    /// The free hosts on which the request would start now, if its own policy allows it, and the head that it would
    /// go past and give way to.
    fn find_hosts(&self) -> Option<(Vec<NodeName>, BTreeSet<StepId>)> {
        if !self.is_allowed(&Amounts::new()) {
            return None;
        }
        let reserved = self.reserved_for_others();
        if let Some(hosts) = self.best_hosts(reserved.all()) {
            return Some((hosts, BTreeSet::new()));
        }
        let (head, _) = reserved.soft.as_ref()?;
        let passed = match reserved.allows_short_run() {
            true => BTreeSet::new(),
            false if reserved.allows_backfill(self.request) => BTreeSet::from([(*head).clone()]),
            false => return None,
        };
        let hosts = self.best_hosts(&reserved.firm)?;
        Some((hosts, passed))
    }

    /// The first request of its own subject ahead of it that waits for the subject's limit. A preemptible request
    /// that goes past it is backfill to it.
    pub(crate) fn limited_request_ahead(&self) -> Option<StepId> {
        let policy = self.account.policy.as_ref();
        let has_limit = policy.is_some_and(|policy| !policy.limit.is_empty());
        if !self.request.preemptible || !has_limit {
            return None;
        }
        let own = self.rank();
        let heads = self.account.queue.heads();
        let ahead = heads.filter_map(|step| {
            let other =
                RequestInPool::new(self.scheduler, self.pool, self.scheduler.request(step)?)?;
            let rank = other.rank();
            let waits = other.keys_over_limit(&Amounts::new()).next().is_some();
            (rank < own && waits).then(|| (rank, step.clone()))
        });
        ahead.min().map(|(_, step)| step)
    }
}

/// Free hosts for a request.
#[derive(Clone, Debug)]
pub(crate) struct FreePlacement<'a> {
    pub(crate) hosts: Vec<NodeName>,
    /// The waiting requests that the grant would go past.
    pub(crate) passed: BTreeSet<StepId>,
    /// Platform by which the hosts were found.
    pub(crate) platform: Option<&'a PlatformName>,
}
