//! Orders that arrive late or never: what they may still do, and what becomes of what they were to start.

use alloc::boxed::Box;
use alloc::{format, vec};

use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::wire::{AttemptPhase, StopReason};

use super::rig::*;
use crate::{Answer, Change, Input, NewStep, ReplyId};

/// Node `n` and a second one of its size.
fn two_nodes() -> Rig {
    let mut rig = Rig::one_node(0, 1);
    rig.hello(hello("m", 0, 1));
    rig.heartbeat("n");
    rig.heartbeat("m");
    rig
}

#[test]
fn an_order_says_its_number_and_what_it_answers() {
    let mut rig = Rig::one_node(0, 4);
    let heard = rig.host_clock();
    rig.heartbeat("n");
    rig.pass(5);
    let submit = |rig: &mut Rig, id: &str| {
        let steps = vec![NewStep::new(step(id), spec(0, 1000))];
        let reply = ReplyId(1);
        rig.feed(Input::Submit { reply, steps }).numbers
    };
    assert_eq!(submit(&mut rig, "a"), [(1, heard)]);
    // A heartbeat that comes after a newer one takes nothing back.
    let newer = rig.host_clock();
    rig.heartbeat("n");
    assert_eq!(submit(&mut rig, "b"), [(2, newer)]);
    rig.hello(holding(hello("n", 0, 4), vec![]));
    let again = submit(&mut rig, "c");
    assert_eq!(again, [(3, BootMillis(0))], "a and b went out again before");
}

#[test]
fn what_a_dry_run_would_say_is_not_counted() {
    let mut rig = Rig::one_node(0, 4);
    rig.heartbeat("n");
    let heard = rig.host_clock();
    let dry = Input::Preview {
        reply: ReplyId(9),
        step: Box::new(NewStep::new(step("x"), spec(0, 1000))),
    };
    let fed = rig.feed(dry);
    assert!(matches!(fed.answers[..], [Answer::Previewed(_)]), "{fed:?}");
    let change = Change {
        wanted: wanted_pool("p", &[]),
        version: None,
    };
    rig.feed(Input::Apply {
        reply: ReplyId(3),
        changes: vec![change],
        force: false,
        dry_run: true,
    });
    let steps = vec![NewStep::new(step("a"), spec(0, 1000))];
    let reply = ReplyId(1);
    let fed = rig.feed(Input::Submit { reply, steps });
    assert_eq!(fed.numbers, [(1, heard)]);
}

#[test]
fn a_lost_host_loses_its_link_so_that_nothing_more_arrives_by_it() {
    let mut rig = Rig::one_node(0, 4);
    rig.submit("a", spec(0, 1000)).unwrap();
    let fed = rig.pass(390);
    assert_eq!(rig.node_state("n"), NodeState::Lost);
    assert_eq!(fed.cut.len(), 1, "{fed:?}");
    assert!(fed.cut[0].contains("given up for lost"), "{fed:?}");
    // What still comes by it is not heard.
    rig.status("n", "a.1", running());
    assert_eq!(rig.node_state("n"), NodeState::Lost);
    assert_eq!(rig.state("a"), StepState::Queued);
}

#[test]
fn a_host_that_hears_nothing_gets_no_new_work_though_it_is_heard() {
    let mut rig = two_nodes();
    let answered = rig.host_clock();
    for (secs, state) in [
        (3, NodeState::Ready),
        (3, NodeState::Ready),
        (3, NodeState::Unreachable),
        (3, NodeState::Unreachable),
    ] {
        rig.pass(secs);
        rig.beat("n", answered, 0);
        rig.heartbeat("m");
        assert_eq!(rig.node_state("n"), state);
    }
    // Nor does anything else that it says make it ready.
    rig.status("n", "z.1", ended(Exit::Code(0)));
    assert_eq!(rig.node_state("n"), NodeState::Unreachable);
    rig.submit("a", spec(0, 1000)).unwrap();
    assert_eq!(rig.placed("a").0, "m");
    rig.heartbeat("n");
    rig.status("n", "z.1", released(Exit::Code(0)));
    assert_eq!(rig.node_state("n"), NodeState::Ready, "it hears again");
}

