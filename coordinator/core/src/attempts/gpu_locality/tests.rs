//! Tests of the choice by examples, against a search of all choices, and over many arrivals and ends on one host.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use std::println;

use proptest::prelude::*;
use sluice_common::inventory::{Gpu, MigInstance};

use super::choose_near;

/// A host whose GPU `n` is on the NUMA node `nodes[n]`, with these NVLink groups.
fn host(nodes: &[u32], groups: &[&[u32]]) -> Vec<Gpu> {
    let gpu = |(index, node): (u32, &u32)| {
        let mine = groups.iter().filter(|group| group.contains(&index));
        let peers = mine.copied().flatten().filter(|peer| **peer != index);
        Gpu {
            index,
            uuid: format!("GPU-{index}"),
            numa_node: Some(*node),
            nvlink: peers.map(|peer| format!("GPU-{peer}")).collect(),
            ..Gpu::default()
        }
    };
    (0..).zip(nodes).map(gpu).collect()
}

const TWO_SOCKETS: [u32; 8] = [0, 0, 0, 0, 1, 1, 1, 1];

/// NVLink groups of common hosts with 8 GPUs: none, bridges between two, switches between all, and a mesh in which
/// each GPU is linked with the others of its socket and with one of the other socket.
const NONE: &[&[u32]] = &[];
const BRIDGES: &[&[u32]] = &[&[0, 1], &[2, 3], &[4, 5], &[6, 7]];
const SWITCHES: &[&[u32]] = &[&[0, 1, 2, 3, 4, 5, 6, 7]];
const MESH: &[&[u32]] = &[
    &[0, 1, 2, 3],
    &[4, 5, 6, 7],
    &[0, 4],
    &[1, 5],
    &[2, 6],
    &[3, 7],
];

fn free_of<'a>(host: &'a [Gpu], free: &[u32]) -> Vec<&'a Gpu> {
    let is_free = |gpu: &&Gpu| free.contains(&gpu.index);
    host.iter().filter(is_free).collect()
}

fn indexes(chosen: &[&Gpu]) -> Vec<u32> {
    chosen.iter().map(|gpu| gpu.index).collect()
}

#[test]
fn gpus_of_one_node_and_one_link_group_are_chosen_and_little_is_broken_up() {
    let all: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7];
    for (groups, free, wanted, chosen) in [
        (NONE, all, 3, &[0, 1, 2][..]),
        // The node with the fewest free GPUs that has enough.
        (NONE, &[3, 4, 5, 6, 7], 1, &[3]),
        (NONE, &[3, 4, 5, 6, 7], 2, &[4, 5]),
        (NONE, &[1, 2, 3, 6, 7], 2, &[6, 7]),
        // No node has enough: all of the one with most, and the rest from one other.
        (NONE, &[0, 2, 3, 4, 5, 6, 7], 6, &[0, 2, 4, 5, 6, 7]),
        (NONE, all, 8, all),
        // A whole bridge before two halves, and a half before a whole bridge.
        (BRIDGES, &[0, 2, 4, 5, 6, 7], 2, &[4, 5]),
        (BRIDGES, &[1, 2, 3, 4, 5], 2, &[4, 5]),
        (BRIDGES, &[0, 1, 4, 6, 7], 1, &[4]),
        (BRIDGES, &[0, 1, 2, 3, 5, 6, 7], 3, &[5, 6, 7]),
        (SWITCHES, &[0, 1, 2, 3, 5, 6, 7], 2, &[5, 6]),
        (SWITCHES, &[0, 1, 2, 3, 5, 6, 7], 4, &[0, 1, 2, 3]),
        (MESH, &[1, 2, 3, 4, 5, 6, 7], 2, &[1, 2]),
        (MESH, &[1, 2, 3, 4, 5, 6, 7], 4, &[4, 5, 6, 7]),
    ] {
        let host = host(&TWO_SOCKETS, groups);
        let found = choose_near(free_of(&host, free), &[], wanted);
        assert_eq!(indexes(&found), chosen, "{groups:?} {free:?} {wanted}");
    }
}

