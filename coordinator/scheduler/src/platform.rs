//! Platforms: hosts and GPUs by what kind of hardware they are. A GPU may be of several platforms, and those of a host that
//! are of the same ones are of one kind. A host is of every platform of which it has a GPU, or, where it has none, of those
//! that its pool says. A request that asks for a platform sees the hosts of that platform alone, and of their GPUs those of
//! it; one that asks for any sees all, and a gang that does is still on hosts of one platform, GPUs or no.
//!
//! What is seen is told by a view: the platform, or none for all. Hosts are ranked for each view by themselves, so that
//! whoever asks for a platform walks past no other hosts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId};
use sluice_common::platform;

use super::Market;
use super::fit::Before;
use super::nomination::{Kept, KeptOn};
use super::pool::{Host, Pool, Size};
use super::request::{Request, Run};
use crate::ranks::Ranks;
use crate::units::HostUnits;

/// A platform; none is all of them.
pub(crate) type View<'a> = Option<&'a PlatformName>;

/// The platforms that a GPU is of.
pub type Platforms = BTreeSet<PlatformName>;

/// How many GPUs of each kind.
pub type GpusOf = BTreeMap<Platforms, u64>;

/// Whether a view sees GPUs of a kind.
pub fn sees(view: View<'_>, kind: &Platforms) -> bool {
    view.is_none_or(|platform| kind.contains(platform))
}

/// Those of a platform among them.
fn of_platform(gpus: &GpusOf, platform: &PlatformName) -> u64 {
    let kinds = gpus.iter().filter(|(kind, _)| kind.contains(platform));
    kinds.map(|(_, gpus)| gpus).sum()
}

/// The hosts of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shelf {
    /// All remembered hosts, by capacity.
    pub(crate) known: Ranks,
    /// Those that take work, by what of them can be granted.
    pub(crate) open: Ranks,
    /// Those that take work, by what is free.
    pub(crate) free: Ranks,
}

impl Shelf {
    pub(crate) fn insert(&mut self, node: &NodeName, host: &Host, view: View<'_>) {
        self.known.insert(node.clone(), host.capacity_seen(view));
        if host.open {
            let free = host.free_seen(view, HostUnits::default());
            self.open.insert(node.clone(), host.fit_seen(view));
            self.free.insert(node.clone(), free);
        }
    }

    pub(crate) fn remove(&mut self, node: &NodeName, host: &Host, view: View<'_>) {
        let free = host.free_seen(view, HostUnits::default());
        self.known.remove(node, host.capacity_seen(view));
        self.open.remove(node, host.fit_seen(view));
        self.free.remove(node, free);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// Of which platforms a host is, and its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// GPUs by kind; one with none where the host has none.
    pub gpus: GpusOf,
    /// Of which kind each GPU is. Said of hosts with several alone: on others it is clear.
    pub(crate) kinds: BTreeMap<String, Platforms>,
}

impl Hardware {
    /// A host with GPUs of one kind, or without any.
    pub fn uniform(kind: Platforms, gpus: u64) -> Self {
        Self {
            gpus: GpusOf::from([(kind, gpus)]),
            kinds: BTreeMap::new(),
        }
    }

    /// A host with these GPUs.
    pub fn of(gpus: impl Iterator<Item = (String, Platforms)>) -> Self {
        let mut hardware = Self {
            gpus: GpusOf::new(),
            kinds: gpus.collect(),
        };
        for kind in hardware.kinds.values() {
            *hardware.gpus.entry(kind.clone()).or_default() += 1;
        }
        if hardware.gpus.len() <= 1 {
            hardware.kinds = BTreeMap::new();
        }
        hardware
    }

    /// How many of these of its GPUs are of each kind.
    pub(crate) fn sorted<'a>(&self, gpus: impl Iterator<Item = &'a String>) -> GpusOf {
        let mut sorted = GpusOf::new();
        for kind in gpus.filter_map(|gpu| self.kinds.get(gpu)) {
            *sorted.entry(kind.clone()).or_default() += 1;
        }
        sorted
    }

    /// Of which kind a GPU of it is.
    pub fn kind_of(&self, gpu: &str) -> Option<&Platforms> {
        match self.kinds.get(gpu) {
            Some(kind) => Some(kind),
            None => self.gpus.keys().next().filter(|_| self.gpus.len() == 1),
        }
    }

    /// A host of which no more is known than how many GPUs it has.
    pub fn unnamed(gpus: u64) -> Self {
        let platform = match gpus {
            0 => platform::cpu(),
            _ => platform::of_slug(platform::UNNAMED),
        };
        Self::uniform(Platforms::from([platform]), gpus)
    }
}

