//! Tests of checkpoints: saved work is not lost by a preemption, and that decides who is preempted.

use alloc::borrow::ToOwned;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::id::Subject;
use sluice_common::pool::PolicySpec;
use sluice_common::state::StepState;
use sluice_common::time::Span;
use sluice_common::wire::FromNode;

use super::harness::*;

fn saved(attempt: &str, secs_ago: u64) -> FromNode {
    FromNode::Checkpoint {
        attempt: attempt.parse().unwrap(),
        ago: Span::from_secs(secs_ago),
    }
}

/// Starts `old`, which has run for 200 s, and `new`, for 100 s.
fn two_runs() -> Harness {
    let mut harness = Harness::one_node(2, 4);
    let first = PolicySpec {
        priority: 10,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "first", first);
    for id in ["old", "new"] {
        harness.submit(id, spec(1, 1000)).unwrap();
        harness.run(&alloc::format!("{id}.1"));
        for _ in 0..10 {
            harness.pass(10);
            harness.heartbeat("n");
        }
    }
    harness
}

fn preempt(harness: &mut Harness) {
    let mut waiter = spec(1, 1000);
    waiter.subject = Subject::new("first").unwrap();
    harness.submit("waiter", waiter).unwrap();
}

#[test]
fn the_run_that_loses_least_gives_way_and_what_it_saved_is_not_lost() {
    let mut harness = two_runs();
    preempt(&mut harness);
    assert_eq!(harness.state("new"), StepState::Stopping, "it lost less");

    let mut harness = two_runs();
    let effects = harness.say("n", saved("old.1", 5));
    assert_eq!(effects.types(), ["checkpointed"]);
    preempt(&mut harness);
    assert_eq!(
        harness.state("old"),
        StepState::Stopping,
        "it saved its work"
    );
    assert_eq!(harness.state("new"), StepState::Running);
}

#[test]
fn one_a_minute_is_recorded_and_what_makes_no_sense_is_not() {
    let mut harness = two_runs();
    let (nothing, one) = (Vec::new(), vec!["checkpointed".to_owned()]);
    for (secs_ago, expected) in [
        (500, &nothing),
        (199, &one),
        (199, &nothing),
        (140, &nothing),
        (139, &one),
        (0, &one),
    ] {
        let effects = harness.say("n", saved("old.1", secs_ago));
        assert_eq!(effects.types(), *expected, "{secs_ago} s ago");
    }
    assert_eq!(harness.say("n", saved("no.1", 0)).types(), nothing);
    harness.status(
        "n",
        "new.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    assert_eq!(
        harness.say("n", saved("new.1", 0)).types(),
        nothing,
        "it is over"
    );
}
