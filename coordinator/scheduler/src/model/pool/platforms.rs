//! The hosts of a pool by platform, and which of them a request may run on.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PlatformName, PoolName};
use sluice_common::platform;

use crate::model::guard::Denial;
use crate::model::host::{HostIndex, PlatformFilter};
use crate::model::pool::Pool;
use crate::model::request::Request;

impl Pool {
    /// The hosts that match a platform filter.
    pub(crate) fn host_index(&self, platform: PlatformFilter<'_>) -> &HostIndex {
        match platform {
            None => &self.all,
            Some(platform) => self.by_platform.get(platform).unwrap_or(&self.empty),
        }
    }

    /// The platforms of its hosts.
    pub fn platforms(&self) -> impl Iterator<Item = &PlatformName> {
        self.by_platform.keys()
    }

    /// The platforms that a request may run on here, most preferred first; empty means any.
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
            .map(|platform| self.host_index(platform));
        let large =
            by_platform.flat_map(|host_index| host_index.by_capacity.covering(request.each));
        large.map(|(node, _)| node)
    }

    /// The host of the preferred platform that comes closest to holding a request when empty: the first missing
    /// resource, the amount asked and the amount the host has.
    pub fn closest(&self, request: &Request) -> Option<(&NodeName, &'static str, u64, u64)> {
        let platform = self.wanted(request).first();
        let known = &self.host_index(platform).by_capacity;
        let (node, has) = known.closest(request.each, |_| true)?;
        let (key, asked, has) = has.first_shortage(request.each)?;
        Some((node, key, asked, has))
    }

    /// Whether one of its hosts is of a platform.
    pub fn has(&self, platform: &PlatformName) -> bool {
        self.by_platform.contains_key(platform)
    }

    /// The platforms to try for a request, most preferred first.
    pub(crate) fn platforms_of<'a>(&'a self, request: &'a Request) -> Vec<PlatformFilter<'a>> {
        if request.resumes.is_some() {
            // A frozen run resumes on its own host and GPUs, whatever their platform.
            return Vec::from([None]);
        }
        let wanted = self.wanted(request);
        if !wanted.is_empty() {
            return wanted.iter().map(Some).collect();
        }
        // A gang that accepts any platform still runs on hosts of one.
        let several = self.by_platform.len() > 1 && request.hosts > 1;
        match several {
            true => self.platforms_in_order(request.each.gpus() == 0),
            false => Vec::from([None]),
        }
    }

    /// Each platform of the pool; for requests without GPUs, the platform of hosts without GPUs comes first.
    fn platforms_in_order(&self, without_gpus: bool) -> Vec<PlatformFilter<'_>> {
        let mut names: Vec<&PlatformName> = self.by_platform.keys().collect();
        if without_gpus {
            names.sort_by_key(|name| name.as_str() != platform::CPU);
        }
        names.into_iter().map(Some).collect()
    }
}

impl Pool {
    /// Hosts of the pool called `name` that are large enough for a request but do not admit it, each with the reason.
    pub fn denying_hosts<'a>(
        &'a self,
        name: &PoolName,
        request: &'a Request,
    ) -> BTreeMap<&'a NodeName, Denial<'a>> {
        let mut nodes = BTreeMap::new();
        let Some(guard) = request.guards.get(name) else {
            return nodes;
        };
        for platform in self.platforms_of(request) {
            let large = self.host_index(platform).by_capacity.covering(request.each);
            nodes.extend(large.filter_map(|(node, _)| {
                let mut kinds = self.hosts().get(node)?.kinds();
                Some((node, kinds.find_map(|kind| guard.denial(kind))?))
            }));
        }
        nodes
    }
}
