//! Tests of steps that run on several hosts at once: started all or nothing, and ended together.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::reason::{Detail, ReasonCode};
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::wire::{Assignment, AttemptPhase, Gang, StopReason, ToNode};

use super::harness::*;

fn gang(nodes: u32, gpus: u64) -> StepSpec {
    StepSpec {
        nodes,
        ..spec(gpus, 1000)
    }
}

/// Makes hosts `a`, `b` and `c` with two GPUs each; only `b` has an address.
fn three() -> Harness {
    let mut harness = Harness::new();
    for name in ["a", "b", "c"] {
        let mut words = hello(name, 2, 4);
        if name == "b" {
            words.address = String::from("10.0.0.2");
        }
        harness.hello(words);
    }
    harness
}

fn assignments(sent: &[ToNode]) -> Vec<Assignment> {
    let sent = sent.iter().filter_map(|order| match order {
        ToNode::Assign(assignment) => Some((**assignment).clone()),
        ToNode::Stop { .. }
        | ToNode::Forget { .. }
        | ToNode::Suspend { .. }
        | ToNode::Resume { .. }
        | ToNode::RestoreGpus { .. }
        | ToNode::ShowWarrant { .. }
        | ToNode::Carve(_) => None,
    });
    sent.collect()
}

/// The hosts of the latest attempt, by rank.
fn hosts(harness: &Harness, id: &str) -> Vec<String> {
    let parts = &harness.step(id).latest().unwrap().parts;
    parts.iter().map(|part| part.node.to_string()).collect()
}

fn run_all(harness: &mut Harness, id: &str, attempt: &str) {
    for host in hosts(harness, id) {
        harness.status(&host, attempt, running());
    }
}

#[test]
fn each_host_is_told_of_its_rank_of_the_others_and_where_to_meet() {
    let mut harness = three();
    let effects = harness.feed(crate::Input::Submit {
        reply: crate::ReplyId(1),
        steps: vec![crate::NewStep::new(step("g"), gang(3, 2))],
    });
    let assignments = assignments(&effects.sent);
    let addresses = ["a", "10.0.0.2", "c"].map(String::from).to_vec();
    let gangs: Vec<Gang> = assignments.iter().map(|part| part.gang.clone()).collect();
    let expected = |rank| Gang {
        rank,
        hosts: addresses.clone(),
        port: Some(29_500),
    };
    assert_eq!(gangs, [expected(0), expected(1), expected(2)]);
    assert_eq!(hosts(&harness, "g"), ["a", "b", "c"]);
    for part in &assignments {
        assert_eq!(part.gpus.len(), 2, "each host gives its own share");
    }
}

#[test]
fn gangs_that_meet_on_one_host_meet_at_ports_of_their_own() {
    let mut harness = three();
    for id in ["g", "h"] {
        harness.submit(id, gang(3, 1)).unwrap();
    }
    let port = |harness: &Harness, id| harness.step(id).latest().unwrap().port;
    assert_eq!(hosts(&harness, "g"), hosts(&harness, "h"));
    assert_eq!(
        (port(&harness, "g"), port(&harness, "h")),
        (Some(29_500), Some(29_501))
    );
    for host in ["a", "b", "c"] {
        harness.status(host, "g.1", released(Exit::Code(0)));
    }
    harness.submit("i", gang(2, 1)).unwrap();
    assert_eq!(port(&harness, "i"), Some(29_500), "it is free again");
    harness.submit("one", spec(0, 1000)).unwrap();
    assert_eq!(port(&harness, "one"), None);
}

#[test]
fn a_gang_waits_until_all_its_hosts_are_free_at_once() {
    let mut harness = three();
    harness.submit("x", spec(2, 1000)).unwrap();
    harness.submit("g", gang(3, 1)).unwrap();
    assert_eq!(harness.state("g"), StepState::Queued);
    assert_eq!(harness.code("g"), ReasonCode::WaitingForUnits);
    let on = harness.placed("x").0;
    harness.status(&on, "x.1", released(Exit::Code(0)));
    assert_eq!(harness.state("g"), StepState::Allocated);
}

#[test]
fn it_runs_once_all_of_it_does_and_succeeds_once_all_of_it_has() {
    let mut harness = three();
    harness.submit("g", gang(2, 2)).unwrap();
    let on = hosts(&harness, "g");
    harness.status(&on[0], "g.1", running());
    harness.status(&on[1], "g.1", AttemptPhase::Starting);
    assert_eq!(harness.state("g"), StepState::Starting);
    harness.status(&on[1], "g.1", running());
    assert_eq!(harness.state("g"), StepState::Running);
    let effects = harness.status(&on[1], "g.1", released(Exit::Code(0)));
    assert_eq!(
        effects.orders,
        ["forget g.1"],
        "a part that has done its work stops nobody"
    );
    assert_eq!(harness.state("g"), StepState::Running);
    harness.status(&on[0], "g.1", released(Exit::Code(0)));
    assert_eq!(harness.state("g"), StepState::Succeeded);
}

