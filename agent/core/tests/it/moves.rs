//! From the order to suspend a step with GPU memory to `Suspended`: users are counted, host memory is
//! checked, and the GPUs are seen empty.

use agent_core::{GpuObservation, GpuScan, Input, Output, StoredGpus};
use sluice_common::supervision::{AttemptView, BootMillis, FreezerState, MovedMemory};
use sluice_common::wire::ToNode;

use crate::harness::*;

const MIB: u64 = 1 << 20;
const GPU: &str = "GPU-a";

fn there(pids: &[u32], mib: u64) -> GpuObservation {
    GpuObservation::Present {
        processes: Some(pids.to_vec()),
        memory_used: Some(mib * MIB),
    }
}

fn look_with(began: u64, seen: GpuObservation, memory_available: Option<u64>) -> Input {
    Input::Gpus(GpuScan {
        began: BootMillis(began),
        gpus: [(GPU.to_owned(), seen)].into(),
        units: [].into(),
        memory_available,
    })
}

fn look(began: u64, seen: GpuObservation) -> Input {
    look_with(began, seen, None)
}

fn shown(freezer: FreezerState) -> AttemptView {
    let mut view = running("a.1");
    view.launch_record.gpus = vec![GPU.to_owned()];
    view.freezer = freezer;
    view
}

fn seen_as(freezer: FreezerState) -> Input {
    Input::Attempt(shown(freezer))
}

fn moved() -> FreezerState {
    FreezerState::Moved(MovedMemory {
        pids: vec![42],
        bytes: 990 * MIB,
    })
}

fn suspend(room_mb: u64) -> Input {
    order(ToNode::Suspend {
        attempt: attempt("a.1"),
        room_mb,
    })
}

/// `a.1` runs with a GPU that has 10 MiB in use when idle, and is to be suspended.
fn suspending(room_mb: u64) -> Harness {
    let mut harness = Harness::linked();
    harness.feed(look(harness.boot, there(&[], 10)));
    let mut assigned_gpus = assignment("a.1");
    assigned_gpus.gpus = vec![GPU.to_owned()];
    harness.feed(order(ToNode::Assign(Box::new(assigned_gpus))));
    harness.feed(seen_as(FreezerState::Thawed));
    let told = harness.told(suspend(room_mb));
    let wanted = "1: a.1 suspending; look; look at 100100; suspension of a.1 at 370000";
    assert_eq!(told, wanted);
    harness
}

#[test]
fn the_supervisor_is_told_who_uses_the_gpus_and_the_coordinator_when_they_were_seen_free() {
    let mut harness = suspending(2000);
    let busy = || there(&[42, 43], 1000);
    assert_eq!(harness.told(look(99_999, busy())), "", "begun before");
    let unanswered = look(100_001, GpuObservation::NoAnswer);
    assert_eq!(harness.told(unanswered), "", "the next may tell");
    let told = harness.told(look(100_002, busy()));
    let bytes = 990 * MIB;
    assert_eq!(told, format!("suspend a.1 moving {bytes} of [42, 43]"));
    assert_eq!(harness.told(seen_as(FreezerState::Moving)), "");
    assert_eq!(harness.told(seen_as(moved())), "look; look at 100100");
    assert_eq!(harness.told(look(100_003, busy())), "", "they are busy yet");
    let told = harness.told(look(100_004, there(&[42], 10)));
    let wanted = "keep; 1: a.1 suspended 1039";
    assert_eq!(told, wanted, "listed, but nothing is held");
}

#[test]
fn a_look_that_another_has_overtaken_counts_for_nothing() {
    let mut harness = Harness::linked();
    harness.feed(look(harness.boot, there(&[], 10)));
    // From when the GPU was in use, so its memory is not the idle level.
    harness.feed(look(harness.boot - 1, there(&[], 9000)));
    let mut assigned_gpus = assignment("a.1");
    assigned_gpus.gpus = vec![GPU.to_owned()];
    harness.feed(order(ToNode::Assign(Box::new(assigned_gpus))));
    let mut over = gone("a.1");
    over.launch_record.gpus = vec![GPU.to_owned()];
    harness.feed(Input::Attempt(over));
    assert_eq!(harness.told(look(harness.boot + 1, there(&[], 9000))), "");
    let told = harness.told(look(harness.boot + 2, there(&[], 10)));
    assert_eq!(told, "1: a.1 released Code(0)");
}

#[test]
fn what_has_no_room_or_cannot_be_told_is_not_begun() {
    let busy = || there(&[42], 1000);
    let mut harness = suspending(1000);
    assert_eq!(
        harness.told(look(100_001, busy())),
        "1: a.1 not suspended NoRoom(MemoryShortage { wanted_mb: 1039, room_mb: 1000 })"
    );
    let mut harness = suspending(2000);
    assert_eq!(
        harness.told(look_with(100_001, busy(), Some(500_000_000))),
        "1: a.1 not suspended NoRoom(MemoryShortage { wanted_mb: 1039, room_mb: 500 })"
    );
    let mut harness = suspending(2000);
    let untold = GpuObservation::Present {
        processes: None,
        memory_used: None,
    };
    let told = harness.told(look(100_001, untold));
    assert_eq!(told, "1: a.1 not suspended NoCheckpoint");
}

