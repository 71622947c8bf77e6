//! From the last process of a step to the release of its GPUs: seen free, given up, lost, met again after a restart.

use agent_core::{Core, GpuHealth, GpuLook, Input, KeptGpus, Output, Seen, TimerKey};
use sluice_common::supervision::{AttemptView, BootMillis, HostPhase};
use sluice_common::time::Span;
use sluice_common::wire::ToNode;

use crate::bench::*;

const MIB: u64 = 1 << 20;

fn there(pids: &[u32], mib: u64) -> Seen {
    Seen::There {
        processes: Some(pids.to_vec()),
        memory_used: Some(mib * MIB),
    }
}

fn look(began: u64, gpus: &[(&str, Seen)]) -> Input {
    let gpus = gpus
        .iter()
        .map(|(uuid, seen)| ((*uuid).to_owned(), seen.clone()));
    Input::Gpus(GpuLook {
        began: BootMillis(began),
        gpus: gpus.collect(),
        memory_available: None,
    })
}

fn with_gpus(mut view: AttemptView, gpus: &[&str]) -> AttemptView {
    view.launch_record.gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
    view
}

fn release_timer(id: &str) -> Input {
    Input::Timer(TimerKey::Release(attempt(id)))
}

fn look_timer() -> Input {
    Input::Timer(TimerKey::Look)
}

/// `a.1` runs with these, which hold 10 MiB when idle.
fn running_with(gpus: &[&str]) -> Bench {
    let mut bench = Bench::linked();
    let idle: Vec<(&str, Seen)> = gpus.iter().map(|gpu| (*gpu, there(&[], 10))).collect();
    bench.feed(look(bench.boot, &idle));
    let mut given = assignment("a.1");
    given.gpus = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
    bench.feed(order(ToNode::Assign(Box::new(given))));
    bench.feed(Input::Attempt(with_gpus(running("a.1"), gpus)));
    bench
}

/// The same with nothing left of it.
fn gone_with(gpus: &[&str]) -> Bench {
    let mut bench = running_with(gpus);
    bench.feed(Input::Attempt(with_gpus(gone("a.1"), gpus)));
    bench
}

#[test]
fn an_attempt_is_released_when_each_of_its_gpus_was_seen_free_after_its_end() {
    let mut bench = running_with(&["GPU-a", "GPU-b"]);
    let told = bench.told(Input::Attempt(with_gpus(gone("a.1"), &["GPU-a", "GPU-b"])));
    assert_eq!(
        told,
        "1: a.1 ended Code(0); release a.1 120000; look; look at 100100"
    );
    let free = || [("GPU-a", there(&[], 10)), ("GPU-b", there(&[], 10))];
    assert_eq!(
        bench.told(look(99_999, &free())),
        "",
        "begun before its end"
    );
    bench.pass(100);
    assert_eq!(bench.told(look_timer()), "look; look at 100200");
    let half = [("GPU-a", there(&[], 10)), ("GPU-b", there(&[42], 10))];
    assert_eq!(bench.told(look(100_100, &half)), "");
    let held = [("GPU-a", there(&[], 10)), ("GPU-b", there(&[], 9000))];
    assert_eq!(bench.told(look(100_200, &held)), "");
    assert_eq!(bench.phase("a.1"), "ended Code(0)");
    let told = bench.told(look(100_300, &free()));
    assert_eq!(told, "1: a.1 released Code(0)");
    assert_eq!(bench.told(look_timer()), "", "nobody waits any more");
    assert_eq!(bench.told(release_timer("a.1")), "");
}

#[test]
fn what_does_not_come_free_is_quarantined_before_it_is_released_and_comes_back_when_it_is() {
    let mut bench = gone_with(&["GPU-a"]);
    bench.feed(look(100_000, &[("GPU-a", there(&[4711], 9000))]));
    bench.pass(19_999);
    assert_eq!(bench.told(release_timer("a.1")), "release a.1 120000");
    bench.pass(1);
    assert_eq!(
        bench.told(release_timer("a.1")),
        "keep; 1: gpus GPU-a quarantined: it is still held by pid 4711; 1: a.1 released Code(0)"
    );
    assert_eq!(bench.told(look_timer()), "look; look at 125000");
    let told = bench.told(look(125_000, &[("GPU-a", there(&[], 9000))]));
    assert_eq!(
        told,
        "keep; 1: gpus GPU-a quarantined: 9000 MiB of its memory are still held, by no process that the driver shows"
    );
    let told = bench.told(look(130_000, &[("GPU-a", there(&[], 10))]));
    assert_eq!(told, "keep; 1: gpus");
    assert_eq!(bench.told(look_timer()), "");
}

