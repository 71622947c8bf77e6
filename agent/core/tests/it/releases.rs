//! From a step's last process to the release of its GPUs: seen free, given up, lost, or adopted after a
//! restart.

use std::collections::BTreeMap;

use agent_core::{Core, GpuHealth, GpuObservation, GpuScan, Input, Output, StoredGpus, TimerKey};
use sluice_common::supervision::{AttemptView, BootMillis, HostPhase};
use sluice_common::time::Span;
use sluice_common::wire::ToNode;

use crate::harness::*;

const MIB: u64 = 1 << 20;

fn there(pids: &[u32], mib: u64) -> GpuObservation {
    GpuObservation::Present {
        processes: Some(pids.to_vec()),
        memory_used: Some(mib * MIB),
    }
}

fn look(began: u64, gpus: &[(&str, GpuObservation)]) -> Input {
    let gpus = gpus
        .iter()
        .map(|(uuid, seen)| ((*uuid).to_owned(), seen.clone()));
    Input::Gpus(GpuScan {
        began: BootMillis(began),
        gpus: gpus.collect(),
        units: BTreeMap::new(),
        memory_available: None,
    })
}

/// A look that has read all units of one GPU.
fn look_at(began: u64, gpu: &str, units: &[(&str, GpuObservation)]) -> Input {
    let Input::Gpus(mut scan) = look(began, units) else {
        unreachable!()
    };
    let names = scan.gpus.keys().cloned().collect();
    scan.units.insert(gpu.to_owned(), names);
    Input::Gpus(scan)
}

fn with_gpus(mut view: AttemptView, gpus: &[&str]) -> AttemptView {
    view.launch_record.gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
    view
}

fn release_timer(id: &str) -> Input {
    Input::Timer(TimerKey::Release(attempt(id)))
}

fn look_timer() -> Input {
    Input::Timer(TimerKey::GpuScan)
}

/// `a.1` runs with these GPUs, which have 10 MiB in use when idle.
fn running_with(gpus: &[&str]) -> Harness {
    let mut harness = Harness::linked();
    let idle: Vec<(&str, GpuObservation)> = gpus.iter().map(|gpu| (*gpu, there(&[], 10))).collect();
    harness.feed(look(harness.boot, &idle));
    let mut assigned_gpus = assignment("a.1");
    assigned_gpus.gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
    harness.feed(order(ToNode::Assign(Box::new(assigned_gpus))));
    harness.feed(Input::Attempt(with_gpus(running("a.1"), gpus)));
    harness
}

/// The same, with no process left.
fn gone_with(gpus: &[&str]) -> Harness {
    let mut harness = running_with(gpus);
    harness.feed(Input::Attempt(with_gpus(gone("a.1"), gpus)));
    harness
}

#[test]
fn an_attempt_is_released_when_each_of_its_gpus_was_seen_free_after_its_end() {
    let mut harness = running_with(&["GPU-a", "GPU-b"]);
    let told = harness.told(Input::Attempt(with_gpus(gone("a.1"), &["GPU-a", "GPU-b"])));
    assert_eq!(
        told,
        "1: a.1 ended Code(0); release a.1 120000; look; look at 100100"
    );
    let free = || [("GPU-a", there(&[], 10)), ("GPU-b", there(&[], 10))];
    assert_eq!(
        harness.told(look(99_999, &free())),
        "",
        "begun before its end"
    );
    harness.pass(100);
    assert_eq!(harness.told(look_timer()), "look; look at 100200");
    let half = [("GPU-a", there(&[], 10)), ("GPU-b", there(&[42], 10))];
    assert_eq!(harness.told(look(100_100, &half)), "");
    let held = [("GPU-a", there(&[], 10)), ("GPU-b", there(&[], 9000))];
    assert_eq!(harness.told(look(100_200, &held)), "");
    assert_eq!(harness.phase("a.1"), "ended Code(0)");
    let told = harness.told(look(100_300, &free()));
    assert_eq!(told, "1: a.1 released Code(0)");
    assert_eq!(harness.told(look_timer()), "", "nobody waits any more");
    assert_eq!(harness.told(release_timer("a.1")), "");
}

