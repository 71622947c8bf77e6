//! Tests of steps that do not start before a time, or not after one.

use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;

use super::harness::*;
use crate::{Refusal, StepAction};

fn begins_in(harness: &Harness, mut spec: StepSpec, secs: u64) -> StepSpec {
    spec.begin = Some(harness.now + Span::from_secs(secs));
    spec
}

fn late_in(harness: &Harness, mut spec: StepSpec, secs: u64) -> StepSpec {
    spec.deadline = Some(harness.now + Span::from_secs(secs));
    spec
}

#[test]
fn a_step_starts_when_its_time_has_come() {
    let mut harness = Harness::one_node(1, 4);
    let later = begins_in(&harness, spec(1, 1000), 100);
    harness.submit("later", later).unwrap();
    let reason = harness.reason("later");
    assert_eq!(reason.code, ReasonCode::WaitingForBegin);
    assert_eq!(
        reason.message,
        "it starts at 1970-01-01T00:18:20Z at the earliest"
    );
    harness.pass(99);
    assert_eq!(harness.state("later"), StepState::Queued);
    harness.restart(0);
    harness.hello(hello("n", 1, 4));
    harness.pass(1);
    assert_eq!(harness.state("later"), StepState::Allocated);
}

#[test]
fn a_time_that_has_come_postpones_nothing() {
    let mut harness = Harness::one_node(1, 4);
    let now = begins_in(&harness, spec(1, 1000), 0);
    harness.submit("now", now).unwrap();
    assert_eq!(harness.state("now"), StepState::Allocated);
}

#[test]
fn a_step_waits_for_its_time_and_for_others() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("prep", spec(1, 1000)).unwrap();
    let both = begins_in(&harness, after(spec(1, 1000), &["prep"]), 100);
    harness.submit("both", both).unwrap();
    harness.run("prep.1");
    harness.status("n", "prep.1", released(Exit::Code(0)));
    assert_eq!(harness.code("both"), ReasonCode::WaitingForBegin);
    harness.action("both", StepAction::Suspend);
    harness.pass(100);
    assert_eq!(harness.code("both"), ReasonCode::Held);
    harness.hello(hello("n", 2, 4));
    harness.action("both", StepAction::Resume);
    assert_eq!(harness.state("both"), StepState::Allocated);
}

#[test]
fn the_time_in_the_queue_begins_at_its_begin() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("busy", spec(1, 1000)).unwrap();
    let mut later = begins_in(&harness, spec(1, 1000), 100);
    later.queue_timeout = Some(Span::from_secs(20));
    harness.submit("later", later).unwrap();
    harness.pass(119);
    assert_eq!(harness.state("later"), StepState::Queued);
    harness.pass(1);
    assert_eq!(harness.code("later"), ReasonCode::QueueTimeout);
}

#[test]
fn a_step_that_is_queued_at_its_deadline_fails() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("busy", spec(1, 1000)).unwrap();
    for id in ["late", "held"] {
        let late = late_in(&harness, spec(1, 1000), 100);
        harness.submit(id, late).unwrap();
    }
    harness.action("held", StepAction::Suspend);
    harness.pass(99);
    assert_eq!(harness.state("late"), StepState::Queued);
    harness.pass(1);
    for id in ["late", "held"] {
        assert_eq!(
            (harness.state(id), harness.code(id)),
            (StepState::Failed, ReasonCode::DeadlineMissed)
        );
    }
    assert_eq!(
        harness.reason("late").message,
        "it was not running at 1970-01-01T00:18:20Z, its `deadline`, after which it does not start"
    );
}

#[test]
fn a_step_that_runs_at_its_deadline_runs_on_and_does_not_start_again() {
    let mut harness = Harness::one_node(1, 4);
    let in_time = late_in(&harness, with_retries(spec(1, 1000), 3), 100);
    harness.submit("in-time", in_time).unwrap();
    harness.run("in-time.1");
    harness.pass(100);
    assert_eq!(harness.state("in-time"), StepState::Running);
    harness.status("n", "in-time.1", released(Exit::Code(1)));
    assert_eq!(harness.code("in-time"), ReasonCode::DeadlineMissed);
}

#[test]
fn a_deadline_that_has_passed_is_refused_and_a_repeat_is_not() {
    let mut harness = Harness::one_node(1, 4);
    let late = late_in(&harness, spec(1, 1000), 100);
    harness.submit("late", late.clone()).unwrap();
    harness.pass(100);
    let refused = harness.submit("other", late.clone());
    assert_eq!(
        refused,
        Err(Refusal::DeadlinePassed {
            step: step("other"),
            deadline: harness.now
        })
    );
    assert!(!harness.submit("late", late).unwrap().created);
}
