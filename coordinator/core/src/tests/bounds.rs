//! Tests of the bounds on live and ended steps of one subject.

use alloc::vec::Vec;
use std::string::{String, ToString};

use sluice_common::pool::PolicySpec;
use sluice_common::step::StepSpec;

use super::harness::*;
use crate::{Answer, Bounds, Input, NewStep, QueueBound, Refusal, ReplyId, Settings, State};

fn bounded(queued_steps: u64, queued_bytes: u64, keep_finished_bytes: u64) -> Harness {
    let mut harness = Harness::with(Settings {
        bounds: Bounds {
            queued_steps,
            queued_bytes,
            keep_finished_bytes,
            ..SETTINGS.bounds
        },
        ..SETTINGS
    });
    for subject in ["greedy", "other"] {
        harness.put_policy("default", subject, PolicySpec::default());
    }
    harness
}

fn of(subject: &str, text: usize) -> StepSpec {
    let mut spec = spec(0, 1000);
    spec.subject = subject.parse().unwrap();
    spec.env.insert("A".into(), "x".repeat(text));
    spec
}

fn full(result: Result<crate::Submitted, Refusal>) -> (QueueBound, u64, u64, u64) {
    match result {
        Err(Refusal::QueueFull(full)) => (full.bound, full.has, full.asked, full.limit),
        other => panic!("{other:?}"),
    }
}

fn batch(harness: &mut Harness, steps: &[(&str, &str)]) -> Vec<bool> {
    let steps = steps.iter();
    let steps = steps.map(|(id, subject)| NewStep::new(step(id), of(subject, 0)));
    let reply = ReplyId(77);
    let steps = steps.collect();
    let effects = harness.feed(Input::Submit { reply, steps });
    match &effects.answers[..] {
        [Answer::Submitted(results)] => results.iter().map(Result::is_ok).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_queues_without_end_is_refused_and_nobody_else() {
    let mut harness = bounded(3, 1 << 30, 1 << 30);
    for id in ["a", "b", "c"] {
        harness.submit(id, of("greedy", 0)).unwrap();
    }
    let seq = harness.core.state().seq();
    let refused = harness.submit("d", of("greedy", 0));
    let message = refused.as_ref().unwrap_err().to_string();
    assert_eq!(
        message,
        "`greedy` has 3 steps that wait or run, this would add 1, and the maximum is 3: cancel some or wait until some have \
         ended, or have the operator of the coordinator raise `max_queued_steps`"
    );
    assert_eq!(full(refused), (QueueBound::Steps, 3, 1, 3));
    assert_eq!(harness.core.state().seq(), seq, "nothing is stored of it");
    harness.submit("e", of("other", 0)).unwrap();
    // A repeated submit succeeds, also after a restart.
    assert!(!harness.submit("a", of("greedy", 0)).unwrap().created);
    harness.restart(0);
    full(harness.submit("d", of("greedy", 0)));
    harness.cancel("b");
    harness.submit("d", of("greedy", 0)).unwrap();
}

#[test]
fn the_steps_of_a_subject_in_a_batch_are_taken_in_or_none_of_them() {
    let mut harness = bounded(3, 1 << 30, 1 << 30);
    harness.submit("a", of("greedy", 0)).unwrap();
    let steps = [
        ("a", "greedy"),
        ("b", "greedy"),
        ("x", "other"),
        ("c", "greedy"),
        ("d", "greedy"),
    ];
    let taken = batch(&mut harness, &steps);
    assert_eq!(taken, [true, false, true, false, false]);
    assert_eq!(batch(&mut harness, &steps[..4]), [true; 4]);
}

#[test]
fn large_requests_are_bounded_by_their_bytes() {
    let mut harness = bounded(1000, 100_000, 1 << 30);
    for id in ["a", "b", "c"] {
        harness.submit(id, of("greedy", 30_000)).unwrap();
    }
    let (bound, has, asked, limit) = full(harness.submit("d", of("greedy", 30_000)));
    assert_eq!((bound, limit), (QueueBound::Bytes, 100_000));
    assert!((30_000..33_000).contains(&asked) && (90_000..99_000).contains(&has));
    harness.submit("e", of("other", 30_000)).unwrap();
    harness.feed(Input::Bounds(Bounds {
        queued_bytes: 200_000,
        ..SETTINGS.bounds
    }));
    harness.submit("d", of("greedy", 30_000)).unwrap();
}

#[test]
fn who_ends_large_steps_without_end_pushes_out_his_own_alone() {
    let mut harness = bounded(1000, 1 << 30, 100_000);
    harness.submit("small", of("other", 0)).unwrap();
    harness.cancel("small");
    let ids: Vec<String> = (0..8).map(|n| alloc::format!("large-{n}")).collect();
    for id in &ids {
        let nowhere = in_pool(of("greedy", 30_000), "nowhere");
        harness.submit(id, nowhere).unwrap();
    }
    let left = harness.core.state().finished();
    let left: Vec<&str> = left.map(|step| step.as_str()).collect();
    assert_eq!(left, ["small", "large-5", "large-6", "large-7"]);
}

#[test]
fn who_ends_many_steps_pushes_out_his_own_alone() {
    let bounds = Bounds {
        keep_finished: 5,
        ..SETTINGS.bounds
    };
    let mut harness = Harness::with(Settings { bounds, ..SETTINGS });
    for subject in ["greedy", "other"] {
        harness.put_policy("default", subject, PolicySpec::default());
    }
    harness.submit("mine", of("other", 0)).unwrap();
    harness.cancel("mine");
    for n in 0..50 {
        // A step that is rejected at once does not count as queued.
        let mut spec = of("greedy", 0);
        spec.pool = Some("nowhere".parse().unwrap());
        harness.submit(&std::format!("n{n}"), spec).unwrap();
    }
    assert!(harness.core.state().step(&step("mine")).is_some());
    assert!(harness.core.state().step(&step("n45")).is_none());
    assert_eq!(harness.core.state().steps().len(), 5);
    harness.restart(0);
    harness.submit("again", of("other", 0)).unwrap();
    harness.cancel("again");
    assert!(
        harness.core.state().step(&step("n46")).is_none(),
        "the oldest of whoever has most"
    );
    assert!(harness.core.state().step(&step("mine")).is_some());
}

#[test]
fn what_steps_weigh_is_known_again_once_their_variables_are_given_back() {
    let mut harness = bounded(10, 1 << 30, 1 << 30);
    for (id, text) in [("a", 500), ("b", 9000)] {
        harness.submit(id, of("greedy", text)).unwrap();
    }
    harness.cancel("a");
    let state = harness.core.state();
    let written = serde_json::to_string(state).unwrap();
    let mut read: State = serde_json::from_str(&written).unwrap();
    assert_ne!(read, *state);
    let environment = |key: &str| Ok::<_, ()>(state.step(&step(key)).map(|it| it.spec.env.clone()));
    assert_eq!(read.give_environments(environment), Ok(None));
    assert_eq!(read, *state);
}
