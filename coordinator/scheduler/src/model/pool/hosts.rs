//! Adds, changes and removes the hosts of a pool, with all sums and indexes.

use sluice_common::id::NodeName;

use crate::model::host::Host;
use crate::model::pool::Pool;

impl Pool {
    /// The names of its hosts.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeName> {
        self.hosts.keys()
    }

    /// Adds a host, or changes it; grants on it stay.
    pub(crate) fn put_host(&mut self, node: &NodeName, host: Host) {
        self.detected = self.detected.plus(host.capacity);
        self.count_host(&host);
        self.all.insert(node, &host, None);
        for platform in host.platforms() {
            let host_index = self.by_platform.entry(platform.clone()).or_default();
            host_index.insert(node, &host, Some(platform));
        }
        self.hosts.insert(node.clone(), host);
    }

    pub(crate) fn remove_host(&mut self, node: &NodeName) -> Option<Host> {
        let host = self.hosts.remove(node)?;
        self.uncount_host(&host);
        self.all.remove(node, &host, None);
        for platform in host.platforms() {
            if let Some(host_index) = self.by_platform.get_mut(platform) {
                host_index.remove(node, &host, Some(platform));
                if host_index.is_empty() {
                    self.by_platform.remove(platform);
                }
            }
        }
        self.detected = self.detected.less(host.capacity);
        Some(host)
    }

    pub(crate) fn change_host(&mut self, node: &NodeName, change: impl FnOnce(&mut Host)) {
        if let Some(mut host) = self.remove_host(node) {
            change(&mut host);
            self.put_host(node, host);
        }
    }
}
