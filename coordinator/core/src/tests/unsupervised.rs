//! Tests of nodes whose agent has no supervisor.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use sluice_common::host_health::SupervisorState;
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, FromNode, Hello, StopReason};

use super::harness::*;

fn away(why: &str) -> FromNode {
    FromNode::Supervisor(SupervisorState::Unresponsive(why.into()))
}

const BACK: FromNode = FromNode::Supervisor(SupervisorState::Responding);

fn unheard(hello: Hello) -> Hello {
    Hello {
        supervisor: SupervisorState::NeverSeen(String::from("no socket")),
        ..hello
    }
}

fn node_state(harness: &Harness) -> NodeState {
    harness.core.state().node(&node("n")).unwrap().state
}

fn message(harness: &Harness, id: &str) -> String {
    harness.reason(id).message
}

fn not_begun() -> AttemptPhase {
    AttemptPhase::Released(unbegun(None))
}

fn unbegun(stopped: Option<StopReason>) -> sluice_common::wire::AttemptEnd {
    let end = end(Exit::NotBegun("no socket".into()), stopped);
    sluice_common::wire::AttemptEnd {
        started: None,
        ..end
    }
}

#[test]
fn a_node_without_a_supervisor_is_given_nothing_until_it_has_one() {
    let mut harness = Harness::one_node(1, 4);
    assert_eq!(
        harness.say("n", away("no socket")).types(),
        ["node_unsupervised"]
    );
    assert_eq!(harness.say("n", away("no socket")).types(), [""; 0]);
    assert_eq!(node_state(&harness), NodeState::Unsupervised);
    harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(harness.state("a"), StepState::Queued);
    let waits = message(&harness, "a");
    assert!(waits.contains("`n` is unsupervised (no socket)"), "{waits}");
    assert_eq!(
        harness.say("n", away("refused")).types(),
        ["node_unsupervised"]
    );
    assert!(message(&harness, "a").contains("(refused)"));
    harness.say("n", BACK);
    assert_eq!(node_state(&harness), NodeState::Ready);
    assert_eq!(
        harness.core.state().node(&node("n")).unwrap().unsupervised,
        None
    );
    assert_eq!(harness.state("a"), StepState::Allocated);
}

#[test]
fn a_node_that_comes_without_a_supervisor_is_not_ready_for_a_moment() {
    let mut harness = Harness::new();
    harness.submit("a", spec(1, 1000)).unwrap();
    let effects = harness.hello(unheard(hello("n", 1, 4)));
    assert_eq!(effects.types(), ["node_reported", "node_unsupervised"]);
    assert!(effects.orders.is_empty(), "{:?}", effects.orders);
}

#[test]
fn what_a_host_gives_back_goes_elsewhere_at_once_and_pays_nothing() {
    let mut harness = Harness::one_node(1, 4);
    harness.hello(hello("o", 1, 4));
    let free = |free_preemptions| sluice_common::step::StepSpec {
        free_preemptions,
        ..spec(1, 1000)
    };
    for (id, is_free) in [("a", true), ("b", false)] {
        harness.submit(id, free(is_free)).unwrap();
    }
    let on_n = ["a", "b"].into_iter().find(|id| {
        let parts = &harness.step(id).attempts[0].parts;
        parts[0].node == node("n")
    });
    let id = on_n.unwrap();
    harness.hello(hello("p", 1, 4));
    harness.say("n", away("no socket"));
    harness.status("n", &format!("{id}.1"), not_begun());
    let step = harness.step(id);
    assert_eq!(step.state, StepState::Allocated, "{:?}", step.reason);
    assert_eq!(step.attempts[1].parts[0].node, node("p"));
    assert_eq!(step.retries_spent, 0);
}

#[test]
fn one_that_pays_for_preemptions_does_not_pay_for_what_never_began() {
    let mut harness = Harness::one_node(1, 4);
    let paying = sluice_common::step::StepSpec {
        free_preemptions: false,
        ..spec(1, 1000)
    };
    harness.submit("a", paying).unwrap();
    harness.say("n", away("no socket"));
    harness.status("n", "a.1", not_begun());
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Queued, ReasonCode::NotBegun)
    );
}

#[test]
fn a_cancel_of_what_may_run_says_what_it_waits_for_and_ends_when_that_is_known() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.status("n", "a.1", AttemptPhase::Starting);
    harness.say("n", away("no socket"));
    assert!(message(&harness, "a").contains("`n` has no supervisor"));
    harness.cancel("a");
    assert_eq!(harness.state("a"), StepState::Stopping);
    let waits = message(&harness, "a");
    assert!(
        waits.contains("cancelled") && waits.contains("no socket"),
        "{waits}"
    );
    harness.say("n", BACK);
    assert!(!message(&harness, "a").contains("supervisor"));
    harness.status(
        "n",
        "a.1",
        AttemptPhase::Released(unbegun(Some(StopReason::Cancelled))),
    );
    assert_eq!(harness.state("a"), StepState::Cancelled);
}

#[test]
fn a_wait_for_a_silent_host_says_until_when() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.gone("n");
    harness.cancel("a");
    let waits = message(&harness, "a");
    assert!(
        waits.contains("`n` is silent") && waits.contains("6m"),
        "{waits}"
    );
}

#[test]
fn a_host_that_does_not_know_what_it_runs_misses_nothing() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.hello(unheard(holding(hello("n", 1, 4), vec![])));
    assert_eq!(effects.types(), ["node_unsupervised"]);
    assert!(effects.orders.is_empty());
    assert_eq!(harness.state("a"), StepState::Running);
    let effects = harness.hello(holding(hello("n", 1, 4), vec![status("a.1", running())]));
    assert_eq!(effects.types(), ["node_ready"]);
    // A rebooted host runs nothing of before, with or without a supervisor.
    harness.gone("n");
    harness.hello(unheard(rebooted(holding(hello("n", 1, 4), vec![]))));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Queued, ReasonCode::HostRebooted)
    );
}

#[test]
fn a_recovery_waits_for_a_host_that_does_not_know_what_it_runs() {
    let mut harness = Harness::one_node(1, 4);
    let records = harness.log.len();
    harness.restore(records, crate::RecoveryCause::Restored);
    harness.hello(unheard(hello("n", 1, 4)));
    for _ in 0..40 {
        harness.pass(10);
        harness.heartbeat("n");
    }
    assert!(harness.core.state().recovery().is_some());
    harness.hello(hello("n", 1, 4));
    assert!(harness.core.state().recovery().is_none());
}
