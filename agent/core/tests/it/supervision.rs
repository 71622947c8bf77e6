//! A supervisor that connects, disconnects, loses its state, or outlives an agent.

use agent_core::{Input, LinkId, TimerKey};

use crate::harness::*;

#[test]
fn a_new_agent_adopts_what_runs_as_it_stands() {
    let mut harness = Harness::new();
    harness.feed(Input::Dialled { link: LINK });
    let told = harness.told(up(vec![running("a.1"), ended("b.1"), gone("c.1")]));
    let hello = "greet 1 epoch 0 [a.1 running, b.1 ended Code(0), c.1 released Code(0)]";
    assert_eq!(told, format!("TERM b.1; wake b.1 110000; {hello}"));
}

#[test]
fn a_view_of_an_unknown_attempt_is_adopted_and_reported() {
    let mut harness = Harness::linked();
    let told = harness.told(Input::Attempt(running("a.1")));
    assert_eq!(told, "1: a.1 running");
    let told = harness.told(Input::Attempt(gone("b.1")));
    assert_eq!(told, "1: b.1 ended Code(0); 1: b.1 released Code(0)");
}

#[test]
fn while_the_supervisor_is_down_nothing_is_said_to_it() {
    let mut harness = Harness::running();
    harness.feed(down());
    assert_eq!(harness.told(assign("b.1")), "1: b.1 starting");
    let told = harness.told(stop("a.1", 5));
    assert_eq!(told, "1: a.1 stopping Cancelled; wake a.1 105000");
    harness.pass(5000);
    assert_eq!(harness.told(grace_timer("a.1")), "wake a.1 106000");
    let told = harness.told(up(vec![running("a.1")]));
    assert_eq!(
        told, "renew 400000; KILL a.1; spawn b.1",
        "all of it is made good"
    );
}

#[test]
fn a_spawn_that_was_lost_is_said_again_and_one_that_arrived_is_not() {
    let mut harness = Harness::linked();
    harness.feed(assign("a.1"));
    harness.feed(assign("b.1"));
    harness.feed(down());
    let told = harness.told(up(vec![running("a.1")]));
    assert_eq!(told, "renew 400000; 1: a.1 running; spawn b.1");
}

#[test]
fn a_stop_sends_its_signal_again_by_its_stage() {
    for (secs, signal) in [(5, "notice a.1 105000; TERM a.1"), (0, "KILL a.1")] {
        let mut harness = Harness::running();
        harness.feed(stop("a.1", secs));
        harness.feed(down());
        let told = harness.told(up(vec![running("a.1")]));
        assert_eq!(told, format!("renew 400000; {signal}"));
    }
    let mut harness = Harness::running();
    harness.feed(Input::Attempt(ended("a.1")));
    harness.feed(down());
    let told = harness.told(up(vec![ended("a.1")]));
    assert_eq!(told, "renew 400000; TERM a.1", "for what was left behind");
}

#[test]
fn a_kill_that_was_lost_reaches_what_is_left_of_a_step_that_ended_meanwhile() {
    let mut harness = Harness::running();
    harness.feed(stop("a.1", 5));
    harness.feed(down());
    harness.pass(5000);
    harness.feed(grace_timer("a.1"));
    let told = harness.told(up(vec![ended("a.1")]));
    assert_eq!(told, "renew 400000; 1: a.1 ended Code(0); KILL a.1");
}

#[test]
fn what_the_supervisor_has_lost_ended_unseen() {
    let mut harness = Harness::running();
    harness.feed(down());
    let told = harness.told(up(vec![]));
    assert_eq!(
        told,
        "renew 400000; 1: a.1 ended Unknown; 1: a.1 released Unknown"
    );

    let mut harness = Harness::running();
    harness.feed(Input::Attempt(ended("a.1")));
    harness.feed(down());
    let told = harness.told(up(vec![]));
    assert_eq!(
        told, "renew 400000; 1: a.1 released Code(0)",
        "its end was seen"
    );
}

