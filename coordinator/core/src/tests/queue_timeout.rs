//! Tests of steps that are queued for longer than their `queue_timeout`.

use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;

use super::harness::*;
use crate::{Refusal, StepAction};

fn with_queue_timeout(mut spec: StepSpec, secs: u64) -> StepSpec {
    spec.queue_timeout = Some(Span::from_secs(secs));
    spec
}

/// Makes a host of one GPU, which `a` holds for the whole test.
fn busy() -> Harness {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness
}

#[test]
fn one_that_waits_longer_than_it_said_fails_with_the_numbers() {
    let mut harness = busy();
    harness
        .submit("b", with_queue_timeout(spec(1, 1000), 20))
        .unwrap();
    harness.pass(19);
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.pass(1);
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Failed, ReasonCode::QueueTimeout)
    );
    assert_eq!(
        harness.reason("b").message,
        "it was queued for longer than its `queue_timeout` of 20s"
    );
    assert_eq!(harness.state("a"), StepState::Running);
}

#[test]
fn what_a_clock_was_set_ahead_by_is_not_held_against_who_waits() {
    let mut harness = busy();
    harness
        .submit("b", with_queue_timeout(spec(1, 1000), 20))
        .unwrap();
    harness.pass(5);
    harness.restart_ahead(Span::from_secs(3600));
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.pass(13);
    assert_eq!(
        harness.state("b"),
        StepState::Queued,
        "it has waited for 19s"
    );
    harness.pass(1);
    assert_eq!(harness.code("b"), ReasonCode::QueueTimeout);
}

#[test]
fn zero_is_to_start_at_once_or_not_at_all() {
    let mut harness = Harness::one_node(1, 4);
    harness
        .submit("a", with_queue_timeout(spec(1, 1000), 0))
        .unwrap();
    harness
        .submit("b", with_queue_timeout(spec(1, 1000), 0))
        .unwrap();
    harness.pass(0);
    assert_eq!(
        (harness.state("a"), harness.state("b")),
        (StepState::Allocated, StepState::Failed)
    );
}

#[test]
fn what_is_queued_again_waits_anew() {
    let mut harness = Harness::one_node(1, 4);
    harness
        .submit("a", with_queue_timeout(spec(1, 1000), 20))
        .unwrap();
    harness.run("a.1");
    harness.pass(19);
    harness.submit("b", spec(1, 1000)).unwrap();
    harness.action("a", StepAction::Requeue);
    harness.change("n", crate::NodeChange::Cordon { reason: None });
    harness.status("n", "a.1", gone(Exit::Signal(15), StopReason::Requeued));
    harness.pass(19);
    assert_eq!(harness.state("a"), StepState::Queued);
    harness.pass(1);
    assert_eq!(harness.code("a"), ReasonCode::QueueTimeout);
}

#[test]
fn nobody_is_counted_while_somebody_holds_it() {
    let mut harness = busy();
    harness
        .submit("b", with_queue_timeout(spec(1, 1000), 20))
        .unwrap();
    harness.action("b", StepAction::Suspend);
    harness.pass(40);
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.action("b", StepAction::Resume);
    harness.pass(19);
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.pass(1);
    assert_eq!(harness.state("b"), StepState::Failed);
}

#[test]
fn a_restart_forgets_nobody_who_waits() {
    let mut harness = busy();
    harness
        .submit("b", with_queue_timeout(spec(1, 1000), 20))
        .unwrap();
    harness.pass(10);
    // The restart takes a second.
    harness.restart(0);
    harness.pass(8);
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.pass(1);
    assert_eq!(harness.code("b"), ReasonCode::QueueTimeout);
}

#[test]
fn a_repeat_with_another_patience_is_another_step() {
    let mut harness = busy();
    harness
        .submit("b", with_queue_timeout(spec(1, 1000), 20))
        .unwrap();
    let refusal = harness
        .submit("b", with_queue_timeout(spec(1, 1000), 30))
        .unwrap_err();
    let expected = Refusal::IdInUse {
        step: step("b"),
        differs: "queue_timeout".into(),
    };
    assert_eq!(refusal, expected);
}
