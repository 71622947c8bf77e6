//! Finds what keeps a request from starting in a pool: the first rule that blocks it, with the numbers. The rules are
//! asked in the same order as in the decision itself.

use alloc::string::String;
use core::cmp::Reverse;

use sluice_common::amount::{Amounts, MGPU};
use sluice_common::id::{LevelName, NodeName, PoolName, StepId};
use sluice_common::time::Time;

use crate::model::reservations::Reservations;
use crate::model::scheduler::Scheduler;
use crate::placement::feasibility::Infeasible;
use crate::placement::request_in_pool::RequestInPool;

/// The first rule that keeps a request from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockReason<'a> {
    /// The pool has no host.
    PoolEmpty,
    /// The request asks for GPUs, and a host does not know its own yet.
    GpusUnknown { node: &'a NodeName },
    /// The request could never be granted under the present terms.
    Infeasible(Infeasible),
    /// The request is nominated and its victims are stopping.
    AwaitingRelease {
        /// Number of runs that it still awaits.
        runs: usize,
    },
    /// The subject's limit is used up.
    Limit {
        key: &'a str,
        /// Amount that the subject uses.
        used: u64,
        /// Amount that the subject may use.
        limit: u64,
    },
    /// The request is not preemptible, and the share reserved for such requests is used up.
    Reserved {
        key: &'a str,
        /// Amount that non-preemptible runs of the subject use.
        used: u64,
        reserved: u64,
    },
    /// No host that is large enough takes new work.
    NoSchedulableHost {
        /// One of these hosts.
        nearest: &'a NodeName,
    },
    /// A request ahead of it is nominated on what it needs.
    BehindHead {
        behind: StepId,
        /// Time at which that one starts at the latest, if known: what ends before may start now.
        starts_by: Option<Time>,
    },
    /// Too little of a declared resource is free.
    PoolFull { key: &'a str, free: u64 },
    /// Too few hosts of each domain of the level within which it must run have room.
    DomainsFull {
        level: &'a LevelName,
        /// Path of the domain with the most hosts that have room.
        domain: &'a [String],
        /// Number of hosts of that domain that have room.
        hosts: usize,
    },
    /// Too little is free on the hosts that it may run on.
    HostsFull {
        /// The host that lacks least: the resource, the amount asked and the amount free. `None` if a gang finds some
        /// hosts but not enough.
        closest: Option<(&'a NodeName, &'static str, u64, u64)>,
    },
}

impl Scheduler {
    /// Finds the first rule that keeps a request from starting in a pool; `None` if none does.
    pub fn block<'a>(&'a self, step: &StepId, pool: &PoolName) -> Option<BlockReason<'a>> {
        let in_pool = RequestInPool::new(self, self.pools.get(pool)?, self.request(step)?)?;
        if in_pool.pool.hosts().is_empty() {
            return Some(BlockReason::PoolEmpty);
        }
        if let Some(nomination) = self.nomination(step).filter(|promise| promise.is_firm()) {
            let runs = nomination.awaits.len();
            return Some(BlockReason::AwaitingRelease { runs });
        }
        let infeasible = in_pool.infeasible_now().map(|never| {
            let awaited = in_pool.awaited_host();
            awaited.map_or(BlockReason::Infeasible(never), |node| {
                BlockReason::GpusUnknown { node }
            })
        });
        infeasible
            .or_else(|| in_pool.block_by_policy())
            .or_else(|| in_pool.block_by_resources())
    }
}