#[test]
fn a_start_that_is_stopped_and_lost_is_not_spawned_again() {
    let mut harness = Harness::linked();
    harness.feed(assign("a.1"));
    harness.feed(down());
    harness.feed(stop("a.1", 5));
    let told = harness.told(up(vec![]));
    assert_eq!(
        told,
        "renew 400000; 1: a.1 ended Unknown; 1: a.1 released Unknown"
    );
    assert_eq!(harness.told(assign("a.1")), "1: a.1 released Unknown");
}

#[test]
fn a_supervisor_that_is_back_finds_released_attempts_untouched() {
    let mut harness = Harness::running();
    harness.feed(Input::Attempt(gone("a.1")));
    harness.feed(down());
    assert_eq!(harness.told(up(vec![gone("a.1")])), "renew 400000");
    harness.feed(down());
    assert_eq!(harness.told(up(vec![])), "renew 400000");
    assert_eq!(harness.phase("a.1"), "released Code(0)");
}

#[test]
fn a_supervisor_that_is_away_is_told_and_what_it_was_not_told_is_given_back() {
    let mut harness = Harness::linked();
    harness.feed(assign("handed.1"));
    assert_eq!(harness.told(down()), "supervisor at 101000");
    harness.feed(assign("kept.1"));
    harness.pass(1000);
    let told = harness.told(Input::Timer(TimerKey::Supervisor));
    assert_eq!(
        told,
        "1: Supervisor(Unresponsive(\"gone\")); 1: kept.1 released NotBegun(\"gone\")"
    );
    assert_eq!(
        harness.told(assign("late.1")),
        "1: late.1 released NotBegun(\"gone\")"
    );
    assert_eq!(harness.phase("handed.1"), "starting", "it may run");
    assert_eq!(harness.told(down()), "", "that is known");
    let told = harness.told(up(vec![running("handed.1")]));
    assert_eq!(
        told,
        "renew 400000; 1: handed.1 running; 1: Supervisor(Responding)"
    );
}

#[test]
fn a_supervisor_that_is_back_at_once_is_no_news() {
    let mut harness = Harness::linked();
    harness.feed(down());
    harness.feed(assign("a.1"));
    assert_eq!(
        harness.told(Input::Timer(TimerKey::Supervisor)),
        "supervisor at 101000",
        "too early"
    );
    assert_eq!(harness.told(up(vec![])), "renew 400000; spawn a.1");
    harness.pass(1000);
    assert_eq!(harness.told(Input::Timer(TimerKey::Supervisor)), "");
}

#[test]
fn a_cancel_of_what_the_supervisor_was_not_told_is_done_at_once() {
    let mut harness = Harness::linked();
    harness.feed(down());
    harness.feed(assign("a.1"));
    let told = harness.told(stop("a.1", 5));
    let why = "it was stopped before that";
    assert_eq!(told, format!("1: a.1 released NotBegun(\"{why}\")"));
    assert_eq!(harness.told(up(vec![])), "renew 400000", "and never begins");
}

#[test]
fn an_agent_that_never_heard_its_supervisor_says_so_and_obeys_nothing_yet() {
    let mut harness = Harness::new();
    harness.feed(Input::Dialled { link: LINK });
    assert_eq!(harness.told(down()), "supervisor at 105000");
    harness.pass(5000);
    let told = harness.told(Input::Timer(TimerKey::Supervisor));
    assert_eq!(told, "greet 1 epoch 0 [] NeverSeen(\"gone\")");
    harness.feed(welcomed(LINK, 5));
    assert_eq!(
        harness.told(stop("a.1", 5)),
        "",
        "nobody knows whether it runs"
    );
    assert_eq!(harness.told(assign("b.1")), "");
    let told = harness.told(up(vec![running("a.1")]));
    let why = "the supervisor answers again: the agent reconnects to report what runs";
    assert_eq!(
        told,
        format!("renew 405000; 1: a.1 running; reject 1: {why}")
    );
    assert_eq!(
        harness.told(Input::Dialled { link: LinkId(2) }),
        "greet 2 epoch 5 [a.1 running]"
    );
}
