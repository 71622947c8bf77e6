//! Tests of orders that arrive late or never, and of the attempts that they were to start.

use alloc::boxed::Box;
use alloc::{format, vec};

use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::wire::{AttemptPhase, StopReason};

use super::harness::*;
use crate::{Answer, Input, NewStep, ReplyId, TermsChange};

/// Makes node `n` and a second one of its size.
fn two_nodes() -> Harness {
    let mut harness = Harness::one_node(0, 1);
    harness.hello(hello("m", 0, 1));
    harness.heartbeat("n");
    harness.heartbeat("m");
    harness
}

#[test]
fn an_order_says_its_number_and_what_it_answers() {
    let mut harness = Harness::one_node(0, 4);
    let heard = harness.host_clock();
    harness.heartbeat("n");
    harness.pass(5);
    let submit = |harness: &mut Harness, id: &str| {
        let steps = vec![NewStep::new(step(id), spec(0, 1000))];
        let reply = ReplyId(1);
        harness.feed(Input::Submit { reply, steps }).numbers
    };
    assert_eq!(submit(&mut harness, "a"), [(1, heard)]);
    // A heartbeat that arrives after a newer one is ignored.
    let newer = harness.host_clock();
    harness.heartbeat("n");
    assert_eq!(submit(&mut harness, "b"), [(2, newer)]);
    harness.hello(holding(hello("n", 0, 4), vec![]));
    let again = submit(&mut harness, "c");
    assert_eq!(again, [(3, BootMillis(0))], "a and b went out again before");
}

#[test]
fn what_a_dry_run_would_say_is_not_counted() {
    let mut harness = Harness::one_node(0, 4);
    harness.heartbeat("n");
    let heard = harness.host_clock();
    let dry = Input::Preview {
        reply: ReplyId(9),
        step: Box::new(NewStep::new(step("x"), spec(0, 1000))),
    };
    let effects = harness.feed(dry);
    assert!(
        matches!(effects.answers[..], [Answer::Previewed(_)]),
        "{effects:?}"
    );
    let change = TermsChange {
        desired: wanted_pool("p", &[]),
        version: None,
    };
    harness.feed(Input::Apply {
        reply: ReplyId(3),
        changes: vec![change],
        force: false,
        dry_run: true,
    });
    let steps = vec![NewStep::new(step("a"), spec(0, 1000))];
    let reply = ReplyId(1);
    let effects = harness.feed(Input::Submit { reply, steps });
    assert_eq!(effects.numbers, [(1, heard)]);
}

#[test]
fn a_lost_host_loses_its_link_so_that_nothing_more_arrives_by_it() {
    let mut harness = Harness::one_node(0, 4);
    harness.submit("a", spec(0, 1000)).unwrap();
    let effects = harness.pass(390);
    assert_eq!(harness.node_state("n"), NodeState::Lost);
    assert_eq!(effects.cut.len(), 1, "{effects:?}");
    assert!(effects.cut[0].contains("declared lost"), "{effects:?}");
    // Later messages on this connection are ignored.
    harness.status("n", "a.1", running());
    assert_eq!(harness.node_state("n"), NodeState::Lost);
    assert_eq!(harness.state("a"), StepState::Queued);
}

#[test]
fn a_host_that_hears_nothing_gets_no_new_work_though_it_is_heard() {
    let mut harness = two_nodes();
    let answered = harness.host_clock();
    for (secs, state) in [
        (3, NodeState::Ready),
        (3, NodeState::Ready),
        (3, NodeState::Unreachable),
        (3, NodeState::Unreachable),
    ] {
        harness.pass(secs);
        harness.beat("n", answered, 0);
        harness.heartbeat("m");
        assert_eq!(harness.node_state("n"), state);
    }
    // Other messages of the host do not make it ready.
    harness.status("n", "z.1", ended(Exit::Code(0)));
    assert_eq!(harness.node_state("n"), NodeState::Unreachable);
    harness.submit("a", spec(0, 1000)).unwrap();
    assert_eq!(harness.placed("a").0, "m");
    harness.heartbeat("n");
    harness.status("n", "z.1", released(Exit::Code(0)));
    assert_eq!(harness.node_state("n"), NodeState::Ready, "it hears again");
}

