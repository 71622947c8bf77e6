//! Hosts and their platforms. A GPU can be of several platforms; GPUs of one host of the same class (whole, or slices of
//! one profile) with the same set of platforms are of one kind. A host has every platform that one of its GPUs has, or,
//! without GPUs, those that its pool assigns. A request that names a platform sees only the hosts of that platform and
//! their GPUs of that platform; a request that names none sees all. A request for GPUs sees only those of its class: no
//! step is granted whole GPUs and slices together. A gang always runs on hosts of one platform.
//!
//! Hosts are indexed for each platform, so that a request for one platform does not go through other hosts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::MGPU_A_GPU;
use sluice_common::id::{AttemptId, NodeName, PlatformName};
use sluice_common::image::ImageKind;
use sluice_common::mig::GpuClass;
use sluice_common::platform;

use crate::model::host_ranking::HostRanking;
use crate::model::request::Run;
use crate::model::resources::HostResources;

/// The GPUs and hosts that a request may be granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardwareFilter<'a> {
    /// Class of the GPUs; `None` means all, for requests without GPUs.
    pub class: Option<&'a GpuClass>,
    /// The platform to look at; `None` means all.
    pub platform: Option<&'a PlatformName>,
}

impl HardwareFilter<'_> {
    /// The filter that everything matches.
    pub const ANY: Self = Self {
        class: None,
        platform: None,
    };

    pub(crate) fn is_any(self) -> bool {
        self == Self::ANY
    }

    /// Whether GPUs of a kind match.
    pub fn matches(self, kind: &GpuKind) -> bool {
        self.class.is_none_or(|class| *class == kind.class)
            && self.platform.is_none_or(|it| kind.platforms.contains(it))
    }

    /// Thousandths of a GPU that match.
    pub(crate) fn count(self, gpus: &GpusByKind) -> u64 {
        let kinds = gpus.iter().filter(|(kind, _)| self.matches(kind));
        kinds.map(|(_, gpus)| gpus).sum()
    }
}

/// All platforms of one GPU.
pub type PlatformSet = BTreeSet<PlatformName>;

/// Kind of a GPU on its host: GPUs of one kind are alike for every request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuKind {
    pub class: GpuClass,
    pub platforms: PlatformSet,
}

/// Thousandths of a GPU of each kind.
pub type GpusByKind = BTreeMap<GpuKind, u64>;

/// The hosts of one platform, or all, in three rankings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostIndex {
    /// All hosts, by capacity.
    pub(crate) by_capacity: HostRanking,
    /// Schedulable hosts, by what can be granted at all.
    pub(crate) by_usable: HostRanking,
    /// Schedulable hosts, by what is free.
    pub(crate) by_free: HostRanking,
    /// Those of them without GPUs.
    pub(crate) without_gpus: HostRanking,
}

impl HostIndex {
    pub(crate) fn insert(&mut self, node: &NodeName, host: &Host, filter: HardwareFilter<'_>) {
        self.by_capacity
            .insert(node.clone(), host.capacity_for(filter));
        if host.schedulable {
            let free = host.free_for(filter, HostResources::default());
            self.by_usable.insert(node.clone(), host.usable_for(filter));
            self.by_free.insert(node.clone(), free);
            if !host.has_gpus() {
                self.without_gpus.insert(node.clone(), free);
            }
        }
    }

    pub(crate) fn remove(&mut self, node: &NodeName, host: &Host, filter: HardwareFilter<'_>) {
        let free = host.free_for(filter, HostResources::default());
        self.by_capacity.remove(node, host.capacity_for(filter));
        self.by_usable.remove(node, host.usable_for(filter));
        self.by_free.remove(node, free);
        self.without_gpus.remove(node, free);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_capacity.is_empty()
    }
}

