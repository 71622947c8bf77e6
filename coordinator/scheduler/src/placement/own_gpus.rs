//! Chooses GPUs of a host, and knows which of them frozen runs wait for: a frozen run resumes on its own GPUs only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{MEMORY_MB, MGPU_A_GPU};
use sluice_common::id::{AttemptId, NodeName};

use crate::model::frozen::GpuUuids;
use crate::model::guard::Guard;
use crate::model::host::HardwareFilter;
use crate::model::host_ranking::HostRanking;
use crate::model::reservations::Reservations;
use crate::model::resources::HostResources;
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;

impl Scheduler {
    /// Memory that can be taken beyond the run's own and the reservations of others: on its host, in its pool and
    /// within its subject's limit, at most `wanted`.
    pub fn free_beside(&self, attempt: &AttemptId, node: &NodeName, wanted: u64) -> u64 {
        let Some(run) = self.run(attempt).filter(|_| wanted > 0) else {
            return 0;
        };
        let own_pool = self
            .pool_of_host
            .get(node)
            .and_then(|pool| self.pools.get(pool));
        let Some(pool) = own_pool.filter(|_| self.pool_of_host.get(node) == Some(&run.pool)) else {
            return 0;
        };
        let mut reservations = Reservations::default();
        for step in &pool.firm_nominations {
            if let (Some(request), Some(nomination)) = (self.request(step), self.nomination(step)) {
                // The run is not marked as freezing yet.
                reservations.add_with_release(self, request, nomination, |id, run| {
                    match id == attempt {
                        true => run.releases_when_frozen(),
                        false => run.releases(),
                    }
                });
            }
        }
        let host = pool.hosts().get(node);
        let free = host.map_or(0, |host| {
            host.free()
                .less(reservations.unavailable_on(node, host, HardwareFilter::ANY))
                .get(MEMORY_MB)
        });
        let declared = pool.declared(MEMORY_MB).map_or(u64::MAX, |declared| {
            let taken = pool.used().get(MEMORY_MB);
            declared.saturating_sub(taken.saturating_add(reservations.pool.get(MEMORY_MB)))
        });
        let account = pool.account(&run.request.subject);
        let policy = account.and_then(|account| account.policy.as_ref());
        let limit = policy.and_then(|policy| policy.limit(MEMORY_MB));
        let used = account.map_or(0, |account| account.used.get(MEMORY_MB));
        let limit = limit.map_or(u64::MAX, |limit| limit.saturating_sub(used));
        wanted.min(free).min(declared).min(limit)
    }

    /// Groups free GPUs of a host by who waits for them, in the order in which they are granted: those that no frozen
    /// run waits for, then those of frozen runs that are not nominated, then the others.
    pub fn gpus_by_wait<'a, T>(
        &self,
        node: &NodeName,
        free: impl Iterator<Item = (&'a String, T)>,
    ) -> Vec<Vec<T>> {
        let awaited = self.awaited_gpus(node);
        let mut groups: BTreeMap<Option<bool>, Vec<T>> = BTreeMap::new();
        for (uuid, gpu) in free {
            let waits = awaited.get(uuid).copied();
            groups.entry(waits).or_default().push(gpu);
        }
        groups.into_values().collect()
    }

    /// GPUs that frozen runs wait for and that a request for `wanted` thousandths of a GPU of a host would get for lack of others.
    /// `None` if others are enough.
    pub(crate) fn awaited_gpus_to_grant(&self, node: &NodeName, wanted: u64) -> Option<GpuUuids> {
        let own_pool = self
            .pool_of_host
            .get(node)
            .and_then(|pool| self.pools.get(pool))?;
        // On hosts of several platforms it is not known which GPUs are free.
        let host = own_pool.hosts().get(node).filter(|host| !host.is_mixed())?;
        let runs = host.runs.iter().filter_map(|id| self.run(id));
        let held = runs.filter_map(|run| run.gpus_on(node)).flatten();
        let taken: BTreeSet<&String> = held.chain(&host.unfit_gpus).collect();
        let awaited = self.awaited_gpus(node).into_iter();
        let free = awaited.filter(|(gpu, _)| !taken.contains(gpu));
        let mut free: Vec<(bool, &String)> = free.map(|(gpu, promised)| (promised, gpu)).collect();
        free.sort_unstable();
        let others = host.free().mgpu();
        let others = others.saturating_sub(host.hardware.mgpu(free.iter().map(|(_, gpu)| *gpu)));
        let each = host
            .kinds()
            .next()
            .map_or(MGPU_A_GPU, |kind| kind.class.mgpu());
        let given = wanted.saturating_sub(others).div_ceil(each);
        let given = usize::try_from(given).unwrap_or(usize::MAX);
        let given = free.into_iter().take(given);
        let given: GpuUuids = given.map(|(_, gpu)| gpu.clone()).collect();
        (!given.is_empty()).then_some(given)
    }

