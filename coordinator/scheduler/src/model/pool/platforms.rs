//! The hosts of a pool by platform, and which of them a request may run on.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PlatformName, PoolName};
use sluice_common::mig::GpuClass;
use sluice_common::platform;

use crate::model::guard::{Denial, Guard};
use crate::model::host::{GpuKind, HardwareFilter, Host, HostIndex};
use crate::model::pool::Pool;
use crate::model::pool::hardware_index::HardwareIndex;
use crate::model::pool::host_set::Domain;
use crate::model::request::Request;

impl Pool {
    /// The hosts that match a filter.
    pub(crate) fn host_index(&self, filter: HardwareFilter<'_>) -> &HostIndex {
        self.all.index(filter).unwrap_or(&self.empty)
    }

    /// The hosts of a domain that match a filter.
    pub(crate) fn host_index_of<'a>(
        &'a self,
        domain: Domain<'a>,
        filter: HardwareFilter<'_>,
    ) -> &'a HostIndex {
        domain.hosts.index(filter).unwrap_or(&self.empty)
    }

    /// The class of GPUs that a request may be granted here; `None` if it asks for no GPU, or if it asks for whole ones
    /// and there are only those.
    fn class_for<'a>(&self, request: &'a Request) -> Option<&'a GpuClass> {
        let class = request.gpu_class()?;
        let is_only_one = *class == GpuClass::Whole && !self.all.has_slices();
        (!is_only_one).then_some(class)
    }

    /// The filter of a request for a platform, or for any.
    pub(crate) fn filter<'a>(
        &self,
        request: &'a Request,
        platform: Option<&'a PlatformName>,
    ) -> HardwareFilter<'a> {
        // A frozen run resumes on its own host and GPUs, whatever they are.
        let is_new = request.resumes.is_none();
        HardwareFilter {
            class: self.class_for(request).filter(|_| is_new),
            platform: platform.filter(|_| is_new),
        }
    }

    /// Number of GPUs of each class on its hosts, of these platforms; empty means of any. Those that cannot be granted
    /// count.
    pub fn gpus_by_class(&self, platforms: &[PlatformName]) -> BTreeMap<&GpuClass, u64> {
        let mut found = BTreeMap::new();
        let kinds = self.hosts().values().flat_map(|host| &host.hardware.gpus);
        let is_of = |kind: &GpuKind| {
            platforms.is_empty() || platforms.iter().any(|it| kind.platforms.contains(it))
        };
        for (kind, mgpu) in kinds.filter(|(kind, mgpu)| **mgpu > 0 && is_of(kind)) {
            *found.entry(&kind.class).or_default() += mgpu / kind.class.mgpu();
        }
        found
    }

    /// Thousandths of a GPU of a class on its hosts.
    pub(crate) fn gpus_of_class(&self, class: &GpuClass) -> u64 {
        self.all
            .of_class(Some(class))
            .map_or(0, HardwareIndex::mgpu)
    }

    /// Whether one of its hosts has GPUs of a class.
    pub(crate) fn has_class(&self, class: &GpuClass) -> bool {
        self.all.of_class(Some(class)).is_some()
    }

    /// The platforms of its hosts.
    pub fn platforms(&self) -> impl Iterator<Item = &PlatformName> {
        self.all
            .of_class(None)
            .into_iter()
            .flat_map(HardwareIndex::platforms)
    }

    /// The platforms that a request may run on here, most preferred first; empty means any.
    pub fn wanted<'a>(&'a self, request: &'a Request) -> &'a [PlatformName] {
        let default = self.terms().default_platform.as_slice();
        match request.takes_default {
            false => &request.platforms,
            true => match &request.class {
                GpuClass::Whole => default,
                // Slices are of another platform than the whole GPUs of their model.
                GpuClass::Slice(_) => {
                    let slices = self.all.of_class(Some(&request.class));
                    let has = |it: &PlatformName| {
                        slices.is_some_and(|there| there.hosts(Some(it)).is_some())
                    };
                    if default.iter().all(has) {
                        default
                    } else {
                        &[]
                    }
                }
            },
        }
    }

    /// Whether a request waits here for the first host of a platform.
    pub fn awaits_platform(&self, request: &Request) -> bool {
        let awaited = &self.terms().awaited_platforms;
        let mut wanted = self.wanted(request).iter();
        wanted.any(|it| awaited.contains(it) && !self.has(it))
    }

    /// Hosts that could hold a request if they were empty, of the platforms that it asks for: most preferred platform
    /// first, then the tightest. A host of several platforms is listed once for each.
    pub fn hosts_that_fit<'a>(
        &'a self,
        request: &'a Request,
    ) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        let wanted = self.wanted(request).iter().map(Some);
        let any = self.wanted(request).is_empty().then_some(None);
        let by_platform = any
            .into_iter()
            .chain(wanted)
            .map(|platform| self.host_index(self.filter(request, platform)));
        let large =
            by_platform.flat_map(|host_index| host_index.by_capacity.covering(request.each));
        large.map(|(node, _)| node)
    }

    /// The host of the preferred platform that comes closest to holding a request when empty: the first missing
    /// resource, the amount asked and the amount the host has.
    pub fn closest(&self, request: &Request) -> Option<(&NodeName, &'static str, u64, u64)> {
        let platform = self.wanted(request).first();
        let filter = self.filter(request, platform);
        let known = &self.host_index(filter).by_capacity;
        let (node, has) = known.closest(request.each, |_| true)?;
        let (key, asked, has) = has.first_shortage(request.each)?;
        Some((node, key, asked, has))
    }

    /// Whether one of its hosts is of a platform.
    pub fn has(&self, platform: &PlatformName) -> bool {
        self.all
            .index(HardwareFilter {
                class: None,
                platform: Some(platform),
            })
            .is_some()
    }

    /// The hardware to try for a request, most preferred first.
    pub(crate) fn filters_of<'a>(&'a self, request: &'a Request) -> Vec<HardwareFilter<'a>> {
        let filters = self.platforms_of(request).into_iter();
        let filters = filters.map(|platform| self.filter(request, platform));
        filters.collect()
    }

    fn platforms_of<'a>(&'a self, request: &'a Request) -> Vec<Option<&'a PlatformName>> {
        if request.resumes.is_some() {
            return Vec::from([None]);
        }
        let wanted = self.wanted(request);
        if !wanted.is_empty() {
            return wanted.iter().map(Some).collect();
        }
        // A gang that accepts any platform still runs on hosts of one.
        let there = self.all.of_class(self.class_for(request));
        let there = there.filter(|there| request.hosts > 1 && there.platforms().len() > 1);
        there.map_or(Vec::from([None]), |there| {
            in_order(there, request.each.mgpu() == 0)
        })
    }
}