/// The GPUs of a host and their platforms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// GPUs by kind; a single entry with 0 for a host without any.
    pub gpus: GpusByKind,
    /// Thousandths of the GPUs that are cut into its slices, beyond what those slices count for.
    uncounted: u64,
    /// Kind of each GPU, by UUID. Filled only if the host has several kinds.
    pub(crate) kinds: BTreeMap<String, GpuKind>,
}

impl Hardware {
    /// A host whose GPUs are all whole and of the same platforms, or that has none.
    pub fn uniform(platforms: PlatformSet, gpus: u64) -> Self {
        let class = GpuClass::Whole;
        let kind = GpuKind { class, platforms };
        Self {
            gpus: GpusByKind::from([(kind, gpus.saturating_mul(MGPU_A_GPU))]),
            uncounted: 0,
            kinds: BTreeMap::new(),
        }
    }

    /// A host with these GPUs and slices, which are on `whole` GPUs.
    pub fn from_gpus(gpus: impl Iterator<Item = (String, GpuKind)>, whole: u64) -> Self {
        let mut hardware = Self {
            gpus: GpusByKind::new(),
            uncounted: 0,
            kinds: gpus.collect(),
        };
        for kind in hardware.kinds.values() {
            *hardware.gpus.entry(kind.clone()).or_default() += kind.class.mgpu();
        }
        let counted = hardware.gpus.values().sum();
        let all = whole.saturating_mul(MGPU_A_GPU);
        hardware.uncounted = all.saturating_sub(counted);
        if hardware.gpus.len() <= 1 {
            hardware.kinds = BTreeMap::new();
        }
        hardware
    }

    /// Counts the given GPUs by kind.
    pub(crate) fn count_by_kind<'a>(&self, gpus: impl Iterator<Item = &'a String>) -> GpusByKind {
        let mut count_by_kind = GpusByKind::new();
        for kind in gpus.filter_map(|gpu| self.kinds.get(gpu)) {
            *count_by_kind.entry(kind.clone()).or_default() += kind.class.mgpu();
        }
        count_by_kind
    }

    /// Thousandths of a GPU that these GPUs count for.
    pub fn mgpu<'a>(&self, gpus: impl Iterator<Item = &'a String>) -> u64 {
        let kinds = gpus.map(|gpu| self.kind_of(gpu));
        let mgpu = kinds.map(|kind| kind.map_or(MGPU_A_GPU, |kind| kind.class.mgpu()));
        mgpu.sum()
    }

    /// The kind of one GPU.
    pub fn kind_of(&self, gpu: &str) -> Option<&GpuKind> {
        match self.kinds.get(gpu) {
            Some(kind) => Some(kind),
            None => self.gpus.keys().next().filter(|_| self.gpus.len() == 1),
        }
    }

    /// A host of which only the number of GPUs is known.
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
    pub(crate) capacity: HostResources,
    /// Whether the host takes new work.
    pub(crate) schedulable: bool,
    /// Resources granted on the host.
    pub(crate) used: HostResources,
    /// The part of the capacity that cannot be granted.
    pub(crate) unfit: HostResources,
    /// The GPUs in `unfit`.
    pub(crate) unfit_gpus: BTreeSet<String>,
    /// The part of `used` that the host no longer has or that is unfit; it takes nothing from what is there.
    pub(crate) lost: HostResources,
    /// Split of `lost` by run.
    pub(crate) lost_by_run: BTreeMap<AttemptId, HostResources>,
    /// Runs that hold resources of the host.
    pub(crate) runs: BTreeSet<AttemptId>,
    pub(crate) hardware: Hardware,
    /// Whether the host may have GPUs that it does not know yet.
    pub(crate) gpus_unknown: bool,
    /// Values of the levels of the topology, the widest first, up to the first level that the host has no label of.
    pub(crate) domain_path: Vec<String>,
    /// Forms of images that the host can run.
    pub(crate) image_forms: BTreeSet<ImageKind>,
    /// Fit GPUs that each run holds, by kind. Filled only if the host has several kinds.
    pub(crate) gpus_by_run: BTreeMap<AttemptId, GpusByKind>,
}

