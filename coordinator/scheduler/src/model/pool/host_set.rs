//! A set of hosts, indexed by the class and the platform of their GPUs: all hosts of a pool, or those of one domain.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use sluice_common::id::NodeName;
use sluice_common::mig::GpuClass;

use crate::model::host::{HardwareFilter, Host, HostIndex};
use crate::model::pool::hardware_index::HardwareIndex;
use crate::model::pool::host_table::HostTable;

/// The hosts of one domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain<'a> {
    pub(crate) path: &'a [String],
    pub(crate) hosts: &'a HostSet,
}

/// Hosts by their hardware, in rankings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostSet {
    /// All hosts with all their GPUs.
    any: HardwareIndex,
    /// Hosts by the class of their GPUs. Filled only if a host has slices; else all GPUs are of one class.
    by_class: BTreeMap<GpuClass, HardwareIndex>,
    /// Number of hosts with slices.
    with_slices: usize,
}

impl HostSet {
    /// Adds a host. `others` holds the hosts of the set, and maybe more.
    pub(super) fn insert(&mut self, node: &NodeName, host: &Host, others: &HostTable) {
        self.with_slices += usize::from(host.has_slices());
        if self.with_slices == 1 && self.by_class.is_empty() {
            let names = self.any.nodes();
            for (node, host) in names.filter_map(|node| others.get_key_value(node)) {
                insert_by_class(&mut self.by_class, node, host);
            }
        }
        if self.with_slices > 0 {
            insert_by_class(&mut self.by_class, node, host);
        }
        self.any.insert(node, host, None);
    }

    /// Removes a host. Hosts stay indexed by class until [`Self::drop_classes`].
    pub(super) fn remove(&mut self, node: &NodeName, host: &Host) {
        self.any.remove(node, host, None);
        for class in classes(host) {
            if let Some(index) = self.by_class.get_mut(class) {
                index.remove(node, host, Some(class));
                if index.is_empty() {
                    self.by_class.remove(class);
                }
            }
        }
        self.with_slices -= usize::from(host.has_slices());
    }

    /// Forgets the classes of GPUs if only whole ones are left.
    pub(super) fn drop_classes(&mut self) {
        if self.with_slices == 0 {
            self.by_class.clear();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.any.is_empty()
    }

    /// Whether a host has slices, so that its GPUs are of several classes.
    pub(super) fn has_slices(&self) -> bool {
        self.with_slices > 0
    }

    /// The hosts with GPUs of a class, or all.
    pub(super) fn of_class(&self, class: Option<&GpuClass>) -> Option<&HardwareIndex> {
        match class {
            None => Some(&self.any),
            Some(GpuClass::Whole) if self.with_slices == 0 => Some(&self.any),
            Some(class) => self.by_class.get(class),
        }
    }

    /// The hosts that match a filter, if there are any.
    pub(crate) fn index(&self, filter: HardwareFilter<'_>) -> Option<&HostIndex> {
        self.of_class(filter.class)?.hosts(filter.platform)
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
