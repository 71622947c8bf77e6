//! What is kept free for others than a request: what they are nominated for, beyond what the runs that they await still hold.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId};

use crate::model::frozen::{Gpus, Resumption};
use crate::model::host::{self, GpusOf, Host, Platforms};
use crate::model::matching::Matching;
use crate::model::nomination::Nomination;
use crate::model::request::{ByHost, Request, Run};
use crate::model::scheduler::Scheduler;
use crate::model::units::HostUnits;

/// Units of a host that are kept free for others.
#[derive(Clone, Debug, Default)]
pub struct ReservedOnHost {
    /// With GPUs of whatever kind.
    units: HostUnits,
    /// GPUs of a platform.
    of: BTreeMap<PlatformName, u64>,
    /// GPUs as they are, by kind.
    own: GpusOf,
}

impl ReservedOnHost {
    fn add(&mut self, platform: Option<&PlatformName>, units: HostUnits) {
        let Some(platform) = platform else {
            self.units = self.units.plus(units);
            return;
        };
        self.units = self.units.plus(units.with_gpus(0));
        *self.of.entry(platform.clone()).or_default() += units.gpus();
    }

    /// Adds GPUs that are to be free as they are, whatever they are.
    fn add_own(&mut self, host: Option<&Host>, units: HostUnits, own: Vec<&String>) {
        let units = units.with_gpus(own.len() as u64);
        let Some(host) = host.filter(|host| host.is_mixed()) else {
            return self.add(None, units);
        };
        self.add(None, units.with_gpus(0));
        for (kind, gpus) in host.hardware.sorted(own.into_iter()) {
            *self.own.entry(kind).or_default() += gpus;
        }
    }

    /// The part of it that a request for a platform may not take, so that what is left serves the others: whoever takes
    /// any GPU, or any of a wide platform, can have those that nobody else does.
    fn seen(&self, host: &Host, view: Option<&PlatformName>) -> HostUnits {
        if view.is_none() || !host.is_mixed() {
            let named: u64 = self.of.values().chain(self.own.values()).sum();
            return self.units.with_gpus(self.units.gpus() + named);
        }
        let free = host.free_kinds();
        let (mut matching, unserved) = self.dealt(&free, view);
        let seen: Vec<bool> = free.keys().map(|kind| host::sees(view, kind)).collect();
        let there = free.iter().filter(|(kind, _)| host::sees(view, kind));
        let there: u64 = there.map(|(_, gpus)| gpus).sum();
        let left = matching.deal(seen, there);
        self.units.with_gpus(there - left + unserved)
    }

    /// What is left of the free GPUs of a host when all this is dealt out, and how many are missing of what a request
    /// by a view would compete for.
    pub fn dealt(&self, free: &GpusOf, view: Option<&PlatformName>) -> (Matching, u64) {
        let mut matching = Matching::new(free.values().copied().collect());
        let mut unserved = 0;
        let mut serve = |takes: &dyn Fn(&Platforms) -> bool, wanted: u64| {
            let takes: Vec<bool> = free.keys().map(takes).collect();
            let competes = |(kind, takes): (&Platforms, &bool)| *takes && host::sees(view, kind);
            let competes = free.keys().zip(&takes).any(competes);
            let served = matching.deal(takes, wanted);
            if competes {
                unserved += wanted - served;
            }
        };
        // Those first that have the least choice: if somebody must go without, it is who could have had others.
        for (own, gpus) in &self.own {
            serve(&|kind| kind == own, *gpus);
        }
        for (platform, gpus) in &self.of {
            serve(&|kind| kind.contains(platform), *gpus);
        }
        serve(&|_| true, self.units.gpus());
        (matching, unserved)
    }
}

/// A host in the pool of a promise.
fn host_of<'a>(
    scheduler: &'a Scheduler,
    nomination: &Nomination,
    node: &NodeName,
) -> Option<&'a Host> {
    let pool = scheduler.pool(&nomination.pool)?;
    pool.hosts().get(node)
}

/// Units that are kept free for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    hosts: BTreeMap<NodeName, ReservedOnHost>,
    pub(crate) pool: Amounts,
    /// Runs whose units come to them.
    pub(crate) awaited: BTreeSet<AttemptId>,
    /// GPUs that are to be free as they are, by host.
    pub(crate) gpus: BTreeMap<NodeName, Gpus>,
}

impl Reservations {
    /// Adds what a promise to `request` keeps: what it needs beyond what the runs that it awaits still hold.
    pub(crate) fn add(
        &mut self,
        scheduler: &Scheduler,
        request: &Request,
        nomination: &Nomination,
    ) {
        self.add_where(scheduler, request, nomination, |_, run| run.gives());
    }