impl Host {
    pub(crate) fn set_size(&mut self, size: Size) {
        let stuck = size.stuck.values();
        self.vanished = stuck.fold(HostUnits::default(), |sum, units| sum.plus(*units));
        self.capacity = size.capacity;
        self.hardware = size.hardware;
        self.unfit = size.unfit;
        self.unfit_gpus = size.unfit_gpus;
        self.stuck = size.stuck;
    }

    /// Counts what a run holds of its GPUs by kind, where they are of several.
    pub(crate) fn note_gpus(&mut self, attempt: &AttemptId, node: &NodeName, run: &Run) {
        if self.is_mixed() && run.gpus.contains_key(node) {
            let held = run.gpus_on(node).into_iter().flatten();
            let fit = held.filter(|gpu| !self.unfit_gpus.contains(*gpu));
            let held = self.hardware.sorted(fit);
            self.held.insert(attempt.clone(), held);
        }
    }

    /// Whether it has GPUs of several kinds.
    pub(crate) fn is_mixed(&self) -> bool {
        self.hardware.gpus.len() > 1
    }

    /// The platforms of each kind of GPU that it has, or of the host itself where it has none.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Platforms> {
        self.hardware.gpus.keys()
    }

    /// Every platform that it is of.
    pub(crate) fn platforms(&self) -> BTreeSet<&PlatformName> {
        self.hardware.gpus.keys().flatten().collect()
    }

    /// Whether a view sees it.
    pub(crate) fn is_of(&self, view: View<'_>) -> bool {
        view.is_none() || self.hardware.gpus.keys().any(|kind| sees(view, kind))
    }

    /// What it has for a view; nothing where it is not of it.
    pub(crate) fn capacity_seen(&self, view: View<'_>) -> HostUnits {
        match view {
            None => self.capacity,
            Some(_) if !self.is_of(view) => HostUnits::default(),
            Some(platform) if self.is_mixed() => {
                let gpus = of_platform(&self.hardware.gpus, platform);
                self.capacity.with_gpus(gpus)
            }
            Some(_) => self.capacity,
        }
    }

    /// The part of that which can be granted, however full it is.
    pub(crate) fn fit_seen(&self, view: View<'_>) -> HostUnits {
        let unfit = match view.filter(|_| self.is_mixed()) {
            None => self.unfit,
            Some(platform) => {
                let unfit = self.hardware.sorted(self.unfit_gpus.iter());
                self.unfit.with_gpus(of_platform(&unfit, platform))
            }
        };
        self.capacity_seen(view).less(unfit)
    }

    /// What would be free of it for a view if `freed`, as the view sees it, were given back.
    pub(crate) fn free_seen(&self, view: View<'_>, freed: HostUnits) -> HostUnits {
        let used = self.taken_seen(view).less(freed);
        self.fit_seen(view).less(used)
    }

    /// What is granted of what it has and is fit, as a view sees it.
    pub(crate) fn taken_seen(&self, view: View<'_>) -> HostUnits {
        let taken = self.used.less(self.vanished);
        match view.filter(|_| self.is_mixed()) {
            None => taken,
            Some(platform) => {
                let held = self.held.values();
                taken.with_gpus(held.map(|gpus| of_platform(gpus, platform)).sum())
            }
        }
    }

    /// GPUs that are fit and not granted, by kind.
    pub(crate) fn free_kinds(&self) -> GpusOf {
        let mut free = self.hardware.gpus.clone();
        let unfit = self.hardware.sorted(self.unfit_gpus.iter());
        for (kind, gpus) in self.held.values().flatten().chain(&unfit) {
            if let Some(free) = free.get_mut(kind) {
                *free = free.saturating_sub(*gpus);
            }
        }
        free
    }

    /// What comes free for a view when a run gives back `each`.
    pub(crate) fn given_back(
        &self,
        view: View<'_>,
        attempt: &AttemptId,
        each: HostUnits,
    ) -> HostUnits {
        let back = each.less(self.stuck.get(attempt).copied().unwrap_or_default());
        let held = self.held.get(attempt);
        match view.filter(|_| self.is_mixed()).zip(held) {
            Some((platform, held)) => back.with_gpus(of_platform(held, platform).min(each.gpus())),
            // It sees all, or that run is only supposed.
            None => back,
        }
    }
}

impl Pool {
    /// The hosts of a view.
    pub(crate) fn shelf(&self, view: View<'_>) -> &Shelf {
        match view {
            None => &self.all,
            Some(platform) => self.shelves.get(platform).unwrap_or(&self.empty),
        }
    }

    /// The platforms that its hosts are of.
    pub fn platforms(&self) -> impl Iterator<Item = &PlatformName> {
        self.shelves.keys()
    }

    /// The platforms that a request may be on here, the one that it likes best first; none of them: any.
    pub fn wanted<'a>(&'a self, request: &'a Request) -> &'a [PlatformName] {
        match request.takes_default {
            true => self.terms().default_platform.as_slice(),
            false => &request.platforms,
        }
    }