#[test]
fn the_gpu_of_a_frozen_step_is_another_s_whoever_is_listed_on_it() {
    let mut harness = suspending(2000);
    harness.feed(look(100_001, there(&[42], 1000)));
    harness.feed(seen_as(moved()));
    harness.feed(look(100_002, there(&[42], 10)));
    // The GPU is unused, and the listed process is not foreign.
    assert_eq!(harness.told(look(100_003, there(&[42], 10))), "");
    let mut assigned_gpus = assignment("b.1");
    assigned_gpus.gpus = vec![GPU.to_owned()];
    harness.feed(order(ToNode::Assign(Box::new(assigned_gpus))));
    let mut over = gone("b.1");
    over.launch_record.gpus = vec![GPU.to_owned()];
    let told = harness.told(Input::Attempt(over));
    assert!(
        told.contains("b.1 ended") && told.contains("look"),
        "{told}"
    );
    assert_eq!(harness.told(look(100_004, there(&[42, 77], 3000))), "");
    let told = harness.told(look(100_005, there(&[42], 10)));
    assert_eq!(told, "1: b.1 released Code(0)");
}

/// The stored state after the GPU of `a.1` was seen empty while suspended.
fn kept_of_one_that_left() -> StoredGpus {
    let mut harness = suspending(2000);
    harness.feed(look(100_001, there(&[42], 1000)));
    harness.feed(seen_as(moved()));
    let outputs = harness.feed(look(100_002, there(&[42], 10)));
    let kept = outputs
        .iter()
        .position(|output| matches!(output, Output::SaveGpus(_)));
    let told = outputs
        .iter()
        .position(|output| matches!(output, Output::Send { .. }));
    assert!(kept < told, "kept before it is said: {outputs:?}");
    match &outputs[kept.expect("it is kept")] {
        Output::SaveGpus(kept) => kept.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_agent_lets_none_run_that_an_earlier_one_called_frozen() {
    // The GPU may belong to another by now, and need not be free.
    let mut harness = Harness::linked_with(kept_of_one_that_left());
    let told = harness.told(seen_as(moved()));
    assert!(told.contains("a.1 suspended 1039"), "{told}");
    let told = harness.told(look(harness.boot, there(&[42, 77], 3000)));
    assert!(!told.contains("a.1"), "{told}");
    let told = harness.told(stop("a.1", 10));
    assert!(
        told.contains("KILL a.1") && !told.contains("thaw"),
        "{told}"
    );

    let mut harness = Harness::linked_with(kept_of_one_that_left());
    harness.feed(seen_as(moved()));
    let outputs = harness.feed(order(ToNode::Resume {
        attempt: attempt("a.1"),
    }));
    let nothing_left = |output: &Output| match output {
        Output::SaveGpus(kept) => kept.values().all(|gpu| gpu.left_by.is_empty()),
        _ => false,
    };
    let forgotten = outputs
        .iter()
        .position(nothing_left)
        .expect("it is forgotten");
    let thawed = outputs
        .iter()
        .position(|output| matches!(output, Output::Supervise(_)));
    assert!(Some(forgotten) < thawed, "{outputs:?}");
}

#[test]
fn a_new_agent_counts_one_as_frozen_when_it_has_seen_its_gpus() {
    let mut harness = Harness::linked();
    let told = harness.told(seen_as(moved()));
    assert!(
        told.contains("look") && !told.contains("suspended"),
        "{told}"
    );
    let told = harness.told(look(harness.boot, there(&[42], 10)));
    assert_eq!(told, "keep; 1: a.1 suspended 1039");
}

#[test]
fn one_that_is_to_run_again_waits_for_no_look() {
    let resume = || {
        order(ToNode::Resume {
            attempt: attempt("a.1"),
        })
    };
    let mut counting = suspending(2000);
    let told = counting.told(resume());
    assert!(told.starts_with("1: a.1 resuming; thaw a.1"), "{told}");
    let late = look(100_002, there(&[42], 1000));
    assert_eq!(counting.told(late), "", "nothing is moved any more");
    let told = counting.told(seen_as(FreezerState::Thawed));
    assert!(told.starts_with("1: a.1 running"), "{told}");

    let mut moved_away = suspending(2000);
    moved_away.feed(look(100_001, there(&[42], 1000)));
    moved_away.feed(seen_as(moved()));
    let told = moved_away.told(resume());
    assert!(told.starts_with("1: a.1 resuming; thaw a.1"), "{told}");
    let late = look(100_004, there(&[42], 10));
    assert_eq!(moved_away.told(late), "", "nobody waits for it");
    let told = moved_away.told(seen_as(FreezerState::Thawed));
    assert!(told.starts_with("1: a.1 running"), "{told}");
}