#[test]
fn what_does_not_come_free_is_quarantined_before_it_is_released_and_comes_back_when_it_is() {
    let mut harness = gone_with(&["GPU-a"]);
    harness.feed(look(100_000, &[("GPU-a", there(&[4711], 9000))]));
    harness.pass(19_999);
    assert_eq!(harness.told(release_timer("a.1")), "release a.1 120000");
    harness.pass(1);
    assert_eq!(
        harness.told(release_timer("a.1")),
        "keep; 1: gpus GPU-a quarantined: it is still held by pid 4711; 1: a.1 released Code(0)"
    );
    assert_eq!(harness.told(look_timer()), "look; look at 125000");
    let told = harness.told(look(125_000, &[("GPU-a", there(&[], 9000))]));
    assert_eq!(
        told,
        "keep; 1: gpus GPU-a quarantined: 9000 MiB of its memory are still in use, by no process that the driver shows"
    );
    let told = harness.told(look(130_000, &[("GPU-a", there(&[], 10))]));
    assert_eq!(told, "keep; 1: gpus");
    assert_eq!(harness.told(look_timer()), "");
}

#[test]
fn a_gpu_that_was_cut_under_a_step_is_free_when_its_instances_are() {
    let mut harness = gone_with(&["GPU-a"]);
    let cut = |began, pids: &[u32]| {
        let units = [("MIG-1", there(&[], 10)), ("MIG-2", there(pids, 10))];
        look_at(began, "GPU-a", &units)
    };
    assert_eq!(harness.told(cut(100_100, &[7])), "keep");
    assert_eq!(harness.phase("a.1"), "ended Code(0)");
    let told = harness.told(cut(100_200, &[]));
    assert_eq!(told, "1: a.1 released Code(0)");
}

#[test]
fn an_instance_that_is_gone_is_free_when_its_gpu_is_and_leaves_nothing_behind() {
    let mut harness = gone_with(&["MIG-1"]);
    harness.feed(look_at(100_000, "GPU-a", &[("MIG-1", there(&[7], 10))]));
    let whole = |began, pids: &[u32]| look_at(began, "GPU-a", &[("GPU-a", there(pids, 10))]);
    assert_eq!(harness.told(whole(100_100, &[7])), "", "it is of the step");
    harness.pass(20_000);
    let told = harness.told(release_timer("a.1"));
    assert_eq!(
        told,
        "keep; 1: gpus GPU-a quarantined: it is still held by pid 7; 1: a.1 released Code(0)"
    );
    let told = harness.told(whole(121_000, &[]));
    assert_eq!(told, "keep; 1: gpus");
}

#[test]
fn what_runs_on_a_gpu_is_of_its_step_however_the_gpu_is_cut_meanwhile() {
    let mut harness = running_with(&["GPU-a"]);
    let units = [("MIG-1", there(&[7], 900)), ("MIG-2", there(&[], 10))];
    let told = harness.told(look_at(100_000, "GPU-a", &units));
    assert_eq!(told, "keep", "nobody else uses it");
    let lost = [("MIG-1", GpuObservation::Lost)];
    let told = harness.told(look_at(100_100, "GPU-a", &lost));
    assert!(
        told.starts_with("1: a.1 stopping GpuLost; KILL a.1"),
        "{told}"
    );

    let mut harness = running_with(&["MIG-1"]);
    harness.feed(look_at(100_000, "GPU-a", &[("MIG-1", there(&[7], 900))]));
    let whole = |seen| look_at(100_100, "GPU-a", &[("GPU-a", seen)]);
    assert_eq!(harness.told(whole(there(&[7], 900))), "");
    let told = harness.told(look_at(
        100_200,
        "GPU-a",
        &[("GPU-a", GpuObservation::Lost)],
    ));
    assert!(
        told.starts_with("1: a.1 stopping GpuLost; KILL a.1"),
        "{told}"
    );
}

#[test]
fn the_fault_of_an_instance_goes_with_it_and_that_of_the_hardware_stays() {
    let mut harness = Harness::linked();
    let cut = |began| look_at(began, "GPU-a", &[("MIG-1", there(&[7], 10))]);
    let foreign = "MIG-1 foreign: used by pid 7, which no step started";
    let told = harness.told(cut(100_000));
    assert_eq!(told, format!("keep; keep; 1: gpus {foreign}"));
    harness.feed(failure("XID 48", false));
    let told = harness.told(look_at(100_100, "GPU-a", &[("GPU-a", there(&[], 10))]));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: XID 48");
    let told = harness.told(cut(100_200));
    let expected = format!("keep; keep; 1: gpus GPU-a quarantined: XID 48 {foreign}");
    assert_eq!(told, expected);
}