#[test]
fn without_numa_nodes_the_links_decide() {
    let host = host(&[0; 8], MESH);
    for (free, wanted, chosen) in [
        (&[0, 1, 2, 3, 4, 5, 6, 7][..], 4, &[0, 1, 2, 3][..]),
        (&[2, 3, 4, 5, 6, 7], 4, &[4, 5, 6, 7]),
        (&[0, 5, 7], 2, &[5, 7]),
    ] {
        let found = choose_near(free_of(&host, free), &[], wanted);
        assert_eq!(indexes(&found), chosen, "{free:?} {wanted}");
    }
}

#[test]
fn gpus_are_close_to_those_that_the_step_already_has() {
    let host = host(&TWO_SOCKETS, NONE);
    for (beside, free, wanted, chosen) in [
        (5, &[0, 6, 7][..], 1, &[6][..]),
        (5, &[0, 1, 2, 6], 2, &[0, 1]),
        (5, &[0, 1, 2, 3, 6], 5, &[0, 1, 2, 3, 6]),
    ] {
        let free = free_of(&host, free);
        let found = choose_near(free, &free_of(&host, &[beside]), wanted);
        assert_eq!(indexes(&found), chosen, "{beside} {wanted}");
    }
}

#[test]
fn mig_instances_come_from_the_gpu_of_which_least_is_free() {
    let instance = |(at, parent): (usize, &u32)| Gpu {
        index: *parent,
        uuid: format!("MIG-{at}"),
        numa_node: Some(0),
        mig: Some(MigInstance {
            profile: "1g.10gb".to_string(),
            parent: format!("GPU-{parent}"),
        }),
        ..Gpu::default()
    };
    let all: Vec<Gpu> = [0, 0, 0, 1, 1].iter().enumerate().map(instance).collect();
    let found = |wanted| -> Vec<String> {
        let chosen = choose_near(all.iter().collect(), &[], wanted);
        chosen.into_iter().map(|gpu| gpu.uuid.clone()).collect()
    };
    assert_eq!(found(1), ["MIG-3"]);
    assert_eq!(found(2), ["MIG-3", "MIG-4"]);
    assert_eq!(found(3), ["MIG-0", "MIG-1", "MIG-2"]);
    assert_eq!(found(4), ["MIG-0", "MIG-1", "MIG-2", "MIG-3"]);
}

#[test]
fn links_that_one_side_or_nobody_has_do_no_harm() {
    let mut gpus = host(&[0, 0, 0], NONE);
    gpus[2].nvlink = vec![
        "GPU-0".into(),
        "GPU-0".into(),
        "GPU-9".into(),
        "GPU-2".into(),
    ];
    assert_eq!(indexes(&choose_near(gpus.iter().collect(), &[], 2)), [0, 2]);
    assert_eq!(
        indexes(&choose_near(gpus.iter().collect(), &[], 9)),
        [0, 1, 2]
    );
    assert_eq!(indexes(&choose_near(gpus.iter().collect(), &[], 0)), [0; 0]);
    assert_eq!(indexes(&choose_near(Vec::new(), &[], 1)), [0; 0]);
}

fn numa_nodes(chosen: &[&Gpu]) -> usize {
    let nodes: BTreeSet<Option<u32>> = chosen.iter().map(|gpu| gpu.numa_node).collect();
    nodes.len()
}

fn link_groups(chosen: &[&Gpu]) -> usize {
    let mut left: Vec<&Gpu> = chosen.to_vec();
    let mut groups = 0;
    while let Some(first) = left.pop() {
        groups += 1;
        let mut group = vec![first];
        while let Some(gpu) = group.pop() {
            let linked =
                |other: &Gpu| gpu.nvlink.contains(&other.uuid) || other.nvlink.contains(&gpu.uuid);
            let (next, others) = left.into_iter().partition(|other| linked(other));
            left = others;
            group.extend::<Vec<&Gpu>>(next);
        }
    }
    groups
}

