//! Tests of when a GPU counts as free, foreign, quarantined and healthy again.

use super::*;
use alloc::vec;

const GPU: &str = "GPU-a";

fn there(pids: &[u32], mib: u64) -> GpuObservation {
    GpuObservation::Present {
        processes: Some(pids.to_vec()),
        memory_used: Some(mib * MIB),
    }
}

fn idle_at(mib: u64) -> Gpus {
    let mut gpus = Gpus::new(true);
    gpus.observe(GPU, &there(&[], mib), GpuUse::Unused);
    gpus
}

fn fault(gpus: &Gpus) -> Option<GpuFault> {
    gpus.states().faults.remove(GPU)
}

#[test]
fn a_gpu_is_free_without_processes_and_with_its_memory_back() {
    let gpus = idle_at(500);
    for (seen, expected) in [
        (there(&[], 500), None),
        (there(&[], 628), None),
        (
            there(&[], 629),
            Some("629 MiB of its memory are still in use, by no process that the driver shows"),
        ),
        (there(&[7], 500), Some("it is still held by pid 7")),
        (
            GpuObservation::NoAnswer,
            Some("the driver does not report whether it is free"),
        ),
        (GpuObservation::Lost, None),
        (
            GpuObservation::Present {
                processes: None,
                memory_used: None,
            },
            None,
        ),
    ] {
        let busy = gpus.busy(GPU, &seen);
        assert_eq!(busy.as_ref().map(|b| b.why.as_str()), expected, "{seen:?}");
    }
}

#[test]
fn a_gpu_that_was_never_idle_may_hold_what_drivers_do() {
    let gpus = Gpus::new(true);
    assert_eq!(gpus.busy(GPU, &there(&[], 1152)), None);
    assert!(gpus.busy(GPU, &there(&[], 1153)).is_some());
}

#[test]
fn what_an_attempt_does_says_nothing_of_the_idle_level() {
    let mut gpus = idle_at(10);
    for hands in [GpuUse::Attempt, GpuUse::Awaited] {
        gpus.observe(GPU, &there(&[], 70_000), hands);
        assert!(gpus.busy(GPU, &there(&[], 70_000)).is_some(), "{hands:?}");
    }
}

#[test]
fn processes_of_nobody_are_foreign_while_they_are_there_and_that_is_respected() {
    let mut gpus = idle_at(10);
    gpus.observe(GPU, &there(&[7], 900), GpuUse::Unused);
    assert_eq!(fault(&gpus), Some(GpuFault::Foreign { pids: vec![7] }));
    gpus.observe(GPU, &there(&[], 10), GpuUse::Unused);
    assert_eq!(fault(&gpus), None);
    gpus.respect_foreign = false;
    gpus.observe(GPU, &there(&[7], 900), GpuUse::Unused);
    assert_eq!(fault(&gpus), None);
}

#[test]
fn those_that_were_there_before_do_not_count_nor_does_their_memory() {
    let mut gpus = Gpus::new(false);
    gpus.observe(GPU, &there(&[7], 900), GpuUse::Unused);
    assert_eq!(gpus.busy(GPU, &there(&[7], 5000)), None);
    assert!(gpus.busy(GPU, &there(&[7, 8], 900)).is_some());
    // The process ended while an attempt had the GPU, so its pid may be reused.
    gpus.observe(GPU, &there(&[8], 900), GpuUse::Attempt);
    assert!(gpus.busy(GPU, &there(&[7], 900)).is_some());
}

#[test]
fn a_quarantined_gpu_comes_back_when_it_is_seen_free() {
    let mut gpus = idle_at(10);
    let holders = gpus.busy(GPU, &there(&[7], 900)).unwrap();
    gpus.quarantine(GPU, holders);
    assert!(gpus.any_held());
    gpus.observe(GPU, &there(&[], 900), GpuUse::Unused);
    let why = "900 MiB of its memory are still in use, by no process that the driver shows";
    let pids = Vec::new();
    assert_eq!(
        fault(&gpus),
        Some(GpuFault::Quarantined {
            why: why.into(),
            pids
        })
    );
    gpus.observe(GPU, &GpuObservation::NoAnswer, GpuUse::Unused);
    assert!(fault(&gpus).is_some());
    gpus.observe(GPU, &there(&[], 10), GpuUse::Unused);
    assert_eq!((fault(&gpus), gpus.any_held()), (None, false));
}

