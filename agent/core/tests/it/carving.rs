//! GPUs that are cut into slices: one at a time, restored after a failure, reported as the driver shows them.

use std::collections::BTreeMap;

use agent_core::{GpuObservation, GpuScan, Input, LinkId};
use sluice_common::carving::{CarveFailure, CarveOrder, GpuLayout};
use sluice_common::supervision::BootMillis;
use sluice_common::wire::ToNode;

use crate::harness::*;

fn halves() -> GpuLayout {
    "3g.40gb,3g.40gb".parse().expect("a layout")
}

fn carve_as(link: LinkId, gpu: &str) -> Input {
    let order = CarveOrder {
        gpu: gpu.to_owned(),
        layout: halves(),
        before: GpuLayout::Whole,
    };
    order_as(link, epoch(5), ToNode::Carve(Box::new(order)))
}

fn carve(gpu: &str) -> Input {
    carve_as(LINK, gpu)
}

fn carved(gpu: &str, layout: GpuLayout, failure: Option<CarveFailure>) -> Input {
    Input::Carved {
        gpu: gpu.to_owned(),
        layout,
        failure,
    }
}

fn looked(began: u64) -> Input {
    Input::Looked {
        began: BootMillis(began),
    }
}

/// A scan in which the GPU has these units.
fn scan(began: u64, gpu: &str, units: &[&str]) -> Input {
    let free = GpuObservation::Present {
        processes: Some(vec![]),
        memory_used: Some(0),
    };
    let units = units.iter().map(|unit| (*unit).to_owned());
    Input::Gpus(GpuScan {
        began: BootMillis(began),
        gpus: units.clone().map(|unit| (unit, free.clone())).collect(),
        units: BTreeMap::from([(gpu.to_owned(), units.collect())]),
        memory_available: None,
    })
}

#[test]
fn gpus_are_cut_one_by_one_and_reported_when_the_driver_was_asked_again() {
    let mut harness = Harness::linked();
    assert_eq!(harness.told(carve("GPU-a")), "carve GPU-a into 2 x 3g.40gb");
    assert_eq!(harness.told(carve("GPU-a")), "", "a repeat");
    assert_eq!(harness.told(carve("GPU-b")), "", "after the first");
    harness.pass(500);
    let done = carved("GPU-a", halves(), None);
    assert_eq!(harness.told(done), "carve GPU-b into 2 x 3g.40gb");
    assert_eq!(harness.told(looked(100_499)), "", "begun before its end");
    let told = harness.told(looked(100_500));
    assert_eq!(told, r#"1: Carved { gpu: "GPU-a", outcome: Done }"#);
    assert_eq!(harness.told(looked(100_600)), "", "once");
    let stale = carved("GPU-a", halves(), None);
    assert_eq!(harness.told(stale), "", "nobody waits for it");
}

#[test]
fn a_failure_is_rolled_back_and_then_told() {
    let mut harness = Harness::linked();
    harness.feed(carve("GPU-a"));
    let failed = carved("GPU-a", halves(), Some(CarveFailure::NoRoom));
    assert_eq!(harness.told(failed), "carve GPU-a into a whole GPU");
    assert_eq!(harness.told(looked(100_000)), "", "it is not whole yet");
    harness.feed(carved("GPU-a", GpuLayout::Whole, None));
    let told = harness.told(looked(100_000));
    assert!(told.contains("why: NoRoom, is_restored: true"), "{told}");
}

#[test]
fn a_gpu_that_cannot_be_restored_is_quarantined_until_an_admin_has_it_looked_at() {
    let mut harness = Harness::linked();
    harness.feed(scan(100_000, "GPU-a", &["GPU-a"]));
    harness.feed(carve("GPU-a"));
    harness.feed(carved("GPU-a", halves(), Some(CarveFailure::TimedOut)));
    let told = harness.told(carved(
        "GPU-a",
        GpuLayout::Whole,
        Some(CarveFailure::TimedOut),
    ));
    let why = "quarantined: it could not be cut, nor made as before: the driver did not answer";
    assert!(told.contains(&format!("GPU-a {why}")), "{told}");
    let told = harness.told(looked(100_000));
    assert!(told.contains("why: TimedOut, is_restored: false"), "{told}");
    // The GPU answers, though it is cut and has no slice.
    harness.pass(10);
    let gpus = vec!["GPU-a".to_owned()];
    harness.feed(order(ToNode::RestoreGpus { gpus }));
    let told = harness.told(scan(100_010, "GPU-a", &[]));
    assert_eq!(told, "keep; 1: gpus");
}

#[test]
fn a_gpu_in_use_or_unfit_is_not_cut_and_one_that_is_cut_is_given_to_no_attempt() {
    let with_gpu = |id: &str, gpu: &str| {
        let mut assignment = assignment(id);
        assignment.gpus = vec![gpu.to_owned()];
        order(ToNode::Assign(Box::new(assignment)))
    };
    let mut harness = Harness::linked();
    harness.feed(scan(100_000, "GPU-a", &["MIG-1", "MIG-2"]));
    harness.feed(with_gpu("a.1", "MIG-1"));
    let told = harness.told(carve("GPU-a"));
    assert!(told.contains(r#"InUse("step `a`")"#), "{told}");
    assert!(told.contains("is_restored: true"), "{told}");

    let mut harness = Harness::linked();
    harness.feed(scan(100_000, "GPU-a", &["MIG-1", "MIG-2"]));
    harness.feed(carve("GPU-a"));
    let told = harness.told(with_gpu("a.1", "MIG-2"));
    assert!(told.contains("`MIG-2` is being cut into slices"), "{told}");

    let mut harness = Harness::linked();
    let foreign = GpuObservation::Present {
        processes: Some(vec![7]),
        memory_used: Some(0),
    };
    let Input::Gpus(mut found) = scan(100_000, "GPU-a", &["GPU-a"]) else {
        unreachable!()
    };
    found.gpus.insert("GPU-a".to_owned(), foreign);
    harness.feed(Input::Gpus(found));
    let told = harness.told(carve("GPU-a"));
    assert!(told.contains("the GPU is unfit: foreign"), "{told}");
}

#[test]
fn a_host_that_does_not_allow_it_is_not_asked_to_restore_anything() {
    let mut harness = Harness::linked();
    harness.feed(carve("GPU-a"));
    let refused = carved("GPU-a", halves(), Some(CarveFailure::NotAllowed));
    assert_eq!(harness.told(refused), "");
    let told = harness.told(looked(100_000));
    assert!(told.contains("NotAllowed, is_restored: true"), "{told}");
}

#[test]
fn a_supervisor_that_was_away_and_a_later_link_get_the_order_again() {
    let mut harness = Harness::linked();
    harness.feed(carve("GPU-a"));
    harness.feed(down());
    let told = harness.told(up(vec![]));
    assert!(told.contains("carve GPU-a into 2 x 3g.40gb"), "{told}");
    harness.feed(carved("GPU-a", halves(), Some(CarveFailure::NoRoom)));
    harness.feed(down());
    let told = harness.told(up(vec![]));
    assert!(told.contains("carve GPU-a into a whole GPU"), "{told}");
    harness.feed(Input::LinkLost { link: LINK });
    harness.feed(carved("GPU-a", GpuLayout::Whole, None));
    assert_eq!(harness.told(looked(100_000)), "", "nobody listens");
    let link = LinkId(2);
    harness.feed(Input::Dialled { link });
    harness.feed(welcomed(link, 5));
    let told = harness.told(carve_as(link, "GPU-a"));
    assert_eq!(told, "carve GPU-a into 2 x 3g.40gb", "it is done again");
}