#[test]
fn one_part_that_fails_ends_all_as_one_and_is_named() {
    for (exit, code) in [
        (Exit::Code(3), ReasonCode::NonZeroExit),
        (Exit::Signal(11), ReasonCode::KilledBySignal),
        (
            Exit::StartFailed("no such file".into()),
            ReasonCode::StartFailed,
        ),
    ] {
        let mut harness = three();
        harness.submit("g", gang(3, 2)).unwrap();
        run_all(&mut harness, "g", "g.1");
        let effects = harness.status("b", "g.1", released(exit));
        let stop = "stop g.1 PeerEnded 7s".to_string();
        assert_eq!(effects.orders, [stop.clone(), stop, "forget g.1".into()]);
        assert_eq!(harness.state("g"), StepState::Stopping);
        assert_eq!(harness.code("g"), ReasonCode::PeerEnded);
        for host in ["a", "c"] {
            harness.status(host, "g.1", gone(Exit::Signal(15), StopReason::PeerEnded));
        }
        assert_eq!(
            (harness.state("g"), harness.code("g")),
            (StepState::Failed, code)
        );
        let reason = harness.reason("g");
        assert!(reason.message.starts_with("rank 1 on `b`: "), "{reason:?}");
        assert_eq!(reason.detail["rank"], Detail::from(1));
        assert!(
            harness
                .core
                .state()
                .attempts_on(&node("a"))
                .next()
                .is_none()
        );
    }
}

#[test]
fn a_part_whose_host_is_lost_ends_all_and_the_step_waits_again_for_free() {
    let mut harness = three();
    harness.submit("g", gang(2, 2)).unwrap();
    run_all(&mut harness, "g", "g.1");
    let on = hosts(&harness, "g");
    harness.gone(&on[0]);
    for _ in 0..40 {
        for host in ["a", "b", "c"].iter().filter(|host| **host != on[0]) {
            harness.heartbeat(host);
        }
        harness.pass(10);
    }
    assert_eq!(
        harness.state("g"),
        StepState::Stopping,
        "the other host still runs its part"
    );
    let left = gone(Exit::Signal(15), StopReason::PeerEnded);
    harness.status(&on[1], "g.1", left);
    assert_eq!(
        harness.state("g"),
        StepState::Allocated,
        "on the two hosts that are left"
    );
    assert_eq!(harness.step("g").retries_spent, 0);
    assert!(!hosts(&harness, "g").contains(&on[0]));
}

#[test]
fn a_part_that_its_host_stops_for_the_time_stops_all() {
    let mut harness = three();
    harness.submit("g", gang(2, 2)).unwrap();
    run_all(&mut harness, "g", "g.1");
    let on = hosts(&harness, "g");
    let effects = harness.status(&on[1], "g.1", stopping(StopReason::TimedOut));
    assert_eq!(effects.orders, ["stop g.1 TimedOut 7s"]);
    for host in &on {
        harness.status(host, "g.1", gone(Exit::Signal(15), StopReason::TimedOut));
    }
    assert_eq!(
        (harness.state("g"), harness.code("g")),
        (StepState::Failed, ReasonCode::TimedOut)
    );
}

#[test]
fn a_cancel_stops_every_part_and_holds_whatever_one_of_them_says() {
    let mut harness = three();
    harness.submit("g", gang(3, 1)).unwrap();
    run_all(&mut harness, "g", "g.1");
    assert_eq!(harness.cancel("g").orders, vec!["stop g.1 Cancelled 7s"; 3]);
    for (host, exit) in [
        ("a", Exit::Code(1)),
        ("b", Exit::Code(0)),
        ("c", Exit::Signal(9)),
    ] {
        harness.status(host, "g.1", gone(exit, StopReason::Cancelled));
    }
    assert_eq!(harness.state("g"), StepState::Cancelled);
}

#[test]
fn a_host_that_comes_back_hears_that_its_peers_have_ended() {
    let mut harness = three();
    harness.submit("g", gang(2, 2)).unwrap();
    run_all(&mut harness, "g", "g.1");
    let on = hosts(&harness, "g");
    harness.gone(&on[0]);
    let effects = harness.status(&on[1], "g.1", released(Exit::Code(1)));
    assert_eq!(effects.orders, ["forget g.1"], "nobody else is linked");
    let mut words = hello(&on[0], 2, 4);
    words.highest_epoch = Some(epoch(1).into());
    let effects = harness.hello(holding(words, vec![status("g.1", running())]));
    assert_eq!(effects.orders, ["stop g.1 PeerEnded 7s"]);
    harness.status(&on[0], "g.1", gone(Exit::Signal(15), StopReason::PeerEnded));
    assert_eq!(harness.state("g"), StepState::Failed);
}

#[test]
fn one_that_no_number_of_remembered_hosts_could_hold_is_rejected() {
    let mut harness = three();
    harness.submit("g", gang(4, 1)).unwrap();
    assert_eq!(
        (harness.state("g"), harness.code("g")),
        (StepState::Rejected, ReasonCode::NoHostFits)
    );
    let message = harness.reason("g").message;
    assert!(
        message.contains("4 hosts at once, and 3 of pool"),
        "{message}"
    );
    assert_eq!(format!("{}", harness.step("g").attempts.len()), "0");
}
