//! Chooses processors for pinned steps: whole ones, not shared with other running pinned steps, and close to
//! the step's GPUs. Pure: the driver supplies the topology, and the supervisor's views the processors in use.
//!
//! The choice is deterministic, in this order: 1. those of the memory nodes to which its GPUs are attached;
//! 2. of one node, if one has enough: the one that is left with fewest; 3. else of as few nodes as possible,
//! those with most first;
//!
//! Within a node, all threads of one core come before those of the next, so that cores are shared only if no
//! others are
//!
//! left.
//!
//! A suspended step has none: its processors may be assigned to others, and it gets new ones when it is
//! resumed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::processors::CpuSet;

/// A logical processor that steps may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Processor {
    /// The closest memory node; 0 if the host has only one or does not tell.
    pub node: u32,
    /// The core, as the lowest number of its threads.
    pub core: u32,
    /// The kernel's number.
    pub number: u32,
}

/// Locality of a host's processors and GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The processors that steps may use.
    pub processors: Vec<Processor>,
    /// Memory node of each GPU that reports one, by UUID.
    pub gpu_nodes: BTreeMap<String, u32>,
}

impl Topology {
    /// `count` processors that are not taken, as close to these GPUs as possible; `None` if too few are left.
    pub(crate) fn pick(&self, count: usize, gpus: &[String], taken: &CpuSet) -> Option<CpuSet> {
        let near: BTreeSet<u32> = gpus
            .iter()
            .filter_map(|uuid| self.gpu_nodes.get(uuid).copied())
            .collect();
        let mut nodes: BTreeMap<u32, Vec<Processor>> = BTreeMap::new();
        for processor in &self.processors {
            if !taken.contains(processor.number) {
                nodes.entry(processor.node).or_default().push(*processor);
            }
        }
        let mut nodes: Vec<(u32, Vec<Processor>)> = nodes.into_iter().collect();
        nodes.sort_by_key(|(node, free)| {
            let has_all = free.len() >= count;
            let left = if has_all {
                free.len()
            } else {
                usize::MAX - free.len()
            };
            (!near.contains(node), !has_all, left, *node)
        });
        let in_order = nodes.into_iter().flat_map(|(_, free)| by_core(free, count));
        let picked: CpuSet = in_order.take(count).collect();
        (picked.len() == count).then_some(picked)
    }
}

/// Processors in order: cores that serve `count` as a whole, then partially taken ones.
fn by_core(free: Vec<Processor>, count: usize) -> Vec<u32> {
    let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for processor in free {
        cores
            .entry(processor.core)
            .or_default()
            .push(processor.number);
    }
    let threads = cores.values().map(Vec::len).max().unwrap_or(1);
    let whole = count / threads * threads;
    let mut cores: Vec<Vec<u32>> = cores.into_values().collect();
    for core in &mut cores {
        core.sort_unstable();
    }
    cores.sort_by_key(|core| (core.len() < threads, core.first().copied()));
    let mut numbers: Vec<u32> = cores.concat();
    // The remainder after whole cores comes from a core that is shared already.
    let shared = cores.iter().filter(|core| core.len() < threads).flatten();
    let shared: BTreeSet<u32> = shared.copied().collect();
    if numbers.len() > whole {
        let over = numbers.split_off(whole);
        let (first, last): (Vec<u32>, Vec<u32>) =
            over.into_iter().partition(|n| shared.contains(n));
        numbers.extend(first.into_iter().chain(last));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::string::ToString;
    use proptest::prelude::*;

    /// Two nodes with four cores of two threads each, numbered as on most hosts: second threads last.
    fn two_nodes() -> Topology {
        let processor = |number: u32| Processor {
            node: number % 8 / 4,
            core: number % 8,
            number,
        };
        Topology {
            processors: (0..16).map(processor).collect(),
            gpu_nodes: [("GPU-0".to_owned(), 0), ("GPU-1".to_owned(), 1)].into(),
        }
    }

    fn picked(count: usize, gpus: &[&str], taken: &str) -> Option<String> {
        let gpus: Vec<String> = gpus.iter().map(ToString::to_string).collect();
        let picked = two_nodes().pick(count, &gpus, &taken.parse().unwrap());
        picked.map(|set| set.to_string())
    }

    #[test]
    fn whole_cores_of_one_node_near_the_gpus_are_taken() {
        for (count, gpus, taken, wanted) in [
            (2, &[][..], "", "0,8"),
            (4, &[], "", "0-1,8-9"),
            (8, &["GPU-1"], "", "4-7,12-15"),
            // The remaining thread comes from a shared core, if there is one.
            (3, &[], "", "0-1,8"),
            (1, &[], "0", "8"),
            (3, &[], "0", "1,8-9"),
            // The node that is left with fewest.
            (2, &[], "4-5,12-13", "6,14"),
            // Close to its GPUs, and others if those are not enough.
            (2, &["GPU-1"], "4-7,12-14", "0,15"),
            // No node has enough: most from the node with most.
            (9, &[], "0,8", "1,4-7,12-15"),
            (16, &[], "", "0-15"),
        ] {
            let found = picked(count, gpus, taken);
            assert_eq!(found.as_deref(), Some(wanted), "{count} {gpus:?} {taken}");
        }
        assert_eq!(picked(17, &[], ""), None);
        assert_eq!(picked(1, &[], "0-15"), None);
    }

    proptest! {
        #[test]
        fn as_many_as_wanted_none_of_them_taken_and_one_node_where_one_has_enough(
            count in 1..17_usize,
            taken in proptest::collection::btree_set(0..16_u32, 0..16),
        ) {
            let (topology, taken) = (two_nodes(), taken.into_iter().collect::<CpuSet>());
            let free = |node: u32| {
                let of = topology.processors.iter().filter(|p| p.node == node);
                of.filter(|p| !taken.contains(p.number)).count()
            };
            let found = topology.pick(count, &[], &taken);
            prop_assert_eq!(found.is_some(), free(0) + free(1) >= count);
            let Some(found) = found else { return Ok(()) };
            prop_assert_eq!(found.len(), count);
            prop_assert!(found.is_disjoint(&taken));
            let nodes: BTreeSet<u32> = found.iter().map(|n| n % 8 / 4).collect();
            prop_assert_eq!(nodes.len() == 1, free(0).max(free(1)) >= count);
        }
    }
}
