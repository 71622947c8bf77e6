//! The totals line below a list of nodes: capacity and use of all of them, only in text formats.

use std::collections::BTreeSet;

use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, STORAGE_MB};
use sluice_common::api::NodeView;
use sluice_common::state::NodeState;

use super::super::amounts;
use super::super::table::Cell;

/// Returns a cell for each of the first columns, by title; none for a single node.
pub(super) fn of(nodes: &[NodeView]) -> Option<Vec<(&'static str, Cell)>> {
    if nodes.len() < 2 {
        return None;
    }
    let ready = nodes.iter().filter(|node| node.state == NodeState::Ready);
    // A gang holds resources of several nodes and is one step.
    let steps: BTreeSet<&String> = nodes.iter().flat_map(|node| &node.steps).collect();
    let (gpus, all_gpus) = both(nodes, MGPU);
    let (mcpu, all_mcpu) = both(nodes, MCPU);
    let (memory, all_memory) = both(nodes, MEMORY_MB);
    let (storage, all_storage) = both(nodes, STORAGE_MB);
    let cells = [
        ("NAME", format!("{} nodes", nodes.len())),
        ("STATE", format!("{} ready", ready.count())),
        ("GPUS", amounts::gpus_of(gpus, all_gpus)),
        (
            "CPU",
            format!("{}/{}", amounts::cores(mcpu), amounts::cores(all_mcpu)),
        ),
        ("MEMORY", amounts::megabytes_of(memory, all_memory)),
        ("STORAGE", amounts::megabytes_of(storage, all_storage)),
        ("STEPS", steps.len().to_string()),
    ];
    Some(
        cells
            .map(|(title, text)| (title, Cell::from(text)))
            .to_vec(),
    )
}

/// Returns the used and the total amount of a key, over all nodes.
fn both(nodes: &[NodeView], key: &str) -> (u64, u64) {
    nodes.iter().fold((0, 0), |(used, all), node| {
        (
            used.saturating_add(node.used.get(key)),
            all.saturating_add(node.capacity.get(key)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::listed::table;
    use super::super::super::step::tests::now;
    use super::super::tests::node;
    use super::*;
    use crate::args::Format;
    use crate::out::Out;

    #[test]
    fn several_nodes_are_added_up_and_a_gang_counts_once() {
        let mut other = node();
        other.name = "gpu-2".to_owned();
        other.state = NodeState::Lost;
        other.steps.push("m4x1".to_owned());
        let nodes = [node(), other];
        assert_eq!(
            table(&nodes, now(), Out::plain()),
            "NAME     POOL     STATE    GPUS  CPU    MEMORY     STEPS  AGE\n\
             gpu-1    default  ready    1/1   0.5/8  0/7.6GiB   1      3m\n\
             gpu-2    default  lost     1/1   0.5/8  0/7.6GiB   2      3m\n\
             2 nodes           1 ready  2/2   1/16   0/15.3GiB  2\n"
        );
        let wide = table(&nodes, now(), Out::plain().with_format(Format::Wide));
        let last = wide.lines().last().unwrap();
        assert!(last.contains("0/186.2GiB"), "{wide}");
        assert_eq!(table(&nodes[..1], now(), Out::plain()).lines().count(), 2);
    }
}