#[test]
fn a_silent_driver_is_given_up_on_and_its_gpus_kept_back() {
    let mut harness = gone_with(&["GPU-a"]);
    harness.feed(look(100_100, &[("GPU-a", GpuObservation::NoAnswer)]));
    harness.feed(look(100_200, &[]));
    harness.pass(20_000);
    assert_eq!(
        harness.told(release_timer("a.1")),
        "keep; 1: gpus GPU-a quarantined: the driver does not report whether it is free; 1: a.1 released Code(0)"
    );
}

#[test]
fn what_a_driver_cannot_tell_is_not_waited_for() {
    let mut harness = gone_with(&["GPU-a"]);
    let untold = GpuObservation::Present {
        processes: None,
        memory_used: None,
    };
    let told = harness.told(look(100_100, &[("GPU-a", untold)]));
    assert_eq!(told, "1: a.1 released Code(0)");
}

#[test]
fn a_lost_gpu_kills_its_step_at_once_and_is_lost_before_it_is_released() {
    let mut harness = running_with(&["GPU-a"]);
    let told = harness.told(look(100_000, &[("GPU-a", GpuObservation::Lost)]));
    assert_eq!(
        told,
        "1: a.1 stopping GpuLost; KILL a.1; wake a.1 101000; keep; \
         1: gpus GPU-a lost: it does not answer; look at the kernel's log"
    );
    assert_eq!(
        harness.told(look(100_100, &[("GPU-a", GpuObservation::Lost)])),
        ""
    );
    harness.feed(Input::Attempt(with_gpus(gone("a.1"), &["GPU-a"])));
    let told = harness.told(look(100_200, &[("GPU-a", GpuObservation::Lost)]));
    assert_eq!(told, "1: a.1 released Code(0)");
    let told = harness.told(look(100_300, &[("GPU-a", there(&[], 10))]));
    assert_eq!(told, "keep; 1: gpus", "it is back");
}

#[test]
fn an_agent_that_starts_anew_waits_for_the_gpus_that_the_supervisor_names() {
    let mut harness = Harness::new();
    harness.feed(up(vec![with_gpus(gone("a.1"), &["GPU-a"])]));
    assert_eq!(harness.phase("a.1"), "ended Code(0)");
    harness.feed(look(100_100, &[("GPU-a", there(&[], 500))]));
    assert_eq!(harness.phase("a.1"), "released Code(0)");
}

#[test]
fn a_gpu_that_another_attempt_was_given_is_not_waited_for() {
    let mut harness = Harness::new();
    let next = view("b.1", HostPhase::Running(process()));
    harness.feed(up(vec![
        with_gpus(gone("a.1"), &["GPU-a"]),
        with_gpus(next, &["GPU-a"]),
    ]));
    harness.feed(look(100_100, &[("GPU-a", there(&[42], 70_000))]));
    assert_eq!(harness.phase("a.1"), "released Code(0)");
    harness.feed(Input::Dialled { link: LINK });
    assert!(!harness.told(welcomed(LINK, 5)).contains("gpus"));
}

#[test]
fn what_was_kept_is_said_in_the_hello_of_the_next_agent() {
    let mut harness = gone_with(&["GPU-a"]);
    harness.feed(look(100_000, &[("GPU-a", there(&[4711], 9000))]));
    harness.pass(20_000);
    let outputs = harness.feed(release_timer("a.1"));
    let kept = outputs.into_iter().find_map(|output| match output {
        Output::SaveGpus(kept) => Some(kept),
        _ => None,
    });
    let kept: StoredGpus = kept.expect("a quarantine is kept");
    let mut next = Harness::new();
    next.core = Core::new(settings(), None).with_gpus(kept);
    next.feed(up(vec![]));
    assert_eq!(
        next.told(Input::Dialled { link: LINK }),
        "greet 1 epoch 0 [] GPU-a quarantined: it is still held by pid 4711"
    );
}