proptest! {
    #[test]
    fn no_other_choice_has_fewer_nodes_nor_fewer_link_groups_on_one_node(
        nodes in prop::collection::vec(0..3u32, 1..9),
        groups in prop::collection::vec(prop::collection::vec(0..9u32, 2..5), 0..4),
        wanted in 1..9usize,
        turned in 0..9usize,
    ) {
        let groups: Vec<&[u32]> = groups.iter().map(Vec::as_slice).collect();
        let host = host(&nodes, &groups);
        let mut free: Vec<&Gpu> = host.iter().collect();
        let chosen = choose_near(free.clone(), &[], wanted);
        let found: BTreeSet<u32> = indexes(&chosen).into_iter().collect();
        prop_assert_eq!(found.len(), wanted.min(host.len()));
        for set in 0u32..1 << host.len() {
            let other: Vec<&Gpu> = host.iter().filter(|gpu| set >> gpu.index & 1 == 1).collect();
            if other.len() == chosen.len() {
                prop_assert!(numa_nodes(&chosen) <= numa_nodes(&other));
                if numa_nodes(&other) == 1 {
                    prop_assert!(link_groups(&chosen) <= link_groups(&other), "{:?}", indexes(&other));
                }
            }
        }
        free.rotate_left(turned % host.len());
        free.reverse();
        prop_assert_eq!(indexes(&choose_near(free, &[], wanted)), indexes(&chosen));
    }
}

/// Counts of the steps with several GPUs that came to a host, and of what they got.
#[derive(Debug, Default)]
struct Churn {
    steps: u32,
    straddled: u32,
    /// Those that straddled although one node had enough free GPUs.
    needlessly: u32,
    link_groups: u32,
}

/// Steps of 1 to 4 GPUs come to one host and end in random order; `choose` takes GPUs out of the free ones.
fn churn(host: &[Gpu], choose: impl Fn(Vec<&Gpu>, usize) -> Vec<u32>) -> Churn {
    let mut random: u64 = 1;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(random >> 33).unwrap() % below
    };
    let (mut running, mut churn): (Vec<Vec<u32>>, _) = (Vec::new(), Churn::default());
    while churn.steps < 4_000 {
        let wanted = [1, 1, 2, 2, 3, 4][next(6)];
        let taken = running.concat();
        let free = |gpu: &&Gpu| !taken.contains(&gpu.index);
        let free: Vec<&Gpu> = host.iter().filter(free).collect();
        if free.len() < wanted {
            running.swap_remove(next(running.len()));
            continue;
        }
        let chosen = choose(free.clone(), wanted);
        if wanted > 1 {
            let of_node = |node| {
                free.iter()
                    .filter(|gpu| gpu.numa_node == Some(node))
                    .count()
            };
            let straddles = numa_nodes(&free_of(host, &chosen)) > 1;
            churn.steps += 1;
            churn.straddled += u32::from(straddles);
            churn.needlessly += u32::from(straddles && of_node(0).max(of_node(1)) >= wanted);
            let groups = link_groups(&free_of(host, &chosen));
            churn.link_groups += u32::try_from(groups).unwrap();
        }
        running.push(chosen);
    }
    churn
}

/// Prints the table of docs/performance.md.
#[test]
fn over_many_arrivals_and_ends_no_step_straddles_needlessly() {
    let lowest_first = |free: Vec<&Gpu>, wanted: usize| indexes(&free[..wanted]);
    let near = |free: Vec<&Gpu>, wanted: usize| indexes(&choose_near(free, &[], wanted));
    for (name, groups) in [
        ("no NVLink", NONE),
        ("bridges", BRIDGES),
        ("switches", SWITCHES),
    ] {
        let host = host(&TWO_SOCKETS, groups);
        let (before, after) = (churn(&host, lowest_first), churn(&host, near));
        for (rule, churn) in [("lowest index first", &before), ("close GPUs", &after)] {
            let per_mille = |part: u32| u64::from(part) * 1000 / u64::from(churn.steps);
            let (straddled, needlessly) = (per_mille(churn.straddled), per_mille(churn.needlessly));
            let groups = per_mille(churn.link_groups);
            println!(
                "{name:<10} {rule:<19} of 1000 steps {straddled:3} straddle, {needlessly:3} needlessly; \
                 {groups:4} link groups"
            );
        }
        assert_eq!(after.needlessly, 0, "{name}");
        assert!(after.straddled < before.straddled, "{name}");
        assert!(after.link_groups <= before.link_groups, "{name}");
    }
}