    /// Whether a request waits here for the first host of a platform.
    pub fn awaits_platform(&self, request: &Request) -> bool {
        let awaited = &self.terms().awaited_platforms;
        let mut wanted = self.wanted(request).iter();
        wanted.any(|it| awaited.contains(it) && !self.has(it))
    }

    /// The hosts that could hold a request were they empty, on the platforms that it asks for: those first that it likes
    /// best, and of these the tightest. A host of several platforms comes once for each.
    pub fn large_hosts<'a>(
        &'a self,
        request: &'a Request,
    ) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        let wanted = self.wanted(request).iter().map(Some);
        let any = self.wanted(request).is_empty().then_some(None);
        let shelves = any.into_iter().chain(wanted).map(|view| self.shelf(view));
        let large = shelves.flat_map(|shelf| shelf.known.covering(request.each));
        large.map(|(node, _)| node)
    }

    /// The host that comes closest to holding a request if it were empty, of the platform that the request likes best: the
    /// first key that is missing, what is asked and what the host has.
    pub fn closest(&self, request: &Request) -> Option<(&NodeName, &'static str, u64, u64)> {
        let view = self.wanted(request).first();
        let known = &self.shelf(view).known;
        let (node, has) = known.closest(request.each, |_| true)?;
        let (key, asked, has) = has.first_shortage(request.each)?;
        Some((node, key, asked, has))
    }

    /// Whether a host of it is of a platform.
    pub fn has(&self, platform: &PlatformName) -> bool {
        self.shelves.contains_key(platform)
    }

    /// The views of a request, the one that it likes best first.
    pub(crate) fn views<'a>(&'a self, request: &'a Request) -> Vec<View<'a>> {
        if request.resumes.is_some() {
            // What was frozen has its own host and its own GPUs, whatever these are.
            return Vec::from([None]);
        }
        let wanted = self.wanted(request);
        if !wanted.is_empty() {
            return wanted.iter().map(Some).collect();
        }
        // A gang that takes any is on hosts of one all the same.
        let several = self.shelves.len() > 1 && request.hosts > 1;
        match several {
            true => self.one_at_a_time(request.each.gpus() == 0),
            false => Vec::from([None]),
        }
    }

    /// Each platform of the pool; for who needs no GPUs that of hosts without any first.
    fn one_at_a_time(&self, without_gpus: bool) -> Vec<View<'_>> {
        let mut names: Vec<&PlatformName> = self.shelves.keys().collect();
        if without_gpus {
            names.sort_by_key(|name| name.as_str() != platform::CPU);
        }
        names.into_iter().map(Some).collect()
    }
}

impl Market {
    /// What is promised of a host to others than `step`: all of it, and the firm part, which is kept from what is granted
    /// around a head as well.
    pub fn promised_on(&self, node: &NodeName, step: &StepId) -> [KeptOn; 2] {
        let Some(pool) = self.homes.get(node).and_then(|home| self.pools.get(home)) else {
            return [KeptOn::default(), KeptOn::default()];
        };
        let mut firm = Kept::default();
        let promised = pool.firm.iter().filter(|other| *other != step);
        promised.for_each(|other| self.keep_for(other, &mut firm));
        let mut all = firm.clone();
        let head = pool.soft.iter().filter(|other| *other != step);
        head.for_each(|other| self.keep_for(other, &mut all));
        [all.take_on(node), firm.take_on(node)]
    }

    fn keep_for(&self, step: &StepId, kept: &mut Kept) {
        if let (Some(request), Some(nomination)) = (self.request(step), self.nomination(step)) {
            kept.add(self, request, nomination);
        }
    }
}

impl<'a> Before<'a> {
    /// The request before its pool once for each of its views, the one that it likes best first.
    pub(crate) fn each_view(&self) -> impl Iterator<Item = Before<'a>> + use<'a> {
        let before = *self;
        let views = self.pool.views(self.request).into_iter();
        views.map(move |view| before.seeing(view))
    }

    /// The same by another view.
    pub(crate) fn seeing(&self, view: View<'a>) -> Self {
        Self { view, ..*self }
    }

    pub(crate) fn shelf(&self) -> &'a Shelf {
        self.pool.shelf(self.view)
    }

    /// What comes free of a host for the request when a run gives back `each`.
    pub(crate) fn given_back(
        &self,
        node: &NodeName,
        attempt: &AttemptId,
        each: HostUnits,
    ) -> HostUnits {
        let host = self.pool.hosts().get(node);
        host.map_or(each, |host| host.given_back(self.view, attempt, each))
    }
}

pub(super) fn first_view<'a>(pool: &'a Pool, request: &'a Request) -> View<'a> {
    pool.views(request).into_iter().next().flatten()
}