#[test]
fn a_silent_driver_is_given_up_on_and_its_gpus_kept_back() {
    let mut bench = gone_with(&["GPU-a"]);
    bench.feed(look(100_100, &[("GPU-a", Seen::Unanswered)]));
    bench.feed(look(100_200, &[]));
    bench.pass(20_000);
    assert_eq!(
        bench.told(release_timer("a.1")),
        "keep; 1: gpus GPU-a quarantined: the driver does not tell whether it is free; 1: a.1 released Code(0)"
    );
}

#[test]
fn what_a_driver_cannot_tell_is_not_waited_for() {
    let mut bench = gone_with(&["GPU-a"]);
    let untold = Seen::There {
        processes: None,
        memory_used: None,
    };
    let told = bench.told(look(100_100, &[("GPU-a", untold)]));
    assert_eq!(told, "1: a.1 released Code(0)");
}

#[test]
fn a_lost_gpu_kills_its_step_at_once_and_is_lost_before_it_is_released() {
    let mut bench = running_with(&["GPU-a"]);
    let told = bench.told(look(100_000, &[("GPU-a", Seen::Lost)]));
    assert_eq!(
        told,
        "1: a.1 stopping GpuLost; KILL a.1; wake a.1 101000; keep; \
         1: gpus GPU-a lost: it does not answer; look at the kernel's log"
    );
    assert_eq!(bench.told(look(100_100, &[("GPU-a", Seen::Lost)])), "");
    bench.feed(Input::Attempt(with_gpus(gone("a.1"), &["GPU-a"])));
    let told = bench.told(look(100_200, &[("GPU-a", Seen::Lost)]));
    assert_eq!(told, "1: a.1 released Code(0)");
    let told = bench.told(look(100_300, &[("GPU-a", there(&[], 10))]));
    assert_eq!(told, "keep; 1: gpus", "it is back");
}

#[test]
fn an_agent_that_starts_anew_waits_for_the_gpus_that_the_supervisor_names() {
    let mut bench = Bench::new();
    bench.feed(up(vec![with_gpus(gone("a.1"), &["GPU-a"])]));
    assert_eq!(bench.phase("a.1"), "ended Code(0)");
    bench.feed(look(100_100, &[("GPU-a", there(&[], 500))]));
    assert_eq!(bench.phase("a.1"), "released Code(0)");
}

#[test]
fn a_gpu_that_another_attempt_was_given_is_not_waited_for() {
    let mut bench = Bench::new();
    let next = view("b.1", HostPhase::Running(process()));
    bench.feed(up(vec![
        with_gpus(gone("a.1"), &["GPU-a"]),
        with_gpus(next, &["GPU-a"]),
    ]));
    bench.feed(look(100_100, &[("GPU-a", there(&[42], 70_000))]));
    assert_eq!(bench.phase("a.1"), "released Code(0)");
    bench.feed(Input::Dialled { link: LINK });
    assert!(!bench.told(welcomed(LINK, 5)).contains("gpus"));
}

#[test]
fn what_was_kept_is_said_in_the_hello_of_the_next_agent() {
    let mut bench = gone_with(&["GPU-a"]);
    bench.feed(look(100_000, &[("GPU-a", there(&[4711], 9000))]));
    bench.pass(20_000);
    let outputs = bench.feed(release_timer("a.1"));
    let kept = outputs.into_iter().find_map(|output| match output {
        Output::SaveGpus(kept) => Some(kept),
        _ => None,
    });
    let kept: KeptGpus = kept.expect("a quarantine is kept");
    let mut next = Bench::new();
    next.core = Core::new(settings(), None).with_gpus(kept);
    next.feed(up(vec![]));
    assert_eq!(
        next.told(Input::Dialled { link: LINK }),
        "greet 1 epoch 0 [] GPU-a quarantined: it is still held by pid 4711"
    );
}

#[test]
fn processes_of_nobody_are_told_and_those_of_a_step_are_not() {
    let mut bench = running_with(&["GPU-a"]);
    let both = [("GPU-a", there(&[42], 900)), ("GPU-b", there(&[7], 900))];
    assert_eq!(
        bench.told(look(100_000, &both)),
        "keep; 1: gpus GPU-b foreign: used by pid 7, which no step started"
    );
    assert_eq!(bench.told(look(100_100, &both)), "");
}

