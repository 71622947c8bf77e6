//! Steps that wait for their units no longer than they said.

use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;

use super::rig::*;
use crate::{Refusal, Steer};

fn patient(mut spec: StepSpec, secs: u64) -> StepSpec {
    spec.queue_timeout = Some(Span::from_secs(secs));
    spec
}

/// A host of one GPU, which `a` holds for the whole test.
fn busy() -> Rig {
    let mut rig = Rig::one_node(1, 4);
    rig.submit("a", spec(1, 1000)).unwrap();
    rig.run("a.1");
    rig
}

#[test]
fn one_that_waits_longer_than_it_said_fails_with_the_numbers() {
    let mut rig = busy();
    rig.submit("b", patient(spec(1, 1000), 20)).unwrap();
    rig.pass(19);
    assert_eq!(rig.state("b"), StepState::Queued);
    rig.pass(1);
    assert_eq!(
        (rig.state("b"), rig.code("b")),
        (StepState::Failed, ReasonCode::QueueTimeout)
    );
    assert_eq!(
        rig.reason("b").message,
        "it waited for its units for longer than its `queue_timeout` of 20s"
    );
    assert_eq!(rig.state("a"), StepState::Running);
}

#[test]
fn what_a_clock_was_set_ahead_by_is_not_held_against_who_waits() {
    let mut rig = busy();
    rig.submit("b", patient(spec(1, 1000), 20)).unwrap();
    rig.pass(5);
    rig.restart_ahead(Span::from_secs(3600));
    assert_eq!(rig.state("b"), StepState::Queued);
    rig.pass(13);
    assert_eq!(rig.state("b"), StepState::Queued, "it has waited for 19s");
    rig.pass(1);
    assert_eq!(rig.code("b"), ReasonCode::QueueTimeout);
}

#[test]
fn zero_is_to_start_at_once_or_not_at_all() {
    let mut rig = Rig::one_node(1, 4);
    rig.submit("a", patient(spec(1, 1000), 0)).unwrap();
    rig.submit("b", patient(spec(1, 1000), 0)).unwrap();
    rig.pass(0);
    assert_eq!(
        (rig.state("a"), rig.state("b")),
        (StepState::Allocated, StepState::Failed)
    );
}

#[test]
fn what_is_queued_again_waits_anew() {
    let mut rig = Rig::one_node(1, 4);
    rig.submit("a", patient(spec(1, 1000), 20)).unwrap();
    rig.run("a.1");
    rig.pass(19);
    rig.submit("b", spec(1, 1000)).unwrap();
    rig.steer("a", Steer::Requeue);
    rig.change("n", crate::NodeChange::Cordon { reason: None });
    rig.status("n", "a.1", gone(Exit::Signal(15), StopReason::Requeued));
    rig.pass(19);
    assert_eq!(rig.state("a"), StepState::Queued);
    rig.pass(1);
    assert_eq!(rig.code("a"), ReasonCode::QueueTimeout);
}

#[test]
fn nobody_is_counted_while_somebody_holds_it() {
    let mut rig = busy();
    rig.submit("b", patient(spec(1, 1000), 20)).unwrap();
    rig.steer("b", Steer::Suspend);
    rig.pass(40);
    assert_eq!(rig.state("b"), StepState::Queued);
    rig.steer("b", Steer::Resume);
    rig.pass(19);
    assert_eq!(rig.state("b"), StepState::Queued);
    rig.pass(1);
    assert_eq!(rig.state("b"), StepState::Failed);
}

#[test]
fn a_restart_forgets_nobody_who_waits() {
    let mut rig = busy();
    rig.submit("b", patient(spec(1, 1000), 20)).unwrap();
    rig.pass(10);
    // Which takes a second.
    rig.restart(0);
    rig.pass(8);
    assert_eq!(rig.state("b"), StepState::Queued);
    rig.pass(1);
    assert_eq!(rig.code("b"), ReasonCode::QueueTimeout);
}

#[test]
fn a_repeat_with_another_patience_is_another_step() {
    let mut rig = busy();
    rig.submit("b", patient(spec(1, 1000), 20)).unwrap();
    let refusal = rig.submit("b", patient(spec(1, 1000), 30)).unwrap_err();
    let expected = Refusal::IdInUse {
        step: step("b"),
        differs: "queue_timeout".into(),
    };
    assert_eq!(refusal, expected);
}
