//! Adds, changes and removes the hosts of a pool, with all sums and indexes.

use alloc::string::String;

use sluice_common::id::NodeName;

use crate::model::host::{Host, prefixes};
use crate::model::pool::Pool;
use crate::model::pool::host_set::HostSet;

impl Pool {
    /// The names of its hosts.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeName> {
        self.hosts.names()
    }

    /// Hosts of the pool that do not know their GPUs yet.
    pub(crate) fn hosts_with_unknown_gpus(&self) -> impl Iterator<Item = (&NodeName, &Host)> {
        let nodes = self.gpus_unknown.iter();
        nodes.filter_map(|node| Some((node, self.hosts.get(node)?)))
    }

    /// Adds a host, or changes it; grants on it stay.
    pub(crate) fn put_host(&mut self, node: &NodeName, host: Host) {
        self.reservations.clear();
        if self.hosts.number(node).is_none() {
            self.clear_cached();
        }
        self.detected = self.detected.plus(host.capacity);
        self.count_host(&host);
        if host.gpus_unknown {
            self.gpus_unknown.insert(node.clone());
        }
        self.all.insert(node, &host, &self.hosts);
        for path in host.domains() {
            if !self.domains.contains_key(path) {
                self.domains.insert(path.to_vec(), HostSet::default());
            }
            if let Some(domain) = self.domains.get_mut(path) {
                domain.insert(node, &host, &self.hosts);
            }
        }
        self.hosts.put(node, host);
    }

    /// Takes a host out. Hosts stay indexed by class until [`Self::drop_classes`].
    fn take_host(&mut self, node: &NodeName) -> Option<Host> {
        self.reservations.clear();
        let host = self.hosts.take(node)?;
        self.uncount_host(&host);
        self.gpus_unknown.remove(node);
        self.all.remove(node, &host);
        for path in host.domains() {
            if let Some(domain) = self.domains.get_mut(path) {
                domain.remove(node, &host);
            }
        }
        self.detected = self.detected.less(host.capacity);
        Some(host)
    }

    pub(crate) fn remove_host(&mut self, node: &NodeName) -> Option<Host> {
        let host = self.take_host(node)?;
        self.hosts.forget(node);
        self.clear_cached();
        self.drop_classes(&host.domain_path);
        Some(host)
    }

    /// Forgets the classes of GPUs if only whole ones are left, in the pool and in the domains of a host that was taken,
    /// and domains without hosts.
    fn drop_classes(&mut self, domain_path: &[String]) {
        self.all.drop_classes();
        for path in prefixes(domain_path) {
            let Some(domain) = self.domains.get_mut(path) else {
                continue;
            };
            domain.drop_classes();
            if domain.is_empty() {
                self.domains.remove(path);
            }
        }
    }

    pub(crate) fn change_host(&mut self, node: &NodeName, change: impl FnOnce(&mut Host)) {
        if let Some(mut host) = self.take_host(node) {
            let before = host.domain_path.clone();
            change(&mut host);
            self.put_host(node, host);
            self.drop_classes(&before);
        }
    }
}
