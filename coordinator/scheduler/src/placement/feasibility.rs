//! Finds requests that a pool could never grant.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::amount::{MGPU, ResourceKey, STEP_RUN};
use sluice_common::id::{LevelName, NodeName, PoolName};

use crate::model::pool::Pool;
use crate::model::request::Request;
use crate::model::resources::{HOST_KEYS, HostResources};
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;

/// Why a request could never be granted in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// The pool does not know this resource.
    UnknownResource { key: ResourceKey },
    /// The request asks for more than the pool has.
    ExceedsPoolCapacity {
        key: ResourceKey,
        asked: u64,
        /// Capacity of the pool.
        capacity: u64,
    },
    /// The request asks for more than its subject's limit.
    ExceedsLimit {
        key: ResourceKey,
        asked: u64,
        /// Limit of the policy.
        limit: u64,
    },
    /// The request is not preemptible and asks for more than is reserved.
    ExceedsReserved {
        key: ResourceKey,
        asked: u64,
        reserved: u64,
    },
    /// The request is not preemptible, and on every host that is large enough it asks for more than its GPUs carry.
    ExceedsEntitlement {
        key: ResourceKey,
        /// Amount that it asks for on each host.
        asked: u64,
        /// Amount that its GPUs carry on `node`.
        entitled: u64,
        /// The host that comes closest.
        node: NodeName,
    },
    /// Too few hosts of the pool are large enough, even when empty.
    NoHostFits {
        /// Number of hosts that are.
        hosts: usize,
    },
    /// The topology has no level within which the request must run.
    NoLevel { level: LevelName },
    /// Too few hosts of each domain of the level within which the request must run are large enough, even when empty.
    NoDomainFits {
        level: LevelName,
        /// Path of the domain with the most of them; empty if no host is in one.
        domain: Vec<String>,
        /// Number of hosts in that domain that are.
        hosts: usize,
    },
}

impl Scheduler {
    /// Checks whether a request could ever be granted in one of its pools; if not, returns the reason for each, most
    /// preferred first. An empty list means that its subject has no policy.
    ///
    /// # Errors
    /// The request could never be granted.
    pub fn admit(
        &self,
        request: &Request,
        allow_pending: bool,
    ) -> Result<(), Vec<(PoolName, Infeasible)>> {
        let mut reasons = Vec::new();
        for (name, pool) in self.pools_for(request) {
            let Some(in_pool) = RequestInPool::new(self, pool, request) else {
                continue;
            };
            match in_pool.infeasible(allow_pending) {
                None => return Ok(()),
                Some(infeasible) => reasons.push((name.clone(), infeasible)),
            }
        }
        Err(reasons)
    }

    /// Why a request could never be granted in a pool; `None` if it could, or if its subject has no policy there.
    /// With `allow_pending`, present hosts do not matter.
    pub fn infeasible(
        &self,
        pool: &Pool,
        request: &Request,
        allow_pending: bool,
    ) -> Option<Infeasible> {
        RequestInPool::new(self, pool, request)?.infeasible(allow_pending)
    }
}

/// Things that a request may wait for.
#[derive(Clone, Copy)]
struct Awaited {
    /// Other hosts than the present ones.
    hosts: bool,
    /// GPUs of present hosts that do not know them yet.
    gpus: bool,
}

impl<'a> RequestInPool<'a> {
    /// The first rule by which the request could never be granted here. Present hosts do not matter to a request that
    /// waits for the first host of a platform.
    pub(crate) fn infeasible(&self, allow_pending: bool) -> Option<Infeasible> {
        self.infeasible_unless(Awaited {
            hosts: allow_pending || self.pool.awaits_platform(self.request),
            gpus: true,
        })
    }

    /// The same check by what the hosts have now.
    pub(crate) fn infeasible_now(&self) -> Option<Infeasible> {
        self.infeasible_unless(Awaited {
            hosts: false,
            gpus: false,
        })
    }

