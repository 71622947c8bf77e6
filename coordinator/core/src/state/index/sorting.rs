//! Sorts nodes by what they are: the platforms of their GPUs, and their domains of the topology.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::id::NodeName;
use sluice_common::inventory::Gpu;
use sluice_common::platform::spec;
use sluice_common::topology::TopologySpec;
use sluice_scheduler::{GpuKind, Hardware};

use super::Index;
use crate::model::node::Node;

impl Index {
    /// Sets the levels of the topology. All nodes must be sorted and placed again.
    pub(in crate::state) fn put_topology(&mut self, topology: &TopologySpec) {
        let levels = topology.levels.iter();
        self.levels = levels.clone().map(|level| level.label.clone()).collect();
        let names = levels.map(|level| level.name.clone()).collect();
        self.scheduler.set_levels(names);
    }

    /// Finds the platforms of a node and its GPUs, and its domains, after a change of its inventory, of its labels, of the
    /// declared platforms or of the topology.
    pub(in crate::state) fn sort_node(&mut self, node: &Node) {
        let declared = self.platforms.get(&node.pool);
        let labels = node.labels_in_force();
        let host = node.as_host(&labels);
        let platforms =
            |gpu: Option<&Gpu>| spec::platforms_of(declared.into_iter().flatten(), &host, gpu);
        let kind = |gpu: &Gpu| GpuKind {
            class: gpu.class(),
            platforms: platforms(Some(gpu)),
        };
        let gpus = node.inventory.gpus.iter();
        let hardware = match node.inventory.gpus.is_empty() {
            true => Hardware::uniform(platforms(None), 0),
            false => {
                let whole: BTreeSet<&str> = gpus.clone().map(Gpu::whole).collect();
                let gpus = gpus.map(|gpu| (gpu.uuid.clone(), kind(gpu)));
                Hardware::from_gpus(gpus, whole.len() as u64)
            }
        };
        let values = self.levels.iter().map_while(|label| host.value(label));
        let domain_path: Vec<String> = values.collect();
        self.hardware.insert(node.name.clone(), hardware);
        self.domain_paths.remove(&node.name);
        if !domain_path.is_empty() {
            self.domain_paths.insert(node.name.clone(), domain_path);
        }
    }

    /// Path of the narrowest domain of a node; empty if it is in none.
    pub(in crate::state) fn domain_path(&self, node: &NodeName) -> &[String] {
        self.domain_paths.get(node).map_or(&[], Vec::as_slice)
    }

    /// The platforms of a node and its GPUs.
    pub(crate) fn hardware(&self, node: &Node) -> &Hardware {
        let hardware = self.hardware.get(&node.name);
        hardware.expect("a node is sorted before it is placed")
    }
}
