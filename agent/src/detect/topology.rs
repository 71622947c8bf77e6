//! Topology of the host: the core and memory node of each processor, and the memory node of each GPU. If the
//! kernel does not tell, each processor is a core of its own on one node.

use std::fs;
use std::path::Path;

use agent_core::{Processor, Topology};
use sluice_common::inventory::Gpu;
use sluice_common::processors::CpuSet;

/// Reads the topology. `root` is `/`, or a test's directory; of the processors that this process may use, the
/// first `kept_back` are reserved for the system.
pub(crate) fn read(root: &Path, kept_back: u32, gpus: &[Gpu]) -> Topology {
    let kept_back = usize::try_from(kept_back).unwrap_or(usize::MAX);
    let nodes = nodes(&root.join("sys/devices/system/node"));
    let processor = |number: u32| Processor {
        node: node_of(&nodes, number),
        core: core_of(root, number),
        number,
    };
    let allowed = allowed(root);
    Topology {
        processors: allowed.iter().skip(kept_back).map(processor).collect(),
        gpu_nodes: gpus
            .iter()
            .filter_map(|gpu| Some((gpu.uuid.clone(), gpu.numa_node?)))
            .collect(),
    }
}

fn allowed(root: &Path) -> CpuSet {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(|list| list.parse().ok()).unwrap_or_default()
}

/// The lowest number among the threads of the processor's core.
fn core_of(root: &Path, number: u32) -> u32 {
    let path = format!("sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
    let threads = set_in(&root.join(path)).unwrap_or_default();
    threads.iter().next().unwrap_or(number)
}

fn node_of(nodes: &[(u32, CpuSet)], number: u32) -> u32 {
    let near = nodes.iter().find(|(_, near)| near.contains(number));
    near.map_or(0, |(node, _)| *node)
}

fn nodes(dir: &Path) -> Vec<(u32, CpuSet)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let node = |name: &str| name.strip_prefix("node")?.parse().ok();
    let mut nodes: Vec<(u32, CpuSet)> = entries
        .filter_map(|entry| {
            let number = node(entry.file_name().to_str()?)?;
            Some((number, set_in(&entry.path().join("cpulist"))?))
        })
        .collect();
    nodes.sort();
    nodes
}

fn set_in(path: &Path) -> Option<CpuSet> {
    fs::read_to_string(path).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn each_processor_is_found_with_its_core_and_its_node() {
        let root = tempfile::tempdir().unwrap();
        put(
            root.path(),
            "proc/self/status",
            "Name:\tx\nCpus_allowed_list:\t0-2,5\n",
        );
        for (number, threads) in [(0, "0,4\n"), (1, "1,5\n"), (5, "1,5\n")] {
            let name = format!("sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
            put(root.path(), &name, threads);
        }
        put(
            root.path(),
            "sys/devices/system/node/node0/cpulist",
            "0,2,4,6\n",
        );
        put(
            root.path(),
            "sys/devices/system/node/node1/cpulist",
            "1,3,5,7\n",
        );
        put(root.path(), "sys/devices/system/node/possible", "0-1\n");
        let gpus = [(Some(1), "GPU-a"), (None, "GPU-b")].map(|(numa_node, uuid)| Gpu {
            uuid: uuid.to_owned(),
            numa_node,
            ..Gpu::default()
        });
        let found = read(root.path(), 1, &gpus);
        let all: Vec<(u32, u32, u32)> = found
            .processors
            .iter()
            .map(|p| (p.number, p.core, p.node))
            .collect();
        // The third has no thread list; the first is reserved.
        assert_eq!(all, [(1, 1, 1), (2, 2, 0), (5, 1, 1)]);
        assert_eq!(found.gpu_nodes, [("GPU-a".to_owned(), 1)].into());
    }

    #[test]
    fn this_host_has_as_many_as_it_counts() {
        let found = read(Path::new("/"), 0, &[]);
        let counted = std::thread::available_parallelism().unwrap().get();
        assert!(found.processors.len() >= counted, "{found:?}");
    }
}