    /// A host that does not know its GPUs yet, if the request cannot be granted without them.
    pub(crate) fn awaited_host(&self) -> Option<&'a NodeName> {
        let with_them = Awaited {
            hosts: false,
            gpus: true,
        };
        let is_awaited = self.infeasible_unless(with_them).is_none();
        self.hosts_with_unknown_gpus().next().filter(|_| is_awaited)
    }

    fn infeasible_unless(&self, awaited: Awaited) -> Option<Infeasible> {
        let keys = || self.request.demand.iter();
        let unknown = keys().find(|(key, _)| !self.is_known(key.as_str()));
        if let Some((key, _)) = unknown {
            return Some(Infeasible::UnknownResource { key: key.clone() });
        }
        if let Some(within) = self.must_run_within()
            && self.scheduler.depth(within).is_none()
        {
            let level = within.level.clone();
            return Some(Infeasible::NoLevel { level });
        }
        if self.lacks_class(awaited) {
            return Some(Infeasible::NoHostFits { hosts: 0 });
        }
        let over_capacity = keys().find_map(|(key, asked)| self.over_capacity(key, asked, awaited));
        let policy = || keys().find_map(|(key, asked)| self.against_policy(key, asked));
        over_capacity
            .or_else(policy)
            .or_else(|| self.too_few_hosts(awaited))
    }

    fn is_known(&self, key: &str) -> bool {
        HOST_KEYS.contains(&key) || key == STEP_RUN || self.pool.declared(key).is_some()
    }

    /// Hosts that would hold the request if they have enough GPUs, and that do not know their GPUs yet.
    fn hosts_with_unknown_gpus(&self) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        let each = self.request.each;
        let hosts = self.pool.hosts_with_unknown_gpus();
        let unknown = hosts.filter(move |(_, host)| {
            let with_gpus = host.capacity.with_mgpu(each.mgpu());
            each.mgpu() > 0 && with_gpus.cover(each)
        });
        unknown.map(|(node, _)| node)
    }

    /// Whether there may be more GPUs than the hosts report.
    fn awaits_gpus(&self, awaited: Awaited) -> bool {
        let is_unknown = || self.hosts_with_unknown_gpus().next().is_some();
        self.pool.hosts().is_empty() || awaited.hosts || (awaited.gpus && is_unknown())
    }

    /// Whether the pool has no GPU of the class that the request asks for.
    fn lacks_class(&self, awaited: Awaited) -> bool {
        let class = self.filter.class.filter(|_| !self.awaits_gpus(awaited));
        class.is_some_and(|class| !self.pool.has_class(class))
    }

    /// Reported capacity may grow with the next host, so a request that may wait for one is not checked against it.
    fn over_capacity(&self, key: &ResourceKey, asked: u64, awaited: Awaited) -> Option<Infeasible> {
        let declared = self.pool.declared(key.as_str());
        if declared.is_none() && (self.pool.hosts().is_empty() || awaited.hosts) {
            return None;
        }
        let is_gpu = key.as_str() == MGPU;
        let may_grow = is_gpu && self.awaits_gpus(awaited);
        let class = self.filter.class.filter(|_| is_gpu && !may_grow);
        let of_class = class.map_or(u64::MAX, |class| self.pool.gpus_of_class(class));
        let capacity = match may_grow {
            true => declared,
            false => self.pool.capacity(key.as_str()),
        };
        let capacity = capacity.map(|capacity| capacity.min(of_class));
        let capacity = capacity.filter(|capacity| asked > *capacity)?;
        let key = key.clone();
        Some(Infeasible::ExceedsPoolCapacity {
            key,
            asked,
            capacity,
        })
    }

    fn against_policy(&self, key: &ResourceKey, asked: u64) -> Option<Infeasible> {
        let policy = self.account.policy.as_ref()?;
        if !self.pool.is_metered(key.as_str()) {
            return None;
        }
        if let Some(limit) = policy.limit(key.as_str()).filter(|limit| asked > *limit) {
            let key = key.clone();
            return Some(Infeasible::ExceedsLimit { key, asked, limit });
        }
        let reserved = policy
            .reserved(key.as_str())
            .filter(|_| !self.request.preemptible)?;
        (asked > reserved).then(|| Infeasible::ExceedsReserved {
            key: key.clone(),
            asked,
            reserved,
        })
    }

    fn too_few_hosts(&self, awaited: Awaited) -> Option<Infeasible> {
        if self.pool.hosts().is_empty() || awaited.hosts || self.request.resumes.is_some() {
            return None;
        }
        let wanted = self.request.hosts as usize;
        let large = |in_pool: RequestInPool<'_>| {
            let large = in_pool.covering(&in_pool.host_index().by_capacity);
            large.take(wanted).count()
        };
        let hosts = self.each_platform().map(large).max().unwrap_or(0);
        if let Some(within) = self.must_run_within().filter(|_| hosts >= wanted) {
            let domains = self.each_place();
            let domains = domains.map(|it| (large(it), it.domain.map(|domain| domain.path)));
            // The first of those with the most.
            let most = domains.min_by_key(|(hosts, _)| Reverse(*hosts));
            let (hosts, path) = most.unwrap_or((0, None));
            return (hosts < wanted).then(|| Infeasible::NoDomainFits {
                level: within.level.clone(),
                domain: path.unwrap_or_default().to_vec(),
                hosts,
            });
        }
        let unknown = match awaited.gpus {
            true => self.hosts_with_unknown_gpus().take(wanted).count(),
            false => 0,
        };
        if hosts + unknown >= wanted {
            return None;
        }
        let excess = self.each_platform().find_map(|it| it.over_entitlement());
        Some(excess.unwrap_or(Infeasible::NoHostFits { hosts }))
    }

    /// The excess over what the GPUs of the request carry, if only that keeps it from enough hosts.
    fn over_entitlement(&self) -> Option<Infeasible> {
        let hosts = self.host_index().by_capacity.covering(self.request.each);
        let hosts = hosts.filter(|(node, _)| self.is_allowed_on(node));
        let hosts: Vec<(&NodeName, HostResources)> = hosts.collect();
        if hosts.len() < self.request.hosts as usize {
            return None;
        }
        let excess = hosts.into_iter().filter_map(|(node, _)| {
            let host = self.pool.hosts().get(node)?;
            let borrowed = self.pool.borrowed_from_gpus(host, self.request.each);
            let (key, beyond) = borrowed.iter().find(|(_, beyond)| *beyond > 0)?;
            Some((beyond, key, node))
        });
        let (beyond, key, node) = excess.min()?;
        let asked = self.request.each.get(key);
        Some(Infeasible::ExceedsEntitlement {
            key: ResourceKey::new(key).ok()?,
            asked,
            entitled: asked - beyond,
            node: node.clone(),
        })
    }
}
