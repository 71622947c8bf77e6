//! Resources that are reserved for other requests: what they are nominated for, less what the runs that they await
//! still hold.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId};
use sluice_common::mig::GpuClass;
use sluice_common::time::Time;

use crate::model::frozen::{GpuUuids, Resumption};
use crate::model::host::{GpuKind, GpusByKind, HardwareFilter, Host};
use crate::model::matching::Matching;
use crate::model::nomination::Nomination;
use crate::model::request::{Request, ResourcesByHost, Run};
use crate::model::resources::HostResources;
use crate::model::scheduler::Scheduler;

/// Resources of one host that are reserved for others.
#[derive(Clone, Debug, Default)]
pub struct ReservedOnHost {
    /// Resources with GPUs of any kind.
    any_gpus: HostResources,
    /// GPUs by platform and class, either of which may be any.
    filtered: BTreeMap<(Option<PlatformName>, Option<GpuClass>), u64>,
    /// Exact GPUs, by kind.
    exact: GpusByKind,
}

impl ReservedOnHost {
    fn add(&mut self, filter: HardwareFilter<'_>, units: HostResources) {
        if filter.is_any() {
            self.any_gpus = self.any_gpus.plus(units);
            return;
        }
        self.any_gpus = self.any_gpus.plus(units.with_mgpu(0));
        let filter = (filter.platform.cloned(), filter.class.cloned());
        *self.filtered.entry(filter).or_default() += units.mgpu();
    }

    /// Adds exact GPUs that must be free.
    fn add_exact(&mut self, host: Option<&Host>, units: HostResources, own: Vec<&String>) {
        let mgpu = host.map_or(0, |host| host.hardware.mgpu(own.iter().copied()));
        let units = units.with_mgpu(mgpu);
        let Some(host) = host.filter(|host| host.is_mixed()) else {
            return self.add(HardwareFilter::ANY, units);
        };
        self.add(HardwareFilter::ANY, units.with_mgpu(0));
        for (kind, gpus) in host.hardware.count_by_kind(own.into_iter()) {
            *self.exact.entry(kind).or_default() += gpus;
        }
    }

    /// The part that a request with a filter may not take, so that the rest still serves the others: a request that
    /// accepts many kinds gets those that no other needs.
    fn unavailable_to(&self, host: &Host, filter: HardwareFilter<'_>) -> HostResources {
        if filter.is_any() || !host.is_mixed() {
            let named: u64 = self.filtered.values().chain(self.exact.values()).sum();
            return self.any_gpus.with_mgpu(self.any_gpus.mgpu() + named);
        }
        let free = host.free_gpus_by_kind();
        let (mut matching, unserved) = self.match_gpus(&free, filter);
        let unavailable_to: Vec<bool> = free.keys().map(|kind| filter.matches(kind)).collect();
        let there = filter.count(&free);
        let left = matching.assign(unavailable_to, there);
        self.any_gpus.with_mgpu(there - left + unserved)
    }

    /// Assigns the free GPUs of a host to all reservations; returns what is left, and how much is missing of
    /// those that a request with a filter competes for.
    pub fn match_gpus(&self, free: &GpusByKind, filter: HardwareFilter<'_>) -> (Matching, u64) {
        let mut matching = Matching::new(free.values().copied().collect());
        let mut unserved = 0;
        let mut serve = |takes: &dyn Fn(&GpuKind) -> bool, wanted: u64| {
            let takes: Vec<bool> = free.keys().map(takes).collect();
            let competes = |(kind, takes): (&GpuKind, &bool)| *takes && filter.matches(kind);
            let competes = free.keys().zip(&takes).any(competes);
            let served = matching.assign(takes, wanted);
            if competes {
                unserved += wanted - served;
            }
        };
        // Requests with the least choice first: if GPUs are missing, they are missing for those that could have had
        // others.
        for (own, gpus) in &self.exact {
            serve(&|kind| kind == own, *gpus);
        }
        let (of_class, of_platform): (Vec<_>, Vec<_>) =
            (self.filtered.iter()).partition(|((platform, _), _)| platform.is_none());
        for ((platform, class), gpus) in of_platform.into_iter().chain(of_class) {
            let own = HardwareFilter {
                class: class.as_ref(),
                platform: platform.as_ref(),
            };
            serve(&|kind| own.matches(kind), *gpus);
        }
        serve(&|_| true, self.any_gpus.mgpu());
        (matching, unserved)
    }
}

