//! Tests of hosts' reports about their attempts, compared with the state.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, AttemptStatus};

use super::harness::*;

fn back(attempts: Vec<AttemptStatus>) -> sluice_common::wire::Hello {
    holding(hello("n", 1, 4), attempts)
}

/// Makes a host of one GPU with step `a` on it.
fn with_a(phase: Option<AttemptPhase>) -> Harness {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    if let Some(phase) = phase {
        harness.status("n", "a.1", phase);
    }
    harness
}

/// Makes `a` run on `n`, which is lost, and then on `m`.
fn lost_to_m() -> Harness {
    let mut harness = with_a(Some(running()));
    harness.gone("n");
    harness.pass(400);
    harness.hello(hello("m", 1, 4));
    assert_eq!(harness.placed("a").0, "m");
    harness
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
        let mut harness = with_a(None);
        harness.restart(2);
        let effects = harness.hello(back(vec![status("a.1", phase)]));
        assert_eq!(effects.types(), types);
        assert!(effects.orders.is_empty(), "{:?}", effects.orders);
        assert_eq!(harness.state("a"), state);
    }
}

#[test]
fn an_end_that_was_missed_is_recorded_once_and_acknowledged() {
    let mut harness = with_a(Some(running()));
    harness.gone("n");
    let effects = harness.hello(back(vec![status("a.1", released(Exit::Code(4)))]));
    assert_eq!(
        effects.types(),
        ["ended", "step_ended", "released", "node_ready"]
    );
    assert_eq!(effects.orders, ["forget a.1"]);
    // The order was lost: the host lists the attempt again and is told again.
    let effects = harness.hello(back(vec![status("a.1", released(Exit::Code(4)))]));
    assert_eq!(
        (effects.types().len(), &effects.orders[..]),
        (0, &["forget a.1".into()][..])
    );
}

#[test]
fn an_assignment_that_began_nothing_is_sent_again() {
    // The order was lost on its way, or with an agent that had acknowledged it and not yet passed it on.
    for phase in [None, Some(AttemptPhase::Starting)] {
        let mut harness = with_a(phase);
        harness.gone("n");
        let effects = harness.hello(back(vec![]));
        assert_eq!(effects.types(), ["node_ready"]);
        assert_eq!(effects.orders, ["assign a.1"]);
    }
}

#[test]
fn an_attempt_that_was_seen_and_is_no_longer_listed_has_ended_unseen() {
    let mut harness = with_a(Some(running()));
    harness.hello(back(vec![]));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Failed, ReasonCode::ExitUnknown)
    );
    assert!(!harness.step("a").holds_units());
    let mut harness = with_a(Some(ended(Exit::Code(0))));
    assert_eq!(harness.hello(back(vec![])).types(), ["released"]);
    assert_eq!(harness.state("a"), StepState::Succeeded);
}

#[test]
fn after_a_reboot_what_is_not_listed_waits_again_for_free() {
    for phase in [None, Some(AttemptPhase::Starting), Some(running())] {
        let mut harness = with_a(phase);
        let mut larger = rebooted(back(vec![]));
        larger.inventory = inventory("n", 1, 0);
        harness.gone("n");
        harness.hello(larger);
        assert_eq!(
            (harness.state("a"), harness.code("a")),
            (StepState::Queued, ReasonCode::HostRebooted)
        );
        assert_eq!(harness.step("a").retries_spent, 0);
        let effects = harness.hello(rebooted(back(vec![])));
        assert_eq!(effects.orders, ["assign a.2"]);
    }
}

#[test]
fn a_stray_is_stopped_before_anything_new_is_given() {
    let mut harness = lost_to_m();
    harness.submit("b", spec(1, 1000)).unwrap();
    let effects = harness.hello(back(vec![status("a.1", running())]));
    assert_eq!(effects.types(), ["node_reconciling"]);
    assert_eq!(effects.orders, ["stop a.1 Superseded 7s"]);
    assert_eq!(harness.state("b"), StepState::Queued);
    let effects = harness.status("n", "a.1", ended(Exit::Signal(15)));
    assert!(effects.records.is_empty() && effects.orders.is_empty());
    let effects = harness.status("n", "a.1", released(Exit::Signal(15)));
    assert_eq!(effects.types(), ["node_ready", "allocated"]);
    assert_eq!(effects.orders, ["forget a.1", "assign b.1"]);
    assert_eq!(harness.state("a"), StepState::Allocated, "it is on m");
}