#[test]
fn a_sick_gpu_stays_so_and_a_lost_one_until_it_answers() {
    let mut gpus = idle_at(10);
    gpus.mark_unhealthy(GPU, "XID 48".into(), false);
    gpus.mark_unhealthy(GPU, "XID 63".into(), false);
    gpus.observe(GPU, &GpuObservation::Lost, GpuUse::Unused);
    assert_eq!(fault(&gpus), Some(GpuFault::Lost));
    gpus.observe(GPU, &there(&[], 10), GpuUse::Unused);
    let pids = Vec::new();
    assert_eq!(
        fault(&gpus),
        Some(GpuFault::Quarantined {
            why: "XID 48".into(),
            pids
        })
    );
}

#[test]
fn what_was_kept_is_taken_over() {
    let mut gpus = idle_at(10);
    gpus.quarantine(
        GPU,
        GpuHolders {
            why: "held".into(),
            pids: vec![7],
        },
    );
    let mut next = Gpus::new(true);
    next.remember(gpus.kept());
    assert_eq!(next.states(), gpus.states());
    assert!(
        next.busy(GPU, &there(&[], 500)).is_some(),
        "its idle level too"
    );
}

fn quarantined(why: &str) -> Option<GpuFault> {
    Some(GpuFault::Quarantined {
        why: why.into(),
        pids: Vec::new(),
    })
}

fn give_back(gpus: &mut Gpus, seen: &GpuObservation) {
    gpus.request_restore(GPU, BootMillis(1));
    gpus.give_back(GPU, seen, BootMillis(1));
}

#[test]
fn a_gpu_is_unfit_while_a_condition_lasts_unless_an_admin_accepts_it() {
    let mut gpus = idle_at(10);
    let set = |gpus: &mut Gpus, whys: &[&str]| {
        gpus.set_conditions(GPU, whys.iter().map(ToString::to_string).collect());
    };
    set(&mut gpus, &["a", "b"]);
    assert_eq!(fault(&gpus), quarantined("a; b"));
    set(&mut gpus, &["a"]);
    assert_eq!(fault(&gpus), quarantined("a"));
    give_back(&mut gpus, &there(&[], 10));
    assert_eq!(fault(&gpus), None, "accepted");
    let mut next = Gpus::new(true);
    next.remember(gpus.kept());
    next.observe(GPU, &there(&[], 10), GpuUse::Unused);
    set(&mut next, &["a", "b"]);
    assert_eq!(fault(&next), quarantined("b"), "by the next agent too");
    set(&mut next, &[]);
    assert_eq!(fault(&next), None);
    set(&mut next, &["a"]);
    assert_eq!(fault(&next), quarantined("a"), "it came again");
}

#[test]
fn memory_that_nobody_who_is_seen_uses_is_no_idle_memory() {
    let mut gpus = idle_at(10);
    gpus.observe(GPU, &there(&[], 20_000), GpuUse::Unused);
    assert_eq!(fault(&gpus), quarantined(USED_UNSEEN));
    gpus.observe(GPU, &there(&[], 10), GpuUse::Unused);
    assert_eq!(fault(&gpus), None);
    let untold = GpuObservation::Present {
        processes: None,
        memory_used: Some(20_000 * MIB),
    };
    gpus.observe(GPU, &untold, GpuUse::Unused);
    assert_eq!(fault(&gpus), None, "the driver hides who uses it");
    gpus.observe(GPU, &there(&[], 20_000), GpuUse::Unused);
    give_back(&mut gpus, &there(&[], 20_000));
    gpus.observe(GPU, &there(&[], 20_000), GpuUse::Unused);
    assert_eq!(fault(&gpus), None, "an admin took it for idle");
    assert_eq!(gpus.busy(GPU, &there(&[], 20_000)), None);
}

#[test]
fn a_condition_of_a_gpu_outlives_how_it_is_cut() {
    let mut gpus = idle_at(10);
    gpus.set_conditions(GPU, ["a".to_string()].into());
    let cut = [(GPU.to_string(), ["MIG-1".to_string()].into())];
    gpus.learn_units(&cut.into(), |_| false);
    assert_eq!(fault(&gpus), quarantined("a"));
}