/// The hardware that a nomination of a request is for.
fn filter_of<'a>(
    scheduler: &Scheduler,
    request: &'a Request,
    nomination: &'a Nomination,
) -> HardwareFilter<'a> {
    let platform = nomination.platform.as_ref();
    let pool = scheduler.pool(&nomination.pool);
    let filter = pool.map(|pool| pool.filter(request, platform));
    filter.unwrap_or(HardwareFilter::ANY)
}

/// A host in the pool of a nomination.
fn host_of<'a>(
    scheduler: &'a Scheduler,
    nomination: &Nomination,
    node: &NodeName,
) -> Option<&'a Host> {
    let pool = scheduler.pool(&nomination.pool)?;
    pool.hosts().get(node)
}

/// Resources that are reserved for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    hosts: BTreeMap<NodeName, ReservedOnHost>,
    pub(crate) pool: Amounts,
    /// Runs whose resources are reserved for these nominations.
    pub(crate) awaited: BTreeSet<AttemptId>,
    /// Exact GPUs that must be free, by host.
    pub(crate) gpus: BTreeMap<NodeName, GpuUuids>,
}

/// Reservations of all nominations in a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolReservations {
    /// Resources that firm nominations reserve.
    pub(crate) firm: Reservations,
    /// The same, with those that are kept for the head.
    pub(crate) with_head: Reservations,
}

impl Reservations {
    /// Adds what a nomination reserves: what the request needs beyond what the awaited runs still hold.
    pub(crate) fn add(
        &mut self,
        scheduler: &Scheduler,
        request: &Request,
        nomination: &Nomination,
    ) {
        self.add_with_release(scheduler, request, nomination, |_, run| run.releases());
    }

    /// Adds a nomination; `releases` says what each awaited run releases.
    pub(crate) fn add_with_release(
        &mut self,
        scheduler: &Scheduler,
        request: &Request,
        nomination: &Nomination,
        releases: impl Fn(&AttemptId, &Run) -> (HostResources, Amounts),
    ) {
        let filter = filter_of(scheduler, request, nomination);
        let mut awaited = Amounts::new();
        let mut on: ResourcesByHost = ResourcesByHost::new();
        for id in &nomination.awaits {
            let Some(run) = scheduler.run(id).filter(|run| run.pool == nomination.pool) else {
                continue;
            };
            let (each, demand) = releases(id, run);
            awaited.add(&demand);
            for node in &run.holding {
                let sum = on.entry(node.clone()).or_default();
                let host = host_of(scheduler, nomination, node);
                let back = host.map_or(each, |host| host.released_for(filter, id, each));
                *sum = sum.plus(back);
            }
        }
        self.awaited.extend(nomination.awaits.iter().cloned());
        self.pool.add(&request.demand.saturating_sub(&awaited));
        for node in &nomination.hosts {
            let held = on.get(node).copied().unwrap_or_default();
            let missing = request.each.less(held);
            let reservations = self.hosts.entry(node.clone()).or_default();
            match &request.resumes {
                None => reservations.add(filter, missing),
                Some(resumes) => {
                    // Count exactly those of its own GPUs that these runs hold.
                    let awaits = nomination.awaits.iter().filter_map(|id| scheduler.run(id));
                    let coming: Vec<&GpuUuids> =
                        awaits.filter_map(|run| run.gpus_on(node)).collect();
                    let own = resumes.gpus.iter();
                    let own = own.filter(|gpu| !coming.iter().any(|gpus| gpus.contains(*gpu)));
                    reservations.add_exact(
                        host_of(scheduler, nomination, node),
                        missing,
                        own.collect(),
                    );
                    self.add_exact_gpus(resumes);
                }
            }
        }
    }

    /// A frozen run resumes on its own GPUs only.
    fn add_exact_gpus(&mut self, resumes: &Resumption) {
        let gpus = self.gpus.entry(resumes.node.clone()).or_default();
        gpus.extend(resumes.gpus.iter().cloned());
    }

