//! Platforms: hosts and GPUs by what kind of hardware they are. A GPU may be of several platforms, and those of a host that
//! are of the same ones are of one kind. A host is of every platform of which it has a GPU, or, where it has none, of those
//! that its pool says. A request that asks for a platform sees the hosts of that platform alone, and of their GPUs those of
//! it; one that asks for any sees all, and a gang that does is still on hosts of one platform, GPUs or no.
//!
//! What is seen is told by a view: the platform, or none for all. Hosts are ranked for each view by themselves, so that
//! whoever asks for a platform walks past no other hosts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use sluice_common::id::{AttemptId, NodeName, PlatformName};
use sluice_common::platform;

use crate::model::ranks::Ranks;
use crate::model::request::Run;
use crate::model::units::HostUnits;

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
            _ => platform::from_slug(platform::GENERIC_GPU),
        };
        Self::uniform(Platforms::from([platform]), gpus)
    }
}

/// A host of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// What it has.
    pub(crate) capacity: HostUnits,
    /// Whether it takes work.
    pub(crate) open: bool,
    /// What is granted of it.
    pub(crate) used: HostUnits,
    /// The part of what it has that nobody is granted.
    pub(crate) unfit: HostUnits,
    /// The GPUs among it.
    pub(crate) unfit_gpus: BTreeSet<String>,
    /// The part of what is granted that the host no longer has or that is unfit: it takes nothing from what is there.
    pub(crate) vanished: HostUnits,
    /// Whose that is.
    pub(crate) stuck: BTreeMap<AttemptId, HostUnits>,
    /// What holds units of it.
    pub(crate) runs: BTreeSet<AttemptId>,
    /// Of which platforms it is.
    pub(crate) hardware: Hardware,
    /// What each run holds of the GPUs that are fit. Said of hosts with several platforms alone: on others it is clear.
    pub(crate) held: BTreeMap<AttemptId, GpusOf>,
}

/// How large a host is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// What it has.
    pub capacity: HostUnits,
    /// Of which platforms it is.
    pub hardware: Hardware,
    /// The part of its capacity that nobody is granted.
    pub unfit: HostUnits,
    /// The GPUs among it.
    pub unfit_gpus: BTreeSet<String>,
    /// What runs hold that it no longer has or that is unfit.
    pub stuck: BTreeMap<AttemptId, HostUnits>,
}

impl Size {
    /// One of which all can be granted.
    pub fn sound(capacity: HostUnits, hardware: Hardware) -> Self {
        Self {
            capacity,
            hardware,
            ..Self::default()
        }
    }
}

impl Host {
    /// What is not granted of it; nothing of a key of which more is granted than it has.
    pub(crate) fn free(&self) -> HostUnits {
        self.free_seen(None, HostUnits::default())
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
