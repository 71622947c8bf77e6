//! Platforms of nodes and their GPUs, and the GPUs that platforms want to be cut otherwise than they are.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::facts::HostLabels;
use sluice_common::id::NodeName;
use sluice_common::inventory::Gpu;
use sluice_common::platform::spec::{self, PlatformSpecs};
use sluice_scheduler::{GpuKind, Hardware};

use super::Index;
use crate::model::carving::CarveRequest;
use crate::model::node::Node;

impl Index {
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
        let wishes = carve_wishes(declared, &host, node);
        let gpus = node.inventory.gpus.iter();
        let hardware = match node.inventory.gpus.is_empty() {
            true => Hardware::uniform(platforms(None), 0),
            false => {
                let whole: BTreeSet<&str> = gpus.clone().map(Gpu::whole).collect();
                let gpus = gpus.map(|gpu| (gpu.uuid.clone(), kind(gpu)));
                Hardware::from_gpus(gpus, whole.len() as u64)
            }
        };
        self.hardware.insert(node.name.clone(), hardware);
        self.wishes.remove(&node.name);
        if !wishes.is_empty() {
            self.wishes.insert(node.name.clone(), wishes);
        }
        self.sort_domains(&host);
    }

    /// The nodes with GPUs that platforms want to be cut otherwise.
    pub(crate) fn nodes_to_carve(&self) -> impl Iterator<Item = &NodeName> {
        self.wishes.keys()
    }

    /// The GPUs of a node that platforms want to be cut otherwise.
    pub(crate) fn wishes(&self, node: &NodeName) -> impl Iterator<Item = (&String, &CarveRequest)> {
        self.wishes.get(node).into_iter().flatten()
    }

    /// The platforms of a node and its GPUs.
    pub(crate) fn hardware(&self, node: &Node) -> &Hardware {
        let hardware = self.hardware.get(&node.name);
        hardware.expect("a node is sorted before it is placed")
    }
}

/// The GPUs that platforms of a pool want to be cut otherwise than they are.
fn carve_wishes(
    declared: Option<&PlatformSpecs>,
    host: &HostLabels<'_>,
    node: &Node,
) -> BTreeMap<String, CarveRequest> {
    let layouts = declared.into_iter().flatten();
    let layouts =
        layouts.filter_map(|(name, spec)| Some((name, spec, spec.mig.as_ref()?.sorted())));
    let layouts: Vec<_> = layouts.collect();
    let mut wishes = BTreeMap::new();
    if layouts.is_empty() {
        return wishes;
    }
    let empty = node.inventory.empty_gpus.iter();
    let wholes = node.inventory.gpus.iter().chain(empty).map(Gpu::as_whole);
    let wholes: BTreeMap<String, Gpu> = wholes.map(|gpu| (gpu.uuid.clone(), gpu)).collect();
    for (uuid, gpu) in wholes {
        let meant = layouts
            .iter()
            .filter(|(_, spec, _)| spec.selector.matches(host, Some(&gpu)));
        let meant: Vec<_> = meant.collect();
        let Some((platform, _, layout)) = meant.first() else {
            continue;
        };
        if node.layout_of(&uuid) == *layout {
            continue;
        }
        let rival = meant.iter().find(|(_, _, other)| other != layout);
        let wish = CarveRequest {
            platform: (*platform).clone(),
            layout: layout.clone(),
            rival: rival.map(|(name, ..)| (*name).clone()),
        };
        wishes.insert(uuid, wish);
    }
    wishes
}