#[test]
fn a_failed_gpu_and_a_failed_host_are_told() {
    let mut bench = Bench::linked();
    let sick = GpuHealth::Quarantine {
        uuid: "GPU-a".to_owned(),
        why: "XID 48".to_owned(),
        is_count: false,
    };
    let told = bench.told(Input::GpuHealth(sick.clone()));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: XID 48");
    assert_eq!(bench.told(Input::GpuHealth(sick)), "");
    let why = "XID 79".to_owned();
    let told = bench.told(Input::GpuHealth(GpuHealth::Drain { why }));
    assert_eq!(
        told,
        "keep; 1: gpus GPU-a quarantined: XID 48 drain: XID 79"
    );
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
    let mut bench = Bench::linked();
    bench.feed(failure("XID 48", false));
    assert_eq!(bench.told(restore()), "look; look at 105000");
    let answers = || [("GPU-a", there(&[], 10))];
    assert_eq!(bench.told(look(99_999, &answers())), "", "begun before");
    assert_eq!(
        bench.told(look(100_000, &[("GPU-a", Seen::Unanswered)])),
        ""
    );
    assert_eq!(bench.told(look(100_100, &answers())), "", "asked for once");
    bench.feed(restore());
    let told = bench.told(look(100_200, &answers()));
    assert_eq!(told, "keep; 1: gpus");
    let told = bench.told(failure("XID 48", false));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: XID 48", "once more");
}

#[test]
fn a_gpu_that_is_lost_stays_so_whatever_an_admin_wants() {
    let mut bench = Bench::linked();
    bench.feed(failure("XID 48", false));
    bench.feed(restore());
    let told = bench.told(look(100_000, &[("GPU-a", Seen::Lost)]));
    assert!(told.starts_with("keep; 1: gpus GPU-a lost"), "{told}");
    let told = bench.told(look(100_100, &[("GPU-a", there(&[], 10))]));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: XID 48");
}

#[test]
fn what_was_counted_before_an_admin_took_a_gpu_back_is_no_new_failure_for_the_next_agent() {
    let mut bench = Bench::linked();
    bench.feed(failure("XID 48", false));
    assert_eq!(bench.told(failure("2 errors", true)), "keep");
    bench.feed(restore());
    let outputs = bench.feed(look(100_000, &[("GPU-a", there(&[], 10))]));
    let kept: Vec<&KeptGpus> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::SaveGpus(kept) => Some(kept),
            _ => None,
        })
        .collect();
    let mut next = Bench::linked_with(kept[0].clone());
    assert_eq!(next.told(failure("2 errors", true)), "");
    let told = next.told(failure("3 errors", true));
    assert_eq!(told, "keep; 1: gpus GPU-a quarantined: 3 errors");
}

fn tuning() -> agent_core::Tuning {
    agent_core::Tuning {
        path: "/bin".to_owned(),
        gpu_release_timeout: Span::from_secs(20),
        respect_foreign: true,
        suspend_limit: Span::from_secs(60),
    }
}

#[test]
fn a_shorter_limit_holds_for_those_who_wait_and_a_longer_one_for_those_who_come() {
    let mut bench = gone_with(&["GPU-a"]);
    let mut shorter = tuning();
    shorter.gpu_release_timeout = Span::from_secs(5);
    assert_eq!(bench.told(Input::Tuned(shorter)), "release a.1 105000");
    assert_eq!(bench.told(Input::Tuned(tuning())), "", "it waits no longer");
    bench.pass(5_000);
    let told = bench.told(release_timer("a.1"));
    assert!(told.contains("GPU-a quarantined"), "{told}");
}

#[test]
fn whether_strangers_count_is_told_as_soon_as_it_is_decided_otherwise() {
    let mut bench = Bench::linked();
    bench.feed(look(100_000, &[("GPU-b", there(&[7], 900))]));
    let mut heedless = tuning();
    heedless.respect_foreign = false;
    assert_eq!(bench.told(Input::Tuned(heedless)), "keep; 1: gpus");
    let told = bench.told(Input::Tuned(tuning()));
    assert!(told.contains("GPU-b foreign: used by pid 7"), "{told}");
    assert_eq!(bench.told(Input::Tuned(tuning())), "");
}
