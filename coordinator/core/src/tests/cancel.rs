//! Tests of cancels in every state.

use alloc::vec;

use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, StopReason};

use super::harness::*;
use crate::{Answer, Refusal};

fn cancelled_now(harness: &Harness) {
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Cancelled, ReasonCode::Cancelled)
    );
}

#[test]
fn an_unknown_step_is_refused() {
    let refusal = Refusal::UnknownStep { step: step("a") };
    let effects = Harness::new().cancel("a");
    assert_eq!(effects.answers, [Answer::Cancelled(Err(refusal))]);
    assert!(effects.records.is_empty());
}

#[test]
fn a_queued_step_is_over_at_once() {
    let mut harness = Harness::new();
    harness.submit("a", spec(1, 1000)).unwrap();
    let effects = harness.cancel("a");
    assert_eq!(effects.types(), ["step_ended"]);
    assert_eq!(effects.answers, [Answer::Cancelled(Ok(step("a")))]);
    cancelled_now(&harness);
}

#[test]
fn what_holds_units_is_told_to_stop_and_a_second_cancel_is_harmless() {
    for before in [None, Some(AttemptPhase::Starting), Some(running())] {
        let mut harness = Harness::one_node(1, 4);
        harness.submit("a", spec(1, 1000)).unwrap();
        if let Some(phase) = before {
            harness.status("n", "a.1", phase);
        }
        let effects = harness.cancel("a");
        assert_eq!(effects.types(), ["stopping"]);
        assert_eq!(effects.orders, ["stop a.1 Cancelled 7s"]);
        assert_eq!(
            (harness.state("a"), harness.code("a")),
            (StepState::Stopping, ReasonCode::Cancelled)
        );
        let again = harness.cancel("a");
        assert_eq!((again.records.len(), again.orders.len()), (0, 0));
        assert_eq!(again.answers, [Answer::Cancelled(Ok(step("a")))]);
        // The step stays cancelled if a host starts it before it reads the order.
        harness.status("n", "a.1", running());
        assert_eq!(harness.state("a"), StepState::Stopping);
    }
}

#[test]
fn a_shorter_grace_hurries_one_that_is_stopping_and_a_longer_one_does_not() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.cancel_within("a", Some(60));
    assert_eq!(
        effects.orders,
        ["stop a.1 Cancelled 7s"],
        "its own is the shorter one"
    );
    let began = harness.step("a").attempts[0].stopping_at.unwrap();
    harness.pass(1);
    for grace in [None, Some(6), Some(60)] {
        let effects = harness.cancel_within("a", grace);
        assert!(
            effects.records.is_empty() && effects.orders.is_empty(),
            "{grace:?}"
        );
    }
    let effects = harness.cancel_within("a", Some(2));
    assert_eq!(effects.types(), ["stopping"]);
    assert_eq!(effects.orders, ["stop a.1 Cancelled 2s"]);
    let ends = |harness: &Harness| {
        let step = harness.step("a");
        step.attempts[0].grace_ends(step).unwrap()
    };
    assert_eq!(ends(&harness), began + Span::from_secs(3));
    // The order is repeated to an agent that may have missed it, also after a restart.
    harness.restart(0);
    assert_eq!(ends(&harness), began + Span::from_secs(3));
    let effects = harness.hello(holding(hello("n", 1, 4), vec![status("a.1", running())]));
    let mut orders = effects.orders.iter();
    assert!(
        orders.any(|order| order == "stop a.1 Cancelled 2s"),
        "{:?}",
        effects.orders
    );
    let effects = harness.cancel_within("a", Some(0));
    assert_eq!(effects.orders, ["stop a.1 Cancelled 0s"]);
    let end = end(Exit::Signal(9), Some(StopReason::Cancelled));
    harness.status("n", "a.1", AttemptPhase::Ended(end));
    cancelled_now(&harness);
}

#[test]
fn what_stops_by_its_timeout_is_hurried_and_stays_timed_out() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.status("n", "a.1", stopping(StopReason::TimedOut));
    assert!(harness.cancel("a").orders.is_empty());
    let effects = harness.cancel_within("a", Some(0));
    assert_eq!(effects.orders, ["stop a.1 TimedOut 0s"]);
    let end = end(Exit::Signal(9), Some(StopReason::TimedOut));
    harness.status("n", "a.1", AttemptPhase::Ended(end));
    assert_eq!(harness.code("a"), ReasonCode::TimedOut);
}

#[test]
fn however_it_ends_then_it_was_cancelled() {
    for exit in [
        Exit::Code(0),
        Exit::Code(1),
        Exit::Signal(15),
        Exit::Unknown,
        Exit::LeaseExpired,
    ] {
        let mut harness = Harness::one_node(1, 4);
        harness.submit("a", with_retries(spec(1, 1000), 3)).unwrap();
        harness.run("a.1");
        harness.cancel("a");
        let end = end(exit, Some(StopReason::Cancelled));
        harness.status("n", "a.1", AttemptPhase::Ended(end));
        cancelled_now(&harness);
    }
}

#[test]
fn a_cancel_that_was_answered_is_not_taken_back_by_a_timeout() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.cancel("a");
    harness.status("n", "a.1", stopping(StopReason::TimedOut));
    let end = end(Exit::Signal(15), Some(StopReason::TimedOut));
    harness.status("n", "a.1", AttemptPhase::Ended(end));
    cancelled_now(&harness);
}

#[test]
fn one_that_is_over_stays_as_it_is() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.status("n", "a.1", ended(Exit::Code(0)));
    let effects = harness.cancel("a");
    assert!(effects.records.is_empty() && effects.orders.is_empty());
    assert_eq!(effects.answers, [Answer::Cancelled(Ok(step("a")))]);
    assert_eq!(harness.state("a"), StepState::Succeeded);
}

#[test]
fn one_that_waits_again_is_over_at_once_though_its_old_units_are_not_free() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", with_retries(spec(1, 1000), 1)).unwrap();
    harness.status("n", "a.1", ended(Exit::Code(1)));
    assert_eq!(harness.cancel("a").types(), ["step_ended"]);
    cancelled_now(&harness);
    assert_eq!(harness.core.state().finished().count(), 0);
    harness.status("n", "a.1", released(Exit::Code(1)));
    assert_eq!(harness.core.state().finished().count(), 1);
}

#[test]
fn on_a_silent_host_it_stays_stopping_until_the_host_is_back() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.gone("n");
    let effects = harness.cancel("a");
    assert_eq!(
        (effects.types(), effects.orders),
        (vec!["stopping".into()], vec![])
    );
    harness.pass(60);
    assert_eq!(harness.state("a"), StepState::Stopping);
    // The host never received the order, so nothing is left to stop.
    harness.hello(holding(hello("n", 1, 4), vec![]));
    cancelled_now(&harness);
    assert!(!harness.step("a").holds_units());
}

#[test]
fn a_host_that_is_back_with_it_is_told_again() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.gone("n");
    harness.cancel("a");
    let held = |phase| holding(hello("n", 1, 4), vec![status("a.1", phase)]);
    let effects = harness.hello(held(running()));
    assert_eq!(effects.orders, ["stop a.1 Cancelled 7s"]);
    let effects = harness.hello(held(stopping(StopReason::Cancelled)));
    assert!(effects.orders.is_empty(), "it is stopping already");
    assert_eq!(harness.state("a"), StepState::Stopping);
}

#[test]
fn on_a_lost_host_it_is_cancelled_and_not_tried_elsewhere() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.hello(hello("other", 1, 4));
    harness.gone("n");
    harness.cancel("a");
    harness.pass(400);
    cancelled_now(&harness);
}