/// One of two nodes is sent an assignment that does not arrive. Also the time of the last heartbeat that was answered.
fn unheard() -> (Rig, BootMillis) {
    let mut rig = two_nodes();
    let answered = rig.host_clock();
    rig.submit("a", spec(0, 1000)).unwrap();
    (rig, answered)
}

/// Both hosts beat; the one that was told to run `a` has not heard so.
fn beat_on(rig: &mut Rig, deaf: &str, answered: BootMillis, secs: u64) {
    for _ in 0..secs / 3 {
        rig.pass(3);
        rig.beat(deaf, answered, 0);
        rig.heartbeat(if deaf == "n" { "m" } else { "n" });
    }
}

#[test]
fn what_cannot_begin_any_more_goes_elsewhere_long_before_its_host_is_lost() {
    let (mut rig, answered) = unheard();
    let first = rig.placed("a").0;
    beat_on(&mut rig, &first, answered, 9);
    assert_eq!(rig.state("a"), StepState::Allocated, "it may begin yet");
    beat_on(&mut rig, &first, answered, 3);
    let (second, _) = rig.placed("a");
    assert_ne!(first, second);
    assert_eq!(rig.step("a").attempts.len(), 2);
    let ended = &rig.step("a").attempts[0].parts[0];
    assert!(ended.end.is_some(), "{ended:?}");
}

#[test]
fn the_reason_says_that_the_order_did_not_arrive() {
    let mut rig = Rig::one_node(0, 1);
    rig.heartbeat("n");
    let answered = rig.host_clock();
    rig.submit("a", spec(0, 1000)).unwrap();
    for _ in 0..4 {
        rig.pass(3);
        rig.beat("n", answered, 0);
    }
    assert_eq!(rig.state("a"), StepState::Queued);
    assert_eq!(rig.code("a"), ReasonCode::NotBegun);
}

#[test]
fn what_has_arrived_or_begun_stays_where_it_is() {
    for begun in [true, false] {
        let (mut rig, answered) = unheard();
        let first = rig.placed("a").0;
        match begun {
            // Its status has come and the heartbeats that count the order have not.
            true => drop(rig.status(&first, "a.1", AttemptPhase::Starting)),
            // The order has come and the status has not.
            false => drop(rig.beat(&first, answered, 1)),
        }
        beat_on(&mut rig, &first, answered, 60);
        assert_eq!(rig.step("a").attempts.len(), 1, "begun: {begun}");
        assert_eq!(rig.placed("a").0, first);
    }
}

#[test]
fn what_was_cancelled_before_it_could_begin_is_over_when_it_cannot() {
    let (mut rig, answered) = unheard();
    let first = rig.placed("a").0;
    rig.cancel("a");
    assert_eq!(rig.state("a"), StepState::Stopping);
    beat_on(&mut rig, &first, answered, 12);
    assert_eq!(rig.state("a"), StepState::Cancelled);
}

#[test]
fn a_part_of_a_gang_that_cannot_begin_ends_all_of_it() {
    let mut rig = two_nodes();
    let answered = rig.host_clock();
    let mut gang = spec(0, 1000);
    gang.nodes = 2;
    rig.submit("g", gang).unwrap();
    rig.status("m", "g.1", running());
    beat_on(&mut rig, "n", answered, 12);
    assert_eq!(rig.state("g"), StepState::Stopping);
    rig.status("m", "g.1", gone(Exit::Signal(15), StopReason::PeerEnded));
    assert_eq!(rig.state("g"), StepState::Queued);
}

#[test]
fn times_that_a_host_makes_up_harm_nothing_but_itself() {
    let mut rig = two_nodes();
    for (answered, orders) in [(0, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (u64::MAX, 0)] {
        rig.submit(&format!("a{answered}{orders}"), spec(0, 1000))
            .unwrap();
        rig.beat("n", BootMillis(answered), orders);
        rig.pass(3);
        rig.heartbeat("m");
    }
    assert_eq!(rig.node_state("m"), NodeState::Ready);
}