/// Each platform of hosts; for requests without GPUs, the platform of hosts without GPUs comes first.
fn in_order(hosts: &HardwareIndex, without_gpus: bool) -> Vec<Option<&PlatformName>> {
    let mut names: Vec<&PlatformName> = hosts.platforms().collect();
    if without_gpus {
        names.sort_by_key(|name| name.as_str() != platform::CPU);
    }
    names.into_iter().map(Some).collect()
}

impl Pool {
    /// Hosts of the pool called `name` that are large enough for a request but do not admit it, each with the reason.
    pub fn denying_hosts<'a>(
        &'a self,
        name: &PoolName,
        request: &'a Request,
    ) -> BTreeMap<&'a NodeName, Denial<'a>> {
        let mut nodes = BTreeMap::new();
        let guard = request.guards.get(name);
        if guard.is_none() && request.image.is_none() {
            return nodes;
        }
        let denial = |host: &'a Host| {
            let form = request.image.filter(|form| !host.runs_image(Some(*form)));
            let by_guard =
                |guard: &'a Guard| host.kinds().find_map(|kind| guard.denial(&kind.platforms));
            form.map(Denial::NoRuntime)
                .or_else(|| guard.and_then(by_guard))
        };
        for filter in self.filters_of(request) {
            let large = self.host_index(filter).by_capacity.covering(request.each);
            nodes.extend(
                large.filter_map(|(node, _)| Some((node, denial(self.hosts().get(node)?)?))),
            );
        }
        nodes
    }
}
