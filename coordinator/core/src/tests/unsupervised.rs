//! Nodes whose agent has no supervisor.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use sluice_common::host_health::SupervisorState;
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, FromNode, Hello, StopReason};

use super::rig::*;

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

fn node_state(rig: &Rig) -> NodeState {
    rig.core.state().node(&node("n")).unwrap().state
}

fn message(rig: &Rig, id: &str) -> String {
    rig.reason(id).message
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
    let mut rig = Rig::one_node(1, 4);
    assert_eq!(
        rig.say("n", away("no socket")).types(),
        ["node_unsupervised"]
    );
    assert_eq!(rig.say("n", away("no socket")).types(), [""; 0]);
    assert_eq!(node_state(&rig), NodeState::Unsupervised);
    rig.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(rig.state("a"), StepState::Queued);
    let waits = message(&rig, "a");
    assert!(waits.contains("`n` is unsupervised (no socket)"), "{waits}");
    assert_eq!(rig.say("n", away("refused")).types(), ["node_unsupervised"]);
    assert!(message(&rig, "a").contains("(refused)"));
    rig.say("n", BACK);
    assert_eq!(node_state(&rig), NodeState::Ready);
    assert_eq!(
        rig.core.state().node(&node("n")).unwrap().unsupervised,
        None
    );
    assert_eq!(rig.state("a"), StepState::Allocated);
}

#[test]
fn a_node_that_comes_without_a_supervisor_is_not_ready_for_a_moment() {
    let mut rig = Rig::new();
    rig.submit("a", spec(1, 1000)).unwrap();
    let fed = rig.hello(unheard(hello("n", 1, 4)));
    assert_eq!(fed.types(), ["node_reported", "node_unsupervised"]);
    assert!(fed.orders.is_empty(), "{:?}", fed.orders);
}

#[test]
fn what_a_host_gives_back_goes_elsewhere_at_once_and_pays_nothing() {
    let mut rig = Rig::one_node(1, 4);
    rig.hello(hello("o", 1, 4));
    let free = |free_preemptions| sluice_common::step::StepSpec {
        free_preemptions,
        ..spec(1, 1000)
    };
    for (id, is_free) in [("a", true), ("b", false)] {
        rig.submit(id, free(is_free)).unwrap();
    }
    let on_n = ["a", "b"].into_iter().find(|id| {
        let parts = &rig.step(id).attempts[0].parts;
        parts[0].node == node("n")
    });
    let id = on_n.unwrap();
    rig.hello(hello("p", 1, 4));
    rig.say("n", away("no socket"));
    rig.status("n", &format!("{id}.1"), not_begun());
    let step = rig.step(id);
    assert_eq!(step.state, StepState::Allocated, "{:?}", step.reason);
    assert_eq!(step.attempts[1].parts[0].node, node("p"));
    assert_eq!(step.retries_spent, 0);
}

#[test]
fn one_that_pays_for_preemptions_does_not_pay_for_what_never_began() {
    let mut rig = Rig::one_node(1, 4);
    let paying = sluice_common::step::StepSpec {
        free_preemptions: false,
        ..spec(1, 1000)
    };
    rig.submit("a", paying).unwrap();
    rig.say("n", away("no socket"));
    rig.status("n", "a.1", not_begun());
    assert_eq!(
        (rig.state("a"), rig.code("a")),
        (StepState::Queued, ReasonCode::NotBegun)
    );
}

#[test]
fn a_cancel_of_what_may_run_says_what_it_waits_for_and_ends_when_that_is_known() {
    let mut rig = Rig::one_node(1, 4);
    rig.submit("a", spec(1, 1000)).unwrap();
    rig.status("n", "a.1", AttemptPhase::Starting);
    rig.say("n", away("no socket"));
    assert!(message(&rig, "a").contains("`n` has no supervisor"));
    rig.cancel("a");
    assert_eq!(rig.state("a"), StepState::Stopping);
    let waits = message(&rig, "a");
    assert!(
        waits.contains("cancelled") && waits.contains("no socket"),
        "{waits}"
    );
    rig.say("n", BACK);
    assert!(!message(&rig, "a").contains("supervisor"));
    rig.status(
        "n",
        "a.1",
        AttemptPhase::Released(unbegun(Some(StopReason::Cancelled))),
    );
    assert_eq!(rig.state("a"), StepState::Cancelled);
}

#[test]
fn a_wait_for_a_silent_host_says_until_when() {
    let mut rig = Rig::one_node(1, 4);
    rig.submit("a", spec(1, 1000)).unwrap();
    rig.gone("n");
    rig.cancel("a");
    let waits = message(&rig, "a");
    assert!(
        waits.contains("`n` is silent") && waits.contains("6m"),
        "{waits}"
    );
}

#[test]
fn a_host_that_does_not_know_what_it_runs_misses_nothing() {
    let mut rig = Rig::one_node(1, 4);
    rig.submit("a", spec(1, 1000)).unwrap();
    rig.run("a.1");
    let fed = rig.hello(unheard(holding(hello("n", 1, 4), vec![])));
    assert_eq!(fed.types(), ["node_unsupervised"]);
    assert!(fed.orders.is_empty());
    assert_eq!(rig.state("a"), StepState::Running);
    let fed = rig.hello(holding(hello("n", 1, 4), vec![status("a.1", running())]));
    assert_eq!(fed.types(), ["node_ready"]);
    // One that was booted anew runs nothing of before, supervisor or not.
    rig.gone("n");
    rig.hello(unheard(rebooted(holding(hello("n", 1, 4), vec![]))));
    assert_eq!(
        (rig.state("a"), rig.code("a")),
        (StepState::Queued, ReasonCode::HostRebooted)
    );
}

#[test]
fn a_recovery_waits_for_a_host_that_does_not_know_what_it_runs() {
    let mut rig = Rig::one_node(1, 4);
    let records = rig.log.len();
    rig.restore(records, crate::RecoveryWhy::Restored);
    rig.hello(unheard(hello("n", 1, 4)));
    for _ in 0..40 {
        rig.pass(10);
        rig.heartbeat("n");
    }
    assert!(rig.core.state().recovery().is_some());
    rig.hello(hello("n", 1, 4));
    assert!(rig.core.state().recovery().is_none());
}