impl<'a> RequestInPool<'a> {
    fn block_by_policy(&self) -> Option<BlockReason<'a>> {
        let nothing = Amounts::new();
        let over = self.keys_short_of_limit(&nothing).next();
        if let Some(key) = over {
            let promised = self.nominated_amount(key);
            let used = self.account.used.get(key).saturating_add(promised);
            let limit = self.account.policy.as_ref()?.limit(key)?;
            return Some(BlockReason::Limit { key, used, limit });
        }
        if self.request.preemptible || self.is_in_share() {
            return None;
        }
        let firm = self.counted();
        self.metered().find_map(|(key, asked)| {
            let used = firm.get(key);
            let reserved = self.account.reserved(key)?;
            let short = used.saturating_add(asked) > reserved;
            short.then_some(BlockReason::Reserved {
                key,
                used,
                reserved,
            })
        })
    }

    /// A request of a frozen run waits for its own host and its own GPUs.
    fn block_on_own_host(&self, node: &'a NodeName) -> BlockReason<'a> {
        let host = self.pool.hosts().get(node);
        let free = host.map(|host| host.free()).unwrap_or_default();
        let none = Reservations::default();
        let taken = self.own_gpus_taken(node, &none, |_| false);
        let asked = self.request.each.mgpu();
        let closest = match free.first_shortage(self.request.each) {
            Some((key, asked, free)) => (node, key, asked, free),
            None => (node, MGPU, asked, asked.saturating_sub(taken)),
        };
        let closest = Some(closest);
        BlockReason::HostsFull { closest }
    }

    fn block_by_resources(&self) -> Option<BlockReason<'a>> {
        if self.find_placement().is_some() {
            return None;
        }
        if !self.each_place().any(|place| place.has_enough_hosts()) {
            if let Some(resumes) = &self.request.resumes {
                let nearest = &resumes.node;
                return Some(BlockReason::NoSchedulableHost { nearest });
            }
            let mut known = self.covering(&self.host_index().by_capacity);
            let closed = known.find(|(node, _)| !self.could_hold(core::slice::from_ref(*node)));
            let (nearest, _) = closed?;
            return Some(BlockReason::NoSchedulableHost { nearest });
        }
        let reserved = self.reserved_for_others();
        let none = Reservations::default();
        if let Some((behind, _)) = reserved.soft.as_ref().filter(|_| {
            let mut platforms_of = self.each_platform();
            platforms_of.any(|platform| platform.best_hosts(&reserved.firm).is_some())
        }) {
            let nomination = self.scheduler.nomination(behind);
            return Some(BlockReason::BehindHead {
                behind: (*behind).clone(),
                starts_by: nomination.and_then(|it| self.scheduler.latest_start(&it.awaits)),
            });
        }
        let mut demand = self.request.demand.iter();
        let short = demand.find_map(|(key, asked)| {
            let free = self.free_of(key.as_str(), &none)?;
            (asked > free).then_some((key.as_str(), free))
        });
        if let Some((key, free)) = short {
            return Some(BlockReason::PoolFull { key, free });
        }
        if let Some(resumes) = &self.request.resumes {
            return Some(self.block_on_own_host(&resumes.node));
        }
        if let Some(full) = self.block_by_domains(reserved.all()) {
            return Some(full);
        }
        let closest = self
            .host_index()
            .by_free
            .closest(self.request.each, |it| self.may_run_on(it));
        let closest = closest.and_then(|(node, free)| {
            let (key, asked, free) = free.first_shortage(self.request.each)?;
            Some((node, key, asked, free))
        });
        Some(BlockReason::HostsFull { closest })
    }

    /// The domain with the most hosts that have room beyond `reservations`, if it has some and the request must run within
    /// one.
    fn block_by_domains(&self, reservations: &Reservations) -> Option<BlockReason<'a>> {
        let within = self.must_run_within()?;
        let with_room = self.each_place().filter_map(|place| {
            let hosts = place.hosts_with_room(reservations);
            Some((hosts, place.domain?.path))
        });
        let (hosts, domain) = with_room.min_by_key(|(hosts, _)| Reverse(*hosts))?;
        let is_short = (1..self.request.hosts as usize).contains(&hosts);
        is_short.then_some(BlockReason::DomainsFull {
            level: &within.level,
            domain,
            hosts,
        })
    }
}
