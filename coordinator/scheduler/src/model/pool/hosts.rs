//! Adds, changes and removes the hosts of a pool, with all sums and indexes.

use alloc::collections::{BTreeMap, BTreeSet};

use sluice_common::id::NodeName;
use sluice_common::mig::GpuClass;

use crate::model::host::Host;
use crate::model::pool::Pool;
use crate::model::pool::hardware_index::HardwareIndex;

impl Pool {
    /// The names of its hosts.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeName> {
        self.hosts.keys()
    }

    /// Hosts of the pool that do not know their GPUs yet.
    pub(crate) fn hosts_with_unknown_gpus(&self) -> impl Iterator<Item = (&NodeName, &Host)> {
        let nodes = self.gpus_unknown.iter();
        nodes.filter_map(|node| Some((node, self.hosts.get(node)?)))
    }

    /// Adds a host, or changes it; grants on it stay.
    pub(crate) fn put_host(&mut self, node: &NodeName, host: Host) {
        self.detected = self.detected.plus(host.capacity);
        self.count_host(&host);
        if host.gpus_unknown {
            self.gpus_unknown.insert(node.clone());
        }
        self.any.insert(node, &host, None);
        self.with_slices += usize::from(host.has_slices());
        if self.with_slices == 1 && self.by_class.is_empty() {
            for (node, host) in &self.hosts {
                insert_by_class(&mut self.by_class, node, host);
            }
        }
        if self.with_slices > 0 {
            insert_by_class(&mut self.by_class, node, &host);
        }
        self.hosts.insert(node.clone(), host);
    }

    /// Removes a host. Hosts stay indexed by class until [`Self::drop_classes`].
    fn take_host(&mut self, node: &NodeName) -> Option<Host> {
        let host = self.hosts.remove(node)?;
        self.uncount_host(&host);
        self.gpus_unknown.remove(node);
        self.any.remove(node, &host, None);
        for class in classes(&host) {
            if let Some(index) = self.by_class.get_mut(class) {
                index.remove(node, &host, Some(class));
                if index.is_empty() {
                    self.by_class.remove(class);
                }
            }
        }
        self.with_slices -= usize::from(host.has_slices());
        self.detected = self.detected.less(host.capacity);
        Some(host)
    }

    pub(crate) fn remove_host(&mut self, node: &NodeName) -> Option<Host> {
        let host = self.take_host(node);
        self.drop_classes();
        host
    }

    /// Forgets the classes of GPUs if only whole ones are left.
    fn drop_classes(&mut self) {
        if self.with_slices == 0 {
            self.by_class.clear();
        }
    }

    pub(crate) fn change_host(&mut self, node: &NodeName, change: impl FnOnce(&mut Host)) {
        if let Some(mut host) = self.take_host(node) {
            change(&mut host);
            self.put_host(node, host);
            self.drop_classes();
        }
    }
}

/// The classes of a host's GPUs.
fn classes(host: &Host) -> BTreeSet<&GpuClass> {
    let kinds = host.kinds().filter(|_| host.has_gpus());
    kinds.map(|kind| &kind.class).collect()
}

fn insert_by_class(by_class: &mut BTreeMap<GpuClass, HardwareIndex>, node: &NodeName, host: &Host) {
    for class in classes(host) {
        let index = by_class.entry(class.clone()).or_default();
        index.insert(node, host, Some(class));
    }
}
