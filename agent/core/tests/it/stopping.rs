//! Stops by order and by timeout, end to end. The tests of the state machine cover every phase with every
//! event.

use agent_core::Input;
use sluice_common::supervision::HostPhase;
use sluice_common::time::Span;
use sluice_common::wire::ToNode;

use crate::harness::*;

#[test]
fn a_stop_asks_waits_kills_and_kills_again_until_nothing_is_left() {
    let mut harness = Harness::running();
    let told = harness.told(stop("a.1", 5));
    assert_eq!(
        told,
        "notice a.1 105000; 1: a.1 stopping Cancelled; TERM a.1; wake a.1 105000"
    );
    harness.pass(5000);
    assert_eq!(
        harness.told(grace_timer("a.1")),
        "KILL a.1; wake a.1 106000"
    );
    harness.pass(1000);
    assert_eq!(
        harness.told(grace_timer("a.1")),
        "KILL a.1; wake a.1 107000"
    );
    let told = harness.told(Input::Attempt(ended("a.1")));
    assert_eq!(told, "1: a.1 ended Code(0)");
    harness.pass(1000);
    let told = harness.told(grace_timer("a.1"));
    assert_eq!(told, "KILL a.1; wake a.1 108000", "its children still run");
    let told = harness.told(Input::Attempt(gone("a.1")));
    assert_eq!(told, "1: a.1 released Code(0)");
    harness.pass(1000);
    assert_eq!(harness.told(grace_timer("a.1")), "");
}

#[test]
fn a_step_that_heeds_the_signal_is_not_killed() {
    let mut harness = Harness::running();
    harness.feed(stop("a.1", 5));
    let told = harness.told(Input::Attempt(gone("a.1")));
    assert_eq!(told, "1: a.1 ended Code(0); 1: a.1 released Code(0)");
    harness.pass(5000);
    assert_eq!(harness.told(grace_timer("a.1")), "");
}

#[test]
fn a_stop_while_starting_signals_what_may_prepare_the_start_and_then_the_process() {
    let mut harness = Harness::linked();
    harness.feed(assign("a.1"));
    let told = harness.told(stop("a.1", 5));
    assert_eq!(told, "1: a.1 stopping Cancelled; TERM a.1; wake a.1 105000");
    let told = harness.told(Input::Attempt(running("a.1")));
    assert_eq!(
        told,
        "notice a.1 105000; 1: a.1 stopping Cancelled; TERM a.1"
    );
}

#[test]
fn a_timeout_stops_with_the_steps_own_grace() {
    let mut harness = Harness::linked();
    let mut hurried = assignment("a.1");
    hurried.timeout = Some(Span::from_secs(60));
    harness.feed(order(ToNode::Assign(Box::new(hurried))));
    let mut view = running("a.1");
    view.launch_record.timeout = Some(Span::from_secs(60));
    let told = harness.told(Input::Attempt(view));
    assert_eq!(told, "1: a.1 running; timeout a.1 160000");
    harness.pass(59_000);
    let early = harness.told(timeout_timer("a.1"));
    assert_eq!(early, "timeout a.1 160000");
    harness.pass(1000);
    let told = harness.told(timeout_timer("a.1"));
    assert_eq!(
        told,
        "notice a.1 170000; 1: a.1 stopping TimedOut; TERM a.1; wake a.1 170000"
    );
    let told = harness.told(stop("a.1", 3600));
    assert_eq!(
        told, "notice a.1 170000; 1: a.1 stopping TimedOut; wake a.1 170000",
        "never later"
    );
}

#[test]
fn what_an_ended_step_leaves_behind_gets_the_steps_grace_and_then_the_kill() {
    let mut harness = Harness::running();
    let told = harness.told(Input::Attempt(ended("a.1")));
    assert_eq!(told, "1: a.1 ended Code(0); TERM a.1; wake a.1 110000");
    harness.pass(10_000);
    assert_eq!(
        harness.told(grace_timer("a.1")),
        "KILL a.1; wake a.1 111000"
    );
    let told = harness.told(Input::Attempt(gone("a.1")));
    assert_eq!(told, "1: a.1 released Code(0)");
}

#[test]
fn a_stop_goes_on_while_no_coordinator_is_there() {
    let mut harness = Harness::running();
    harness.feed(stop("a.1", 5));
    harness.feed(Input::LinkLost { link: LINK });
    harness.pass(5000);
    assert_eq!(
        harness.told(grace_timer("a.1")),
        "KILL a.1; wake a.1 106000"
    );
    assert_eq!(harness.told(Input::Attempt(gone("a.1"))), "");
    assert_eq!(harness.phase("a.1"), "released Code(0)");
}

#[test]
fn timers_of_what_was_never_there_or_is_forgotten_do_nothing() {
    let mut harness = Harness::linked();
    assert_eq!(harness.told(grace_timer("a.1")), "");
    assert_eq!(harness.told(timeout_timer("a.1")), "");
    harness.feed(stop("a.1", 0));
    harness.feed(forget("a.1"));
    harness.pass(60_000);
    assert_eq!(harness.told(grace_timer("a.1")), "");
    assert_eq!(harness.phase("a.1"), "unknown");
}

#[test]
fn views_that_repeat_or_go_back_are_ignored() {
    let mut harness = Harness::running();
    assert_eq!(harness.told(Input::Attempt(running("a.1"))), "");
    harness.feed(Input::Attempt(ended("a.1")));
    assert_eq!(harness.told(Input::Attempt(ended("a.1"))), "");
    assert_eq!(harness.told(Input::Attempt(running("a.1"))), "");
    harness.feed(Input::Attempt(gone("a.1")));
    assert_eq!(harness.told(Input::Attempt(gone("a.1"))), "");
    assert_eq!(harness.phase("a.1"), "released Code(0)");
}

#[test]
fn a_process_of_a_released_attempt_is_killed() {
    let mut harness = Harness::linked();
    harness.feed(stop("a.1", 5));
    let told = harness.told(Input::Attempt(view("a.1", HostPhase::Running(process()))));
    assert_eq!(told, "KILL a.1");
    assert_eq!(harness.phase("a.1"), "released Unknown");
}
