//! What a host says it holds, against what is true here.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, AttemptStatus};

use super::rig::*;

fn back(attempts: Vec<AttemptStatus>) -> sluice_common::wire::Hello {
    holding(hello("n", 1, 4), attempts)
}

/// One GPU, step `a` on it.
fn with_a(phase: Option<AttemptPhase>) -> Rig {
    let mut rig = Rig::one_node(1, 4);
    rig.submit("a", spec(1, 1000)).unwrap();
    if let Some(phase) = phase {
        rig.status("n", "a.1", phase);
    }
    rig
}

/// `a` ran on `n`, which was lost; it runs on `m` now.
fn lost_to_m() -> Rig {
    let mut rig = with_a(Some(running()));
    rig.gone("n");
    rig.pass(400);
    rig.hello(hello("m", 1, 4));
    assert_eq!(rig.placed("a").0, "m");
    rig
}

#[test]
fn what_happened_while_nobody_listened_is_caught_up_with() {
    for (phase, types, state) in [
        (
            AttemptPhase::Starting,
            &["starting", "node_ready"][..],
            StepState::Starting,
        ),
        (
            running(),
            &["starting", "started", "node_ready"],
            StepState::Running,
        ),
        (
            ended(Exit::Code(0)),
            &["starting", "started", "ended", "step_ended", "node_ready"],
            StepState::Succeeded,
        ),
    ] {
        let mut rig = with_a(None);
        rig.restart(2);
        let fed = rig.hello(back(vec![status("a.1", phase)]));
        assert_eq!(fed.types(), types);
        assert!(fed.orders.is_empty(), "{:?}", fed.orders);
        assert_eq!(rig.state("a"), state);
    }
}

#[test]
fn an_end_that_was_missed_is_recorded_once_and_acknowledged() {
    let mut rig = with_a(Some(running()));
    rig.gone("n");
    let fed = rig.hello(back(vec![status("a.1", released(Exit::Code(4)))]));
    assert_eq!(
        fed.types(),
        ["ended", "step_ended", "released", "node_ready"]
    );
    assert_eq!(fed.orders, ["forget a.1"]);
    // The order was lost: the host lists it again and is told again.
    let fed = rig.hello(back(vec![status("a.1", released(Exit::Code(4)))]));
    assert_eq!(
        (fed.types().len(), &fed.orders[..]),
        (0, &["forget a.1".into()][..])
    );
}

#[test]
fn an_assignment_that_began_nothing_is_sent_again() {
    // Lost on its way, or with an agent that had acknowledged it and not yet passed it on.
    for phase in [None, Some(AttemptPhase::Starting)] {
        let mut rig = with_a(phase);
        rig.gone("n");
        let fed = rig.hello(back(vec![]));
        assert_eq!(fed.types(), ["node_ready"]);
        assert_eq!(fed.orders, ["assign a.1"]);
    }
}

#[test]
fn an_attempt_that_was_seen_and_is_no_longer_listed_has_ended_unseen() {
    let mut rig = with_a(Some(running()));
    rig.hello(back(vec![]));
    assert_eq!(
        (rig.state("a"), rig.code("a")),
        (StepState::Failed, ReasonCode::ExitUnknown)
    );
    assert!(!rig.step("a").holds_units());
    let mut rig = with_a(Some(ended(Exit::Code(0))));
    assert_eq!(rig.hello(back(vec![])).types(), ["released"]);
    assert_eq!(rig.state("a"), StepState::Succeeded);
}

#[test]
fn after_a_reboot_what_is_not_listed_waits_again_for_free() {
    for phase in [None, Some(AttemptPhase::Starting), Some(running())] {
        let mut rig = with_a(phase);
        let mut larger = rebooted(back(vec![]));
        larger.inventory = inventory("n", 1, 0);
        rig.gone("n");
        rig.hello(larger);
        assert_eq!(
            (rig.state("a"), rig.code("a")),
            (StepState::Queued, ReasonCode::HostRebooted)
        );
        assert_eq!(rig.step("a").retries_spent, 0);
        let fed = rig.hello(rebooted(back(vec![])));
        assert_eq!(fed.orders, ["assign a.2"]);
    }
}

