//! Tests of which GPUs of a host a step gets: those of one NUMA node, also on hosts of several kinds.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::wire::FromNode;

use super::harness::*;

/// A host with 8 GPUs on two sockets. Those listed in `small` are of another platform.
fn two_sockets(small: &[u32]) -> Harness {
    let mut harness = Harness::new();
    let mut hello = hello("n", 8, 64);
    for gpu in &mut hello.inventory.gpus {
        gpu.numa_node = Some(gpu.index / 4);
        let is_small = small.contains(&gpu.index);
        gpu.platform = if is_small { "l40s" } else { "h100" }.into();
    }
    harness.hello(hello);
    harness
}

fn numa_nodes(gpus: &[String]) -> BTreeSet<u32> {
    let index = |gpu: &String| gpu.rsplit('-').next().unwrap().parse::<u32>().unwrap();
    gpus.iter().map(|gpu| index(gpu) / 4).collect()
}

#[test]
fn of_steps_with_3_and_2_and_2_gpus_none_straddles_the_sockets() {
    let mut harness = two_sockets(&[]);
    for (id, gpus) in [("a", 3), ("b", 2), ("c", 2)] {
        harness.submit(id, spec(gpus, 1000)).unwrap();
    }
    let placed = ["a", "b", "c"].map(|id| numa_nodes(&harness.placed(id).1));
    assert_eq!(placed, [[0], [1], [1]].map(BTreeSet::from));
    // The last one is next to the first step, and a new pair is not divided by it.
    harness.status("n", "b.1", released(Exit::Code(0)));
    harness.submit("d", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("d").1, ["GPU-n-3"]);
    harness.submit("e", spec(2, 1000)).unwrap();
    assert_eq!(harness.placed("e").1, ["GPU-n-4", "GPU-n-5"]);
}

#[test]
fn of_two_kinds_that_serve_a_step_the_one_with_close_gpus_is_taken() {
    // Fewer are free of the second kind, but not on one node.
    let mut harness = two_sockets(&[3, 4]);
    harness.submit("a", spec(2, 1000)).unwrap();
    assert_eq!(harness.placed("a").1, ["GPU-n-0", "GPU-n-1"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_step_gets_gpus_of_one_node_whenever_one_has_enough_of_its_platform(
        unfit in prop::collection::btree_set(0..8u32, 0..5),
        small in prop::collection::vec(0..8u32, 0..5),
        gpus in 1..4u64,
        platform in prop::sample::select(vec!["h100", "l40s"]),
    ) {
        let mut harness = two_sockets(&small);
        let fault = |n: &u32| (alloc::format!("GPU-n-{n}"), GpuFault::Lost);
        let faults = unfit.iter().map(fault).collect();
        harness.say("n", FromNode::GpuStates(GpuStates { faults, drain: None }.into()));
        let wants_small = platform == "l40s";
        let serves = |n: &u32| small.contains(n) == wants_small && !unfit.contains(n);
        let of = |node: u32| (0..8).filter(|n| n / 4 == node && serves(n)).count() as u64;
        let spec = StepSpec { platform: Some(platform.into()), ..spec(gpus, 1000) };
        harness.submit("a", spec).unwrap();
        let is_placed = harness.state("a") == StepState::Allocated;
        prop_assert_eq!(is_placed, of(0) + of(1) >= gpus);
        let placed = if is_placed { harness.placed("a").1 } else { Vec::new() };
        if of(0).max(of(1)) >= gpus {
            prop_assert_eq!(numa_nodes(&placed).len(), 1);
        }
        let mut placed = placed.iter().map(|gpu| gpu.rsplit('-').next().unwrap().parse().unwrap());
        prop_assert!(placed.all(|n: u32| serves(&n)));
    }
}