/// A host and its name.
pub(crate) type NamedHost<'a> = (&'a NodeName, &'a Host);

/// The paths of a domain and of all domains around it, the widest first.
pub(crate) fn prefixes(path: &[String]) -> impl Iterator<Item = &[String]> {
    (1..=path.len()).map(|levels| &path[..levels])
}

/// The resources of a host, and the part of them that can be granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInventory {
    pub capacity: HostResources,
    pub hardware: Hardware,
    /// Whether the host may have GPUs that it does not know yet.
    pub gpus_unknown: bool,
    /// The part of the capacity that cannot be granted.
    pub unfit: HostResources,
    /// The GPUs in `unfit`.
    pub unfit_gpus: BTreeSet<String>,
    /// Values of the levels of the topology, the widest first, up to the first level that the host has no label of.
    pub domain_path: Vec<String>,
    /// Forms of images that the host can run.
    pub image_forms: BTreeSet<ImageKind>,
    /// Resources that runs hold and that the host no longer has or that are unfit.
    pub lost_by_run: BTreeMap<AttemptId, HostResources>,
}

impl HostInventory {
    /// A host of which everything can be granted.
    pub fn healthy(capacity: HostResources, hardware: Hardware) -> Self {
        Self {
            capacity,
            hardware,
            ..Self::default()
        }
    }
}

impl Host {
    /// Resources that are not granted; 0 if more is granted than the host has.
    pub(crate) fn free(&self) -> HostResources {
        self.free_for(HardwareFilter::ANY, HostResources::default())
    }
}

impl Host {
    pub(crate) fn set_inventory(&mut self, inventory: HostInventory) {
        let lost_by_run = inventory.lost_by_run.values();
        self.lost = lost_by_run.fold(HostResources::default(), |sum, units| sum.plus(*units));
        self.capacity = inventory.capacity;
        self.hardware = inventory.hardware;
        self.gpus_unknown = inventory.gpus_unknown;
        self.unfit = inventory.unfit;
        self.unfit_gpus = inventory.unfit_gpus;
        self.lost_by_run = inventory.lost_by_run;
        self.domain_path = inventory.domain_path;
        self.image_forms = inventory.image_forms;
    }

    /// Whether the host has this inventory and takes new work or not, as is asked, so that nothing changes. On a host with
    /// several kinds of GPUs those that runs hold may have changed.
    pub(crate) fn is_known_as(&self, inventory: &HostInventory, open: bool) -> bool {
        let HostInventory {
            capacity,
            hardware,
            gpus_unknown,
            unfit,
            unfit_gpus,
            domain_path,
            image_forms,
            lost_by_run,
        } = inventory;
        self.schedulable == open
            && !self.is_mixed()
            && self.capacity == *capacity
            && self.unfit == *unfit
            && self.gpus_unknown == *gpus_unknown
            && self.unfit_gpus == *unfit_gpus
            && self.lost_by_run == *lost_by_run
            && self.domain_path == *domain_path
            && self.image_forms == *image_forms
            && self.hardware == *hardware
    }

    /// Whether the host can run images of a form; `None` is the host itself.
    pub(crate) fn runs_image(&self, form: Option<ImageKind>) -> bool {
        form.is_none_or(|form| self.image_forms.contains(&form))
    }