    /// Adds everything that a nomination is for, including what the awaited runs still hold.
    pub(crate) fn add_in_full(
        &mut self,
        scheduler: &Scheduler,
        request: &Request,
        nomination: &Nomination,
    ) {
        self.pool.add(&request.demand);
        let filter = filter_of(scheduler, request, nomination);
        for node in &nomination.hosts {
            let reservations = self.hosts.entry(node.clone()).or_default();
            match &request.resumes {
                None => reservations.add(filter, request.each),
                Some(resumes) => {
                    let host = host_of(scheduler, nomination, node);
                    reservations.add_exact(host, request.each, resumes.gpus.iter().collect());
                }
            }
        }
        if let Some(resumes) = &request.resumes {
            self.add_exact_gpus(resumes);
        }
    }

    /// Thousandths of these exact GPUs of a host that are missing if the other reservations get theirs. Runs for which
    /// `is_gone` holds count as released.
    pub(crate) fn missing_gpus(
        &self,
        node: &NodeName,
        host: &Host,
        own: &GpuUuids,
        is_gone: impl Fn(&AttemptId) -> bool,
    ) -> u64 {
        let Some(reservations) = self.hosts.get(node).filter(|_| host.is_mixed()) else {
            return 0;
        };
        let mut free = host.free_gpus_by_kind();
        let gone = host.gpus_by_run.iter().filter(|(id, _)| is_gone(id));
        for (kind, gpus) in gone.flat_map(|(_, gpus)| gpus) {
            *free.entry(kind.clone()).or_default() += gpus;
        }
        let (mut matching, _) = reservations.match_gpus(&free, HardwareFilter::ANY);
        let own = host.hardware.count_by_kind(own.iter());
        let missing = own.iter().map(|(own, gpus)| {
            let takes = free.keys().map(|kind| kind == own).collect();
            gpus - matching.assign(takes, *gpus)
        });
        missing.sum()
    }

    /// Takes the reservations of one host.
    pub(crate) fn into_host(mut self, node: &NodeName) -> ReservedOnHost {
        self.hosts.remove(node).unwrap_or_default()
    }

    /// Resources of a host that a request with a filter may not take.
    pub(crate) fn unavailable_on(
        &self,
        node: &NodeName,
        host: &Host,
        filter: HardwareFilter<'_>,
    ) -> HostResources {
        let reservations = self.hosts.get(node);
        reservations.map_or(HostResources::default(), |reservations| {
            reservations.unavailable_to(host, filter)
        })
    }
}

impl Scheduler {
    /// Whether a nomination awaits runs, and all of them are being released.
    pub(crate) fn awaits_only_releasing(&self, nomination: &Nomination) -> bool {
        let mut awaited = nomination.awaits.iter().filter_map(|id| self.run(id));
        !nomination.awaits.is_empty() && awaited.all(Run::is_releasing)
    }

    /// Time at which a request that awaits these runs starts at the latest, by their time limits. `None` if there are none,
    /// or if nothing bounds one of them or it should have ended by now.
    pub fn latest_start(&self, awaits: &BTreeSet<AttemptId>) -> Option<Time> {
        let runs = awaits.iter().filter_map(|id| self.run(id));
        let ends = runs.map(|run| run.latest_end().filter(|end| *end > self.clock));
        ends.collect::<Option<Vec<Time>>>()?.into_iter().max()
    }

    /// Reservations on a host for requests other than `step`: all of them, and the firm ones, which backfill may not
    /// take either.
    pub fn reserved_on(&self, node: &NodeName, step: &StepId) -> [ReservedOnHost; 2] {
        let Some(pool) = self
            .pool_of_host
            .get(node)
            .and_then(|pool| self.pools.get(pool))
        else {
            return [ReservedOnHost::default(), ReservedOnHost::default()];
        };
        let mut firm = Reservations::default();
        let promised = pool.firm_nominations.iter().filter(|other| *other != step);
        promised.for_each(|other| self.add_nomination(other, &mut firm));
        let mut all = firm.clone();
        let head = pool.soft_nomination.iter().filter(|other| *other != step);
        head.for_each(|other| self.add_nomination(other, &mut all));
        [all.into_host(node), firm.into_host(node)]
    }

    fn add_nomination(&self, step: &StepId, reservations: &mut Reservations) {
        if let (Some(request), Some(nomination)) = (self.request(step), self.nomination(step)) {
            reservations.add(self, request, nomination);
        }
    }
}