#[test]
fn processes_of_nobody_are_told_and_those_of_a_step_are_not() {
    let mut harness = running_with(&["GPU-a"]);
    let both = [("GPU-a", there(&[42], 900)), ("GPU-b", there(&[7], 900))];
    assert_eq!(
        harness.told(look(100_000, &both)),
        "keep; 1: gpus GPU-b foreign: used by pid 7, which no step started"
    );
    assert_eq!(harness.told(look(100_100, &both)), "");
}

#[test]
fn a_failed_gpu_and_a_failed_host_are_told() {
    let mut harness = Harness::linked();
    let sick = GpuHealth::Quarantine {
        uuid: "GPU-a".to_owned(),
        why: "XID 48".to_owned(),
        is_count: false,
    };
    let told = harness.told(Input::GpuHealth(sick.clone()));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: XID 48");
    assert_eq!(harness.told(Input::GpuHealth(sick)), "");
    let why = "XID 79".to_owned();
    let told = harness.told(Input::GpuHealth(GpuHealth::Drain { why }));
    assert_eq!(
        told,
        "keep; 1: gpus GPU-a quarantined: XID 48 drain: XID 79"
    );
    let why = "XID 119".to_owned();
    let told = harness.told(Input::GpuHealth(GpuHealth::Drain { why }));
    assert!(told.ends_with("drain: XID 119"), "each cause: {told}");
}

fn failure(why: &str, is_count: bool) -> Input {
    Input::GpuHealth(GpuHealth::Quarantine {
        uuid: "GPU-a".to_owned(),
        why: why.to_owned(),
        is_count,
    })
}

fn restore() -> Input {
    order(ToNode::RestoreGpus {
        gpus: vec!["GPU-a".to_owned(), "GPU-unheard-of".to_owned()],
    })
}

#[test]
fn a_gpu_that_failed_comes_back_when_an_admin_wants_it_and_it_answers() {
    let mut harness = Harness::linked();
    harness.feed(failure("XID 48", false));
    assert_eq!(harness.told(restore()), "look; look at 105000");
    let answers = || [("GPU-a", there(&[], 10))];
    assert_eq!(harness.told(look(99_999, &answers())), "", "begun before");
    assert_eq!(
        harness.told(look(100_000, &[("GPU-a", GpuObservation::NoAnswer)])),
        ""
    );
    assert_eq!(
        harness.told(look(100_100, &answers())),
        "",
        "asked for once"
    );
    harness.feed(restore());
    let told = harness.told(look(100_200, &answers()));
    assert_eq!(told, "keep; 1: gpus");
    let told = harness.told(failure("XID 48", false));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: XID 48", "once more");
}

#[test]
fn a_gpu_that_is_lost_stays_so_whatever_an_admin_wants() {
    let mut harness = Harness::linked();
    harness.feed(failure("XID 48", false));
    harness.feed(restore());
    let told = harness.told(look(100_000, &[("GPU-a", GpuObservation::Lost)]));
    assert!(told.starts_with("keep; 1: gpus GPU-a lost"), "{told}");
    let told = harness.told(look(100_100, &[("GPU-a", there(&[], 10))]));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: XID 48");
}

#[test]
fn what_was_counted_before_an_admin_took_a_gpu_back_is_no_new_failure_for_the_next_agent() {
    let mut harness = Harness::linked();
    harness.feed(failure("XID 48", false));
    assert_eq!(harness.told(failure("2 errors", true)), "keep");
    harness.feed(restore());
    let outputs = harness.feed(look(100_000, &[("GPU-a", there(&[], 10))]));
    let kept: Vec<&StoredGpus> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::SaveGpus(kept) => Some(kept),
            _ => None,
        })
        .collect();
    let mut next = Harness::linked_with(kept[0].clone());
    assert_eq!(next.told(failure("2 errors", true)), "");
    let told = next.told(failure("3 errors", true));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: 3 errors");
}

fn tuning() -> agent_core::ReloadedSettings {
    agent_core::ReloadedSettings {
        path: "/bin".to_owned(),
        gpu_release_timeout: Span::from_secs(20),
        respect_foreign: true,
        suspend_limit: Span::from_secs(60),
    }
}

