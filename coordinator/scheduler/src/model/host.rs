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

use crate::model::host_ranking::HostRanking;
use crate::model::request::Run;
use crate::model::resources::HostResources;

/// A platform; none is all of them.
pub(crate) type PlatformFilter<'a> = Option<&'a PlatformName>;

/// The platforms that a GPU is of.
pub type PlatformSet = BTreeSet<PlatformName>;

/// How many GPUs of each kind.
pub type GpusByKind = BTreeMap<PlatformSet, u64>;

/// Whether a view sees GPUs of a kind.
pub fn matches_platform(platform: PlatformFilter<'_>, kind: &PlatformSet) -> bool {
    platform.is_none_or(|platform| kind.contains(platform))
}

/// Those of a platform among them.
fn gpus_of_platform(gpus: &GpusByKind, platform: &PlatformName) -> u64 {
    let kinds = gpus.iter().filter(|(kind, _)| kind.contains(platform));
    kinds.map(|(_, gpus)| gpus).sum()
}

/// The hosts of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostIndex {
    /// All remembered hosts, by capacity.
    pub(crate) by_capacity: HostRanking,
    /// Those that take work, by what of them can be granted.
    pub(crate) by_usable: HostRanking,
    /// Those that take work, by what is free.
    pub(crate) by_free: HostRanking,
}

impl HostIndex {
    pub(crate) fn insert(&mut self, node: &NodeName, host: &Host, platform: PlatformFilter<'_>) {
        self.by_capacity
            .insert(node.clone(), host.capacity_for(platform));
        if host.schedulable {
            let free = host.free_for(platform, HostResources::default());
            self.by_usable
                .insert(node.clone(), host.usable_for(platform));
            self.by_free.insert(node.clone(), free);
        }
    }

    pub(crate) fn remove(&mut self, node: &NodeName, host: &Host, platform: PlatformFilter<'_>) {
        let free = host.free_for(platform, HostResources::default());
        self.by_capacity.remove(node, host.capacity_for(platform));
        self.by_usable.remove(node, host.usable_for(platform));
        self.by_free.remove(node, free);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_capacity.is_empty()
    }
}

/// Of which platforms a host is, and its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// GPUs by kind; one with none where the host has none.
    pub gpus: GpusByKind,
    /// Of which kind each GPU is. Said of hosts with several alone: on others it is clear.
    pub(crate) kinds: BTreeMap<String, PlatformSet>,
}

impl Hardware {
    /// A host with GPUs of one kind, or without any.
    pub fn uniform(kind: PlatformSet, gpus: u64) -> Self {
        Self {
            gpus: GpusByKind::from([(kind, gpus)]),
            kinds: BTreeMap::new(),
        }
    }

    /// A host with these GPUs.
    pub fn from_gpus(gpus: impl Iterator<Item = (String, PlatformSet)>) -> Self {
        let mut hardware = Self {
            gpus: GpusByKind::new(),
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
    pub(crate) fn count_by_kind<'a>(&self, gpus: impl Iterator<Item = &'a String>) -> GpusByKind {
        let mut count_by_kind = GpusByKind::new();
        for kind in gpus.filter_map(|gpu| self.kinds.get(gpu)) {
            *count_by_kind.entry(kind.clone()).or_default() += 1;
        }
        count_by_kind
    }

    /// Of which kind a GPU of it is.
    pub fn kind_of(&self, gpu: &str) -> Option<&PlatformSet> {
        match self.kinds.get(gpu) {
            Some(kind) => Some(kind),
            None => self.gpus.keys().next().filter(|_| self.gpus.len() == 1),
        }
    }

    /// A host of which no more is known than how many GPUs it has.
    pub fn of_unknown_model(gpus: u64) -> Self {
        let platform = match gpus {
            0 => platform::cpu(),
            _ => platform::from_slug(platform::GENERIC_GPU),
        };
        Self::uniform(PlatformSet::from([platform]), gpus)
    }
}

/// A host of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// What it has.
    pub(crate) capacity: HostResources,
    /// Whether it takes work.
    pub(crate) schedulable: bool,
    /// What is granted of it.
    pub(crate) used: HostResources,
    /// The part of what it has that nobody is granted.
    pub(crate) unfit: HostResources,
    /// The GPUs among it.
    pub(crate) unfit_gpus: BTreeSet<String>,
    /// The part of what is granted that the host no longer has or that is unfit: it takes nothing from what is there.
    pub(crate) lost: HostResources,
    /// Whose that is.
    pub(crate) lost_by_run: BTreeMap<AttemptId, HostResources>,
    /// What holds units of it.
    pub(crate) runs: BTreeSet<AttemptId>,
    /// Of which platforms it is.
    pub(crate) hardware: Hardware,
    /// What each run holds of the GPUs that are fit. Said of hosts with several platforms alone: on others it is clear.
    pub(crate) gpus_by_run: BTreeMap<AttemptId, GpusByKind>,
}

/// How large a host is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInventory {
    /// What it has.
    pub capacity: HostResources,
    /// Of which platforms it is.
    pub hardware: Hardware,
    /// The part of its capacity that nobody is granted.
    pub unfit: HostResources,
    /// The GPUs among it.
    pub unfit_gpus: BTreeSet<String>,
    /// What runs hold that it no longer has or that is unfit.
    pub lost_by_run: BTreeMap<AttemptId, HostResources>,
}

