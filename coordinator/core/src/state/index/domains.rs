//! Domains of nodes: the values of the levels of the topology, by the labels and facts of each node.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::facts::HostLabels;
use sluice_common::id::NodeName;
use sluice_common::topology::TopologySpec;

use super::Index;

impl Index {
    /// Sets the levels of the topology. All nodes must be sorted and placed again.
    pub(in crate::state) fn put_topology(&mut self, topology: &TopologySpec) {
        let levels = topology.levels.iter();
        self.levels = levels.clone().map(|level| level.label.clone()).collect();
        let names = levels.map(|level| level.name.clone()).collect();
        self.scheduler.set_levels(names);
    }

    /// Finds the domains of a node after a change of its labels and facts or of the topology.
    pub(super) fn sort_domains(&mut self, host: &HostLabels<'_>) {
        let domain_path = host.values(&self.levels);
        self.domain_paths.remove(host.name);
        if !domain_path.is_empty() {
            self.domain_paths.insert(host.name.clone(), domain_path);
        }
    }

    /// Path of the narrowest domain of a node; empty if it is in none.
    pub(in crate::state) fn domain_path(&self, node: &NodeName) -> &[String] {
        self.domain_paths.get(node).map_or(&[], Vec::as_slice)
    }
}