    /// GPUs of a host that frozen runs wait for, each with whether the run is nominated.
    pub fn awaited_gpus(&self, node: &NodeName) -> BTreeMap<&String, bool> {
        let mut awaited = BTreeMap::new();
        let own_pool = self
            .pool_of_host
            .get(node)
            .and_then(|pool| self.pools.get(pool));
        let runs = own_pool.and_then(|pool| pool.hosts().get(node)).into_iter();
        let runs = runs.flat_map(|host| &host.runs);
        for (id, run) in runs.filter_map(|id| Some((id, self.run(id)?))) {
            if run.is_frozen() {
                let promised = self.nominations.contains_key(&id.step);
                for gpu in run.gpus.get(node).into_iter().flatten() {
                    *awaited.entry(gpu).or_default() |= promised;
                }
            }
        }
        awaited
    }
}

impl<'a> RequestInPool<'a> {
    /// Whether the request may run on a host: a resumption on its own host only, any other request on hosts that
    /// admit it and whose GPUs it may borrow from, in the domain that is being tried.
    pub(crate) fn may_run_on(&self, node: &NodeName) -> bool {
        let resumes = self.request.resumes.as_ref();
        resumes.map_or_else(
            || self.is_in_domain(node) && self.is_allowed_on(node) && self.may_borrow_on(node),
            |own| own.node == *node,
        )
    }

    /// Whether a host admits the request: by its container runtimes, and by the platforms of its hardware.
    pub(crate) fn is_allowed_on(&self, node: &NodeName) -> bool {
        if self.request.guards.is_empty() && self.request.image.is_none() {
            return true;
        }
        let own_pool = self.scheduler.pool_of_host.get(node);
        let guard = own_pool.and_then(|pool| self.request.guards.get(pool));
        let Some(host) = self.pool.hosts().get(node) else {
            return true;
        };
        let allows = |guard: &Guard| host.kinds().all(|kind| guard.allows(&kind.platforms));
        host.runs_image(self.request.image) && guard.is_none_or(allows)
    }

    /// Hosts of a ranking that cover the request and that it may run on, tightest first.
    pub(crate) fn covering(
        self,
        ranking: &'a HostRanking,
    ) -> impl Iterator<Item = (&'a NodeName, HostResources)> + use<'a> {
        let covering = ranking.covering(self.request.each);
        covering.filter(move |(node, _)| self.may_run_on(node))
    }

    /// Thousandths of the request's own GPUs that are held by others, reserved for others or unfit. Runs for which
    /// `is_gone` holds count as released.
    pub(crate) fn own_gpus_taken(
        &self,
        node: &NodeName,
        reservations: &Reservations,
        is_gone: impl Fn(&AttemptId) -> bool,
    ) -> u64 {
        let Some(resumes) = &self.request.resumes else {
            return 0;
        };
        if resumes.gpus.is_empty() {
            return 0;
        }
        let host = self.pool.hosts().get(node);
        let promised = host.map_or(0, |host| {
            reservations.missing_gpus(node, host, &resumes.gpus, &is_gone)
        });
        let runs = host
            .into_iter()
            .flat_map(|host| &host.runs)
            .filter(|id| !is_gone(id))
            .filter_map(|id| self.scheduler.run(id)?.gpus_on(node));
        let mut taken: BTreeSet<&String> = runs.flatten().collect();
        taken.extend(reservations.gpus.get(node).into_iter().flatten());
        taken.extend(host.into_iter().flat_map(|host| &host.unfit_gpus));
        let taken = resumes.gpus.iter().filter(|gpu| taken.contains(gpu));
        promised.max(host.map_or(0, |host| host.hardware.mgpu(taken)))
    }

    /// Whether the free ones of the request's own GPUs are reserved for others by number. Those may need them before
    /// the request has what it waits for.
    pub(crate) fn own_gpus_are_reserved(&self, reservations: &Reservations) -> bool {
        let Some(resumes) = &self.request.resumes else {
            return false;
        };
        let node = &resumes.node;
        let Some(host) = self.pool.hosts().get(node) else {
            return false;
        };
        let promised = reservations
            .unavailable_on(node, host, HardwareFilter::ANY)
            .mgpu();
        if promised == 0 {
            return false;
        }
        let runs = host.runs.iter().filter_map(|id| self.scheduler.run(id));
        let held: BTreeSet<&String> = runs.filter_map(|run| run.gpus_on(node)).flatten().collect();
        let own = resumes.gpus.iter().filter(|gpu| !held.contains(gpu));
        let own: GpuUuids = own.cloned().collect();
        let left = host.free().mgpu().saturating_sub(promised);
        match host.is_mixed() {
            true => reservations.missing_gpus(node, host, &own, |_| false) > 0,
            false => host.hardware.mgpu(own.iter()) > left,
        }
    }

    /// The exact GPUs that a resumption waits for.
    pub(crate) fn own_gpus(&self) -> Option<&'a GpuUuids> {
        let resumes = self.request.resumes.as_ref();
        resumes.map(|resumes| &resumes.gpus)
    }
}