#[test]
fn a_stray_is_stopped_before_anything_new_is_given() {
    let mut rig = lost_to_m();
    rig.submit("b", spec(1, 1000)).unwrap();
    let fed = rig.hello(back(vec![status("a.1", running())]));
    assert_eq!(fed.types(), ["node_reconciling"]);
    assert_eq!(fed.orders, ["stop a.1 Superseded 7s"]);
    assert_eq!(rig.state("b"), StepState::Queued);
    let fed = rig.status("n", "a.1", ended(Exit::Signal(15)));
    assert!(fed.records.is_empty() && fed.orders.is_empty());
    let fed = rig.status("n", "a.1", released(Exit::Signal(15)));
    assert_eq!(fed.types(), ["node_ready", "allocated"]);
    assert_eq!(fed.orders, ["forget a.1", "assign b.1"]);
    assert_eq!(rig.state("a"), StepState::Allocated, "it is on m");
}

#[test]
fn what_nobody_knows_is_stopped_with_the_default_grace() {
    let mut rig = Rig::one_node(1, 4);
    let fed = rig.hello(back(vec![
        status("x.1", running()),
        status("y.3", released(Exit::Code(0))),
    ]));
    assert_eq!(fed.orders, ["stop x.1 Superseded 30s", "forget y.3"]);
    assert_eq!(rig.node_state("n"), NodeState::Reconciling);
}

#[test]
fn an_attempt_that_lives_elsewhere_is_a_stray_here() {
    let mut rig = with_a(Some(running()));
    let mut liar = hello("m", 1, 4);
    liar.attempts = vec![status("a.1", ended(Exit::Code(0)))];
    let fed = rig.hello(liar);
    assert_eq!(fed.orders, ["stop a.1 Superseded 7s"]);
    assert_eq!(rig.state("a"), StepState::Running);
}

#[test]
fn a_stray_that_turns_up_later_stops_new_work_until_it_is_gone() {
    let mut rig = Rig::one_node(1, 4);
    let fed = rig.status("n", "x.1", running());
    assert_eq!(fed.types(), ["node_reconciling"]);
    assert!(
        rig.status("n", "x.1", running()).orders.is_empty(),
        "told once"
    );
    rig.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(rig.code("a"), ReasonCode::NoLiveHost);
    let fed = rig.status("n", "x.1", released(Exit::Unknown));
    assert_eq!(fed.orders, ["forget x.1", "assign a.1"]);
}

#[test]
fn a_node_that_is_heard_again_after_it_was_lost_is_cleared_first() {
    let mut rig = with_a(Some(running()));
    rig.pass(400);
    assert_eq!(rig.node_state("n"), NodeState::Lost);
    assert_eq!(rig.code("a"), ReasonCode::HostLost);
    // Its link was closed, so it dials anew.
    let fed = rig.hello(back(vec![status("a.1", running())]));
    assert_eq!(fed.types(), ["node_reconciling"]);
    assert_eq!(fed.orders, ["stop a.1 Superseded 7s"]);
    let fed = rig.status("n", "a.1", released(Exit::LeaseExpired));
    assert_eq!(fed.orders, ["forget a.1", "assign a.2"]);
}

#[test]
fn a_node_that_falls_silent_while_it_reconciles_goes_on_where_it_was() {
    let mut rig = Rig::one_node(1, 4);
    rig.status("n", "x.1", running());
    rig.pass(20);
    assert_eq!(rig.node_state("n"), NodeState::Unreachable);
    let fed = rig.heartbeat("n");
    assert_eq!(fed.types(), ["node_reconciling"]);
    assert_eq!(fed.orders, ["stop x.1 Superseded 30s"]);
    rig.gone("n");
    assert_eq!(rig.hello(back(vec![])).types(), ["node_ready"]);
}

#[test]
fn an_attempt_that_is_listed_twice_is_taken_once() {
    let mut rig = with_a(None);
    let twice = vec![
        status("a.1", released(Exit::Code(0))),
        status("a.1", running()),
        status("a.1", AttemptPhase::Starting),
    ];
    let fed = rig.hello(back(twice));
    assert_eq!(rig.state("a"), StepState::Succeeded);
    assert_eq!(fed.orders, ["forget a.1", "stop a.1 Superseded 7s"]);
}

#[test]
fn a_host_that_makes_up_attempts_without_end_fills_no_memory() {
    let mut rig = Rig::one_node(1, 4);
    let made_up = (1..=MAX_ATTEMPTS_PER_NODE as u32 + 10)
        .map(|number| status(&format!("x.{number}"), running()));
    let fed = rig.hello(back(made_up.collect()));
    assert_eq!(fed.orders.len(), MAX_ATTEMPTS_PER_NODE + 10);
    let strays = &rig.core.context().contacts()[&node("n")].strays;
    assert_eq!(strays.len(), MAX_ATTEMPTS_PER_NODE);
}