    /// The same, where `gives` says what comes back of each of those runs.
    pub(crate) fn add_where(
        &mut self,
        scheduler: &Scheduler,
        request: &Request,
        nomination: &Nomination,
        gives: impl Fn(&AttemptId, &Run) -> (HostUnits, Amounts),
    ) {
        let platform = nomination.platform.as_ref();
        let mut awaited = Amounts::new();
        let mut on: ByHost = ByHost::new();
        for id in &nomination.awaits {
            let Some(run) = scheduler.run(id).filter(|run| run.pool == nomination.pool) else {
                continue;
            };
            let (each, demand) = gives(id, run);
            awaited.add(&demand);
            for node in &run.holding {
                let sum = on.entry(node.clone()).or_default();
                let host = host_of(scheduler, nomination, node);
                let back = host.map_or(each, |host| host.given_back(platform, id, each));
                *sum = sum.plus(back);
            }
        }
        self.awaited.extend(nomination.awaits.iter().cloned());
        self.pool.add(&request.demand.saturating_sub(&awaited));
        for node in &nomination.hosts {
            let held = on.get(node).copied().unwrap_or_default();
            let missing = request.each.less(held);
            let kept = self.hosts.entry(node.clone()).or_default();
            match &request.resumes {
                None => kept.add(platform, missing),
                Some(resumes) => {
                    // Which of its own GPUs those hold, not how many they hold in all.
                    let awaits = nomination.awaits.iter().filter_map(|id| scheduler.run(id));
                    let coming: Vec<&Gpus> = awaits.filter_map(|run| run.gpus_on(node)).collect();
                    let own = resumes.gpus.iter();
                    let own = own.filter(|gpu| !coming.iter().any(|gpus| gpus.contains(*gpu)));
                    kept.add_own(host_of(scheduler, nomination, node), missing, own.collect());
                    self.keep_gpus(resumes);
                }
            }
        }
    }

    /// What was frozen goes on with its own GPUs and no others.
    fn keep_gpus(&mut self, resumes: &Resumption) {
        let gpus = self.gpus.entry(resumes.node.clone()).or_default();
        gpus.extend(resumes.gpus.iter().cloned());
    }

    /// Adds all that a promise to `request` is about.
    pub(crate) fn add_in_full(
        &mut self,
        scheduler: &Scheduler,
        request: &Request,
        nomination: &Nomination,
    ) {
        self.pool.add(&request.demand);
        for node in &nomination.hosts {
            let kept = self.hosts.entry(node.clone()).or_default();
            match &request.resumes {
                None => kept.add(nomination.platform.as_ref(), request.each),
                Some(resumes) => {
                    let host = host_of(scheduler, nomination, node);
                    kept.add_own(host, request.each, resumes.gpus.iter().collect());
                }
            }
        }
        if let Some(resumes) = &request.resumes {
            self.keep_gpus(resumes);
        }
    }

    /// How many of these GPUs of a host are missing for who takes them as they are, where others are to have what is kept
    /// for them as GPUs of a platform. The runs for which `is_gone` holds are thought away.
    pub(crate) fn missing_of(
        &self,
        node: &NodeName,
        host: &Host,
        own: &Gpus,
        is_gone: impl Fn(&AttemptId) -> bool,
    ) -> u64 {
        let Some(kept) = self.hosts.get(node).filter(|_| host.is_mixed()) else {
            return 0;
        };
        let mut free = host.free_kinds();
        let gone = host.held.iter().filter(|(id, _)| is_gone(id));
        for (kind, gpus) in gone.flat_map(|(_, gpus)| gpus) {
            *free.entry(kind.clone()).or_default() += gpus;
        }
        let (mut matching, _) = kept.dealt(&free, None);
        let own = host.hardware.sorted(own.iter());
        let missing = own.iter().map(|(own, gpus)| {
            let takes = free.keys().map(|kind| kind == own).collect();
            gpus - matching.deal(takes, *gpus)
        });
        missing.sum()
    }

    /// What is kept of one host alone.
    pub(crate) fn take_on(mut self, node: &NodeName) -> ReservedOnHost {
        self.hosts.remove(node).unwrap_or_default()
    }

    /// What of a host a request for a platform, or for any, may not take.
    pub(crate) fn on(
        &self,
        node: &NodeName,
        host: &Host,
        view: Option<&PlatformName>,
    ) -> HostUnits {
        let kept = self.hosts.get(node);
        kept.map_or(HostUnits::default(), |kept| kept.seen(host, view))
    }
}

impl Scheduler {
    /// Whether a promise awaits runs, and every one of them is being stopped or has ended.
    pub(crate) fn is_coming(&self, nomination: &Nomination) -> bool {
        let mut awaited = nomination.awaits.iter().filter_map(|id| self.run(id));
        !nomination.awaits.is_empty() && awaited.all(Run::is_leaving)
    }

    /// What is promised of a host to others than `step`: all of it, and the firm part, which is kept from what is granted
    /// around a head as well.
    pub fn promised_on(&self, node: &NodeName, step: &StepId) -> [ReservedOnHost; 2] {
        let Some(pool) = self.homes.get(node).and_then(|home| self.pools.get(home)) else {
            return [ReservedOnHost::default(), ReservedOnHost::default()];
        };
        let mut firm = Reservations::default();
        let promised = pool.firm.iter().filter(|other| *other != step);
        promised.for_each(|other| self.keep_for(other, &mut firm));
        let mut all = firm.clone();
        let head = pool.soft.iter().filter(|other| *other != step);
        head.for_each(|other| self.keep_for(other, &mut all));
        [all.take_on(node), firm.take_on(node)]
    }

    fn keep_for(&self, step: &StepId, kept: &mut Reservations) {
        if let (Some(request), Some(nomination)) = (self.request(step), self.nomination(step)) {
            kept.add(self, request, nomination);
        }
    }
}