    /// The paths of the domains that the host is in, the widest first.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &[String]> {
        prefixes(&self.domain_path)
    }

    /// Counts the GPUs that a run holds by kind, if the host has several kinds.
    pub(crate) fn index_gpus(&mut self, attempt: &AttemptId, node: &NodeName, run: &Run) {
        if self.is_mixed() && run.gpus.contains_key(node) {
            let held = run.gpus_on(node).into_iter().flatten();
            let fit = held.filter(|gpu| !self.unfit_gpus.contains(*gpu));
            let held = self.hardware.count_by_kind(fit);
            self.gpus_by_run.insert(attempt.clone(), held);
        }
    }

    pub(crate) fn has_gpus(&self) -> bool {
        self.capacity.mgpu() > 0
    }

    /// Thousandths of a GPU among which the host's CPU, memory and disk are divided: those of all its GPUs, also if
    /// they are cut into slices that count for less.
    pub(crate) fn carrying(&self) -> u64 {
        self.capacity.mgpu() + self.hardware.uncounted
    }

    /// Whether the host has GPUs of several kinds.
    pub(crate) fn is_mixed(&self) -> bool {
        self.hardware.gpus.len() > 1
    }

    /// Each kind of GPU, or of the host itself if it has none.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &GpuKind> {
        self.hardware.gpus.keys()
    }

    /// All platforms of the host's GPUs of a class, or of all; without GPUs, of the host itself.
    pub(crate) fn platforms(&self, class: Option<&GpuClass>) -> BTreeSet<&PlatformName> {
        let filter = HardwareFilter {
            class,
            platform: None,
        };
        let kinds = self.kinds().filter(|kind| filter.matches(kind));
        kinds.flat_map(|kind| &kind.platforms).collect()
    }

    /// Whether the host has slices of GPUs.
    pub(crate) fn has_slices(&self) -> bool {
        self.kinds().any(|kind| kind.class != GpuClass::Whole)
    }

    /// Whether the host matches a filter.
    pub(crate) fn is_seen_by(&self, filter: HardwareFilter<'_>) -> bool {
        filter.is_any() || self.kinds().any(|kind| filter.matches(kind))
    }

    /// Capacity for a filter; nothing if the host does not match.
    pub(crate) fn capacity_for(&self, filter: HardwareFilter<'_>) -> HostResources {
        if filter.is_any() {
            return self.capacity;
        }
        match (self.is_seen_by(filter), self.is_mixed()) {
            (false, _) => HostResources::default(),
            (true, true) => self.capacity.with_mgpu(filter.count(&self.hardware.gpus)),
            (true, false) => self.capacity,
        }
    }

    /// Whether a filter may tell some GPUs of the host from others.
    fn is_split_by(&self, filter: HardwareFilter<'_>) -> bool {
        !filter.is_any() && self.is_mixed()
    }

    /// The part of that capacity that can be granted, however full the host is.
    pub(crate) fn usable_for(&self, filter: HardwareFilter<'_>) -> HostResources {
        let unfit = match self.is_split_by(filter) {
            false => self.unfit,
            true => {
                let unfit = self.hardware.count_by_kind(self.unfit_gpus.iter());
                self.unfit.with_mgpu(filter.count(&unfit))
            }
        };
        self.capacity_for(filter).less(unfit)
    }

    /// Resources that would be free for a filter if `freed` were released.
    pub(crate) fn free_for(
        &self,
        filter: HardwareFilter<'_>,
        freed: HostResources,
    ) -> HostResources {
        let used = self.used_for(filter).less(freed);
        self.usable_for(filter).less(used)
    }

    /// Resources granted for a filter, without lost and unfit ones.
    pub(crate) fn used_for(&self, filter: HardwareFilter<'_>) -> HostResources {
        let taken = self.used.less(self.lost);
        match self.is_split_by(filter) {
            false => taken,
            true => {
                let held = self.gpus_by_run.values();
                taken.with_mgpu(held.map(|gpus| filter.count(gpus)).sum())
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

    /// Resources that become free for a filter when a run releases `each`.
    pub(crate) fn released_for(
        &self,
        filter: HardwareFilter<'_>,
        attempt: &AttemptId,
        each: HostResources,
    ) -> HostResources {
        let back = each.less(self.lost_by_run.get(attempt).copied().unwrap_or_default());
        let held = self.gpus_by_run.get(attempt);
        match held.filter(|_| self.is_split_by(filter)) {
            Some(held) => back.with_mgpu(filter.count(held).min(each.mgpu())),
            // All GPUs match, or the run is hypothetical.
            None => back,
        }
    }
}
