//! The hosts of a pool by platform, and which of them a request may be on.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_common::id::{NodeName, PlatformName, PoolName};
use sluice_common::platform;

use crate::model::guard::Denial;
use crate::model::host::{HostIndex, PlatformFilter};
use crate::model::pool::Pool;
use crate::model::request::Request;

impl Pool {
    /// The hosts of a view.
    pub(crate) fn host_index(&self, platform: PlatformFilter<'_>) -> &HostIndex {
        match platform {
            None => &self.all,
            Some(platform) => self.by_platform.get(platform).unwrap_or(&self.empty),
        }
    }

    /// The platforms that its hosts are of.
    pub fn platforms(&self) -> impl Iterator<Item = &PlatformName> {
        self.by_platform.keys()
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

    /// The host that comes closest to holding a request if it were empty, of the platform that the request likes best: the
    /// first key that is missing, what is asked and what the host has.
    pub fn closest(&self, request: &Request) -> Option<(&NodeName, &'static str, u64, u64)> {
        let platform = self.wanted(request).first();
        let known = &self.host_index(platform).by_capacity;
        let (node, has) = known.closest(request.each, |_| true)?;
        let (key, asked, has) = has.first_shortage(request.each)?;
        Some((node, key, asked, has))
    }

    /// Whether a host of it is of a platform.
    pub fn has(&self, platform: &PlatformName) -> bool {
        self.by_platform.contains_key(platform)
    }

    /// The views of a request, the one that it likes best first.
    pub(crate) fn platforms_of<'a>(&'a self, request: &'a Request) -> Vec<PlatformFilter<'a>> {
        if request.resumes.is_some() {
            // What was frozen has its own host and its own GPUs, whatever these are.
            return Vec::from([None]);
        }
        let wanted = self.wanted(request);
        if !wanted.is_empty() {
            return wanted.iter().map(Some).collect();
        }
        // A gang that takes any is on hosts of one all the same.
        let several = self.by_platform.len() > 1 && request.hosts > 1;
        match several {
            true => self.platforms_in_order(request.each.gpus() == 0),
            false => Vec::from([None]),
        }
    }

    /// Each platform of the pool; for who needs no GPUs that of hosts without any first.
    fn platforms_in_order(&self, without_gpus: bool) -> Vec<PlatformFilter<'_>> {
        let mut names: Vec<&PlatformName> = self.by_platform.keys().collect();
        if without_gpus {
            names.sort_by_key(|name| name.as_str() != platform::CPU);
        }
        names.into_iter().map(Some).collect()
    }
}

impl Pool {
    /// Hosts of the pool, called `name`, that are large enough for a request and do not let it in, each with why.
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