impl HostInventory {
    /// One of which all can be granted.
    pub fn healthy(capacity: HostResources, hardware: Hardware) -> Self {
        Self {
            capacity,
            hardware,
            ..Self::default()
        }
    }
}

impl Host {
    /// What is not granted of it; nothing of a key of which more is granted than it has.
    pub(crate) fn free(&self) -> HostResources {
        self.free_for(None, HostResources::default())
    }
}

impl Host {
    pub(crate) fn set_inventory(&mut self, inventory: HostInventory) {
        let lost_by_run = inventory.lost_by_run.values();
        self.lost = lost_by_run.fold(HostResources::default(), |sum, units| sum.plus(*units));
        self.capacity = inventory.capacity;
        self.hardware = inventory.hardware;
        self.unfit = inventory.unfit;
        self.unfit_gpus = inventory.unfit_gpus;
        self.lost_by_run = inventory.lost_by_run;
    }

    /// Counts what a run holds of its GPUs by kind, where they are of several.
    pub(crate) fn index_gpus(&mut self, attempt: &AttemptId, node: &NodeName, run: &Run) {
        if self.is_mixed() && run.gpus.contains_key(node) {
            let held = run.gpus_on(node).into_iter().flatten();
            let fit = held.filter(|gpu| !self.unfit_gpus.contains(*gpu));
            let held = self.hardware.count_by_kind(fit);
            self.gpus_by_run.insert(attempt.clone(), held);
        }
    }

    /// Whether it has GPUs of several kinds.
    pub(crate) fn is_mixed(&self) -> bool {
        self.hardware.gpus.len() > 1
    }

    /// The platforms of each kind of GPU that it has, or of the host itself where it has none.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &PlatformSet> {
        self.hardware.gpus.keys()
    }

    /// Every platform that it is of.
    pub(crate) fn platforms(&self) -> BTreeSet<&PlatformName> {
        self.hardware.gpus.keys().flatten().collect()
    }

    /// Whether a view sees it.
    pub(crate) fn has_platform(&self, platform: PlatformFilter<'_>) -> bool {
        platform.is_none()
            || self
                .hardware
                .gpus
                .keys()
                .any(|kind| matches_platform(platform, kind))
    }

    /// What it has for a view; nothing where it is not of it.
    pub(crate) fn capacity_for(&self, platform: PlatformFilter<'_>) -> HostResources {
        match platform {
            None => self.capacity,
            Some(_) if !self.has_platform(platform) => HostResources::default(),
            Some(platform) if self.is_mixed() => {
                let gpus = gpus_of_platform(&self.hardware.gpus, platform);
                self.capacity.with_gpus(gpus)
            }
            Some(_) => self.capacity,
        }
    }

    /// The part of that which can be granted, however full it is.
    pub(crate) fn usable_for(&self, platform: PlatformFilter<'_>) -> HostResources {
        let unfit = match platform.filter(|_| self.is_mixed()) {
            None => self.unfit,
            Some(platform) => {
                let unfit = self.hardware.count_by_kind(self.unfit_gpus.iter());
                self.unfit.with_gpus(gpus_of_platform(&unfit, platform))
            }
        };
        self.capacity_for(platform).less(unfit)
    }

    /// What would be free of it for a view if `freed`, as the view sees it, were given back.
    pub(crate) fn free_for(
        &self,
        platform: PlatformFilter<'_>,
        freed: HostResources,
    ) -> HostResources {
        let used = self.used_for(platform).less(freed);
        self.usable_for(platform).less(used)
    }

    /// What is granted of what it has and is fit, as a view sees it.
    pub(crate) fn used_for(&self, platform: PlatformFilter<'_>) -> HostResources {
        let taken = self.used.less(self.lost);
        match platform.filter(|_| self.is_mixed()) {
            None => taken,
            Some(platform) => {
                let held = self.gpus_by_run.values();
                taken.with_gpus(held.map(|gpus| gpus_of_platform(gpus, platform)).sum())
            }
        }
    }

    /// GPUs that are fit and not granted, by kind.
    pub(crate) fn free_gpus_by_kind(&self) -> GpusByKind {
        let mut free = self.hardware.gpus.clone();
        let unfit = self.hardware.count_by_kind(self.unfit_gpus.iter());
        for (kind, gpus) in self.gpus_by_run.values().flatten().chain(&unfit) {
            if let Some(free) = free.get_mut(kind) {
                *free = free.saturating_sub(*gpus);
            }
        }
        free
    }

    /// What comes free for a view when a run gives back `each`.
    pub(crate) fn released_for(
        &self,
        platform: PlatformFilter<'_>,
        attempt: &AttemptId,
        each: HostResources,
    ) -> HostResources {
        let back = each.less(self.lost_by_run.get(attempt).copied().unwrap_or_default());
        let held = self.gpus_by_run.get(attempt);
        match platform.filter(|_| self.is_mixed()).zip(held) {
            Some((platform, held)) => {
                back.with_gpus(gpus_of_platform(held, platform).min(each.gpus()))
            }
            // It sees all, or that run is only supposed.
            None => back,
        }
    }
}
