//! Hosts of the replicas of a service: spread over them first, or packed by choice.

use alloc::string::ToString;
use alloc::vec::Vec;

use sluice_common::pool::HostPlacement;
use sluice_common::service::{ScaleSpec, ServiceSpec};

use super::harness::*;
use super::services::{known, put, run_all, service, stop_all};

/// A host for 16 replicas, one for 8 and one for 4.
fn three_hosts() -> Harness {
    let mut harness = Harness::one_node(0, 16);
    harness.hello(hello("m", 0, 8));
    harness.hello(hello("o", 0, 4));
    harness
}

/// Number of replicas on each host, the fewest first.
fn counts(harness: &Harness) -> Vec<usize> {
    let replicas = known(harness).replicas.values();
    let nodes: Vec<_> = replicas
        .map(|it| harness.placed(it.step.as_str()).0.to_string())
        .collect();
    let mut counts: Vec<usize> = ["n", "m", "o"]
        .map(|host| nodes.iter().filter(|node| *node == host).count())
        .into();
    counts.sort_unstable();
    counts
}

#[test]
fn each_replica_has_a_host_of_its_own_while_there_are_some() {
    let mut harness = three_hosts();
    put(&mut harness, service(ScaleSpec::fixed(3)));
    run_all(&mut harness);
    assert_eq!(counts(&harness), [1, 1, 1]);
    put(&mut harness, service(ScaleSpec::fixed(5)));
    run_all(&mut harness);
    assert_eq!(counts(&harness), [1, 2, 2]);
    put(&mut harness, service(ScaleSpec::fixed(3)));
    harness.pass(5);
    stop_all(&mut harness);
    assert_eq!(counts(&harness).iter().sum::<usize>(), 3);
    put(&mut harness, service(ScaleSpec::fixed(6)));
    run_all(&mut harness);
    assert_eq!(
        counts(&harness),
        [2, 2, 2],
        "the places of those that ended are free"
    );
}

#[test]
fn a_new_version_is_spread_whatever_hosts_the_old_one_has() {
    let mut harness = three_hosts();
    put(&mut harness, service(ScaleSpec::fixed(3)));
    run_all(&mut harness);
    let mut next = service(ScaleSpec::fixed(3));
    next.replica.command.push("v2".into());
    put(&mut harness, next);
    for _ in 0..3 {
        run_all(&mut harness);
        for _ in 0..7 {
            harness.pass(1);
            for host in ["n", "m", "o"] {
                harness.heartbeat(host);
            }
        }
        stop_all(&mut harness);
    }
    let numbers: Vec<u32> = known(&harness).replicas.keys().copied().collect();
    assert_eq!(
        (numbers, counts(&harness)),
        ([4, 5, 6].into(), [1, 1, 1].into())
    );
}

#[test]
fn packed_replicas_share_the_host_that_is_left_with_least() {
    let mut harness = three_hosts();
    put(
        &mut harness,
        ServiceSpec {
            placement: HostPlacement::Pack,
            ..service(ScaleSpec::fixed(4))
        },
    );
    run_all(&mut harness);
    assert_eq!(counts(&harness), [0, 0, 4]);
    let (revision, version) = (known(&harness).revision, known(&harness).version);
    put(&mut harness, service(ScaleSpec::fixed(4)));
    assert_eq!(known(&harness).revision, revision, "only those to come");
    assert!(known(&harness).version > version);
}