#[test]
fn what_nobody_knows_is_stopped_with_the_default_grace() {
    let mut harness = Harness::one_node(1, 4);
    let effects = harness.hello(back(vec![
        status("x.1", running()),
        status("y.3", released(Exit::Code(0))),
    ]));
    assert_eq!(effects.orders, ["stop x.1 Superseded 30s", "forget y.3"]);
    assert_eq!(harness.node_state("n"), NodeState::Reconciling);
}

#[test]
fn an_attempt_that_lives_elsewhere_is_a_stray_here() {
    let mut harness = with_a(Some(running()));
    let mut liar = hello("m", 1, 4);
    liar.attempts = vec![status("a.1", ended(Exit::Code(0)))];
    let effects = harness.hello(liar);
    assert_eq!(effects.orders, ["stop a.1 Superseded 7s"]);
    assert_eq!(harness.state("a"), StepState::Running);
}

#[test]
fn a_stray_that_turns_up_later_stops_new_work_until_it_is_gone() {
    let mut harness = Harness::one_node(1, 4);
    let effects = harness.status("n", "x.1", running());
    assert_eq!(effects.types(), ["node_reconciling"]);
    assert!(
        harness.status("n", "x.1", running()).orders.is_empty(),
        "told once"
    );
    harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(harness.code("a"), ReasonCode::NoLiveHost);
    let effects = harness.status("n", "x.1", released(Exit::Unknown));
    assert_eq!(effects.orders, ["forget x.1", "assign a.1"]);
}

#[test]
fn a_node_that_is_heard_again_after_it_was_lost_is_cleared_first() {
    let mut harness = with_a(Some(running()));
    harness.pass(400);
    assert_eq!(harness.node_state("n"), NodeState::Lost);
    assert_eq!(harness.code("a"), ReasonCode::HostLost);
    // The connection was closed, so the host dials again.
    let effects = harness.hello(back(vec![status("a.1", running())]));
    assert_eq!(effects.types(), ["node_reconciling"]);
    assert_eq!(effects.orders, ["stop a.1 Superseded 7s"]);
    let effects = harness.status("n", "a.1", released(Exit::LeaseExpired));
    assert_eq!(effects.orders, ["forget a.1", "assign a.2"]);
}

#[test]
fn a_node_that_falls_silent_while_it_reconciles_goes_on_where_it_was() {
    let mut harness = Harness::one_node(1, 4);
    harness.status("n", "x.1", running());
    harness.pass(20);
    assert_eq!(harness.node_state("n"), NodeState::Unreachable);
    let effects = harness.heartbeat("n");
    assert_eq!(effects.types(), ["node_reconciling"]);
    assert_eq!(effects.orders, ["stop x.1 Superseded 30s"]);
    harness.gone("n");
    assert_eq!(harness.hello(back(vec![])).types(), ["node_ready"]);
}

#[test]
fn an_attempt_that_is_listed_twice_is_taken_once() {
    let mut harness = with_a(None);
    let twice = vec![
        status("a.1", released(Exit::Code(0))),
        status("a.1", running()),
        status("a.1", AttemptPhase::Starting),
    ];
    let effects = harness.hello(back(twice));
    assert_eq!(harness.state("a"), StepState::Succeeded);
    assert_eq!(effects.orders, ["forget a.1", "stop a.1 Superseded 7s"]);
}

#[test]
fn a_host_that_makes_up_attempts_without_end_fills_no_memory() {
    let mut harness = Harness::one_node(1, 4);
    let made_up = (1..=MAX_ATTEMPTS_PER_NODE as u32 + 10)
        .map(|number| status(&format!("x.{number}"), running()));
    let effects = harness.hello(back(made_up.collect()));
    assert_eq!(effects.orders.len(), MAX_ATTEMPTS_PER_NODE + 10);
    let strays = &harness.core.context().contacts()[&node("n")].strays;
    assert_eq!(strays.len(), MAX_ATTEMPTS_PER_NODE);
}