#[test]
fn a_shorter_limit_holds_for_those_who_wait_and_a_longer_one_for_those_who_come() {
    let mut harness = gone_with(&["GPU-a"]);
    let mut shorter = tuning();
    shorter.gpu_release_timeout = Span::from_secs(5);
    assert_eq!(harness.told(Input::Tuned(shorter)), "release a.1 105000");
    assert_eq!(
        harness.told(Input::Tuned(tuning())),
        "",
        "it waits no longer"
    );
    harness.pass(5_000);
    let told = harness.told(release_timer("a.1"));
    assert!(told.contains("GPU-a quarantined"), "{told}");
}

#[test]
fn whether_strangers_count_is_told_as_soon_as_it_is_decided_otherwise() {
    let mut harness = Harness::linked();
    harness.feed(look(100_000, &[("GPU-b", there(&[7], 900))]));
    let mut heedless = tuning();
    heedless.respect_foreign = false;
    assert_eq!(harness.told(Input::Tuned(heedless)), "keep; 1: gpus");
    let told = harness.told(Input::Tuned(tuning()));
    assert!(told.contains("GPU-b foreign: used by pid 7"), "{told}");
    assert_eq!(harness.told(Input::Tuned(tuning())), "");
}

/// The allocation `a.1` has a GPU, and the step `b.1` inside it has used it and is gone.
fn used_inside(restarted: bool) -> Harness {
    let mut harness = Harness::linked();
    harness.feed(look(harness.boot, &[("GPU-a", there(&[], 10))]));
    let of_allocation = |mut view: AttemptView| {
        view.launch_record.is_allocation = true;
        with_gpus(view, &["GPU-a"])
    };
    for (id, is_allocation) in [("a.1", true), ("b.1", false)] {
        let mut assigned = assignment(id);
        assigned.gpus = vec!["GPU-a".to_owned()];
        if is_allocation {
            assigned.command.clear();
        }
        harness.feed(order(ToNode::Assign(Box::new(assigned))));
    }
    harness.feed(Input::Attempt(of_allocation(running("a.1"))));
    harness.feed(Input::Attempt(with_gpus(running("b.1"), &["GPU-a"])));
    let last = with_gpus(gone("b.1"), &["GPU-a"]);
    match restarted {
        true => {
            harness.feed(down());
            harness.feed(up(vec![of_allocation(running("a.1")), last]));
        }
        false => drop(harness.feed(Input::Attempt(last))),
    }
    harness
}

#[test]
fn a_gpu_of_a_step_inside_an_allocation_is_seen_free_although_the_allocation_keeps_it() {
    for restarted in [false, true] {
        let mut harness = used_inside(restarted);
        harness.feed(look(harness.boot, &[("GPU-a", there(&[], 9000))]));
        assert_eq!(harness.phase("b.1"), "ended Code(0)", "{restarted}");
        let told = harness.told(look(harness.boot, &[("GPU-a", there(&[], 10))]));
        assert_eq!(told, "1: b.1 released Code(0)", "{restarted}");
    }
}

#[test]
fn one_that_did_not_come_free_inside_an_allocation_is_fit_again_once_it_is_seen_free() {
    let mut harness = used_inside(false);
    let held = [("GPU-a", there(&[4711], 9000))];
    harness.feed(look(harness.boot, &held));
    harness.pass(20_000);
    assert_eq!(
        harness.told(release_timer("b.1")),
        "keep; 1: gpus GPU-a quarantined: it is still held by pid 4711; 1: b.1 released Code(0)"
    );
    assert_eq!(harness.told(look(harness.boot, &held)), "");
    let told = harness.told(look(harness.boot, &[("GPU-a", there(&[], 10))]));
    assert_eq!(told, "keep; 1: gpus");
}

#[test]
fn an_allocation_that_ends_first_does_not_wait_for_the_gpus_of_a_step_inside_it() {
    let mut harness = Harness::linked();
    harness.feed(look(harness.boot, &[("GPU-a", there(&[], 10))]));
    let mut of_allocation = with_gpus(gone("a.1"), &["GPU-a"]);
    of_allocation.launch_record.is_allocation = true;
    harness.feed(up(vec![
        of_allocation,
        with_gpus(running("b.1"), &["GPU-a"]),
    ]));
    harness.feed(look(harness.boot, &[("GPU-a", there(&[42], 9000))]));
    assert_eq!(harness.phase("a.1"), "released Code(0)");
    assert_eq!(harness.phase("b.1"), "running");
}