/// Sends an assignment to one of two nodes, where it does not arrive. Returns the time of the last answered heartbeat
/// too.
fn unheard() -> (Harness, BootMillis) {
    let mut harness = two_nodes();
    let answered = harness.host_clock();
    harness.submit("a", spec(0, 1000)).unwrap();
    (harness, answered)
}

/// Lets both hosts send heartbeats; the one that was told to run `a` has not received the order.
fn beat_on(harness: &mut Harness, deaf: &str, answered: BootMillis, secs: u64) {
    for _ in 0..secs / 3 {
        harness.pass(3);
        harness.beat(deaf, answered, 0);
        harness.heartbeat(if deaf == "n" { "m" } else { "n" });
    }
}

#[test]
fn what_cannot_begin_any_more_goes_elsewhere_long_before_its_host_is_lost() {
    let (mut harness, answered) = unheard();
    let first = harness.placed("a").0;
    beat_on(&mut harness, &first, answered, 9);
    assert_eq!(harness.state("a"), StepState::Allocated, "it may begin yet");
    beat_on(&mut harness, &first, answered, 3);
    let (second, _) = harness.placed("a");
    assert_ne!(first, second);
    assert_eq!(harness.step("a").attempts.len(), 2);
    let ended = &harness.step("a").attempts[0].parts[0];
    assert!(ended.end.is_some(), "{ended:?}");
}

#[test]
fn the_reason_says_that_the_order_did_not_arrive() {
    let mut harness = Harness::one_node(0, 1);
    harness.heartbeat("n");
    let answered = harness.host_clock();
    harness.submit("a", spec(0, 1000)).unwrap();
    for _ in 0..4 {
        harness.pass(3);
        harness.beat("n", answered, 0);
    }
    assert_eq!(harness.state("a"), StepState::Queued);
    assert_eq!(harness.code("a"), ReasonCode::NotBegun);
}

#[test]
fn what_has_arrived_or_begun_stays_where_it_is() {
    for begun in [true, false] {
        let (mut harness, answered) = unheard();
        let first = harness.placed("a").0;
        match begun {
            // The status has arrived and the heartbeats that count the order have not.
            true => drop(harness.status(&first, "a.1", AttemptPhase::Starting)),
            // The order has arrived and the status has not.
            false => drop(harness.beat(&first, answered, 1)),
        }
        beat_on(&mut harness, &first, answered, 60);
        assert_eq!(harness.step("a").attempts.len(), 1, "begun: {begun}");
        assert_eq!(harness.placed("a").0, first);
    }
}

#[test]
fn what_was_cancelled_before_it_could_begin_is_over_when_it_cannot() {
    let (mut harness, answered) = unheard();
    let first = harness.placed("a").0;
    harness.cancel("a");
    assert_eq!(harness.state("a"), StepState::Stopping);
    beat_on(&mut harness, &first, answered, 12);
    assert_eq!(harness.state("a"), StepState::Cancelled);
}

#[test]
fn a_part_of_a_gang_that_cannot_begin_ends_all_of_it() {
    let mut harness = two_nodes();
    let answered = harness.host_clock();
    let mut gang = spec(0, 1000);
    gang.nodes = 2;
    harness.submit("g", gang).unwrap();
    harness.status("m", "g.1", running());
    beat_on(&mut harness, "n", answered, 12);
    assert_eq!(harness.state("g"), StepState::Stopping);
    harness.status("m", "g.1", gone(Exit::Signal(15), StopReason::PeerEnded));
    assert_eq!(harness.state("g"), StepState::Queued);
}

#[test]
fn times_that_a_host_makes_up_harm_nothing_but_itself() {
    let mut harness = two_nodes();
    for (answered, orders) in [(0, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (u64::MAX, 0)] {
        harness
            .submit(&format!("a{answered}{orders}"), spec(0, 1000))
            .unwrap();
        harness.beat("n", BootMillis(answered), orders);
        harness.pass(3);
        harness.heartbeat("m");
    }
    assert_eq!(harness.node_state("m"), NodeState::Ready);
}
