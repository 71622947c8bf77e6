//! Tests of steps that start after others.

use alloc::string::ToString;
use alloc::vec::Vec;
use alloc::{format, vec};

use proptest::prelude::*;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;

use super::harness::*;
use crate::dependencies::dependencies_first;
use crate::{NewStep, Refusal, StepAction};

fn one_host() -> Harness {
    Harness::one_node(4, 16)
}

fn end(harness: &mut Harness, attempt: &str, code: i32) {
    harness.status("n", attempt, released(Exit::Code(code)));
}

#[test]
fn a_step_starts_once_all_that_it_names_have_ended_as_it_asks() {
    let mut harness = one_host();
    harness.submit("prep", spec(1, 1000)).unwrap();
    harness.submit("clean", spec(1, 1000)).unwrap();
    harness
        .submit("train", after(spec(1, 1000), &["prep", "clean:any"]))
        .unwrap();
    harness.run("prep.1");
    harness.run("clean.1");
    assert_eq!(harness.state("train"), StepState::Queued);
    let reason = harness.reason("train");
    assert_eq!(reason.code, ReasonCode::WaitingForDependencies);
    assert_eq!(
        reason.message,
        "it starts after `prep` has succeeded (running now), `clean` has ended (running now)"
    );
    end(&mut harness, "clean.1", 7);
    assert_eq!(
        harness.reason("train").message,
        "it starts after `prep` has succeeded (running now)"
    );
    end(&mut harness, "prep.1", 0);
    assert_eq!(harness.state("train"), StepState::Allocated);
}

#[test]
fn what_has_ended_before_the_submit_counts() {
    let mut harness = one_host();
    harness.submit("prep", spec(1, 1000)).unwrap();
    harness.run("prep.1");
    end(&mut harness, "prep.1", 0);
    harness
        .submit("train", after(spec(1, 1000), &["prep"]))
        .unwrap();
    assert_eq!(harness.state("train"), StepState::Allocated);
    harness
        .submit("mend", after(spec(1, 1000), &["prep:failed"]))
        .unwrap();
    assert_eq!(
        (harness.state("mend"), harness.code("mend")),
        (StepState::Cancelled, ReasonCode::DependencyFailed)
    );
}

#[test]
fn what_can_never_start_ends_and_names_the_chain_that_led_there() {
    let mut harness = one_host();
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.submit("b", after(spec(1, 1000), &["a"])).unwrap();
    harness.submit("c", after(spec(1, 1000), &["b"])).unwrap();
    harness
        .submit("tell", after(spec(1, 1000), &["c:failed"]))
        .unwrap();
    harness.run("a.1");
    end(&mut harness, "a.1", 3);
    assert_eq!(harness.state("a"), StepState::Failed);
    for id in ["b", "c"] {
        assert_eq!(
            (harness.state(id), harness.code(id)),
            (StepState::Cancelled, ReasonCode::DependencyFailed)
        );
    }
    assert_eq!(
        harness.reason("c").message,
        "it was to start after `b` has succeeded, and `b` ended as cancelled because of `a` (a -> b): `sluice explain a` says why"
    );
    assert_eq!(harness.state("tell"), StepState::Allocated);
}

#[test]
fn a_long_chain_keeps_its_first_step_and_its_last_ones() {
    let mut harness = one_host();
    harness.submit("s0", spec(1, 1000)).unwrap();
    for n in 1..=20 {
        let before = format!("s{}", n - 1);
        harness
            .submit(&format!("s{n}"), after(spec(1, 1000), &[&before]))
            .unwrap();
    }
    harness.cancel("s0");
    end(&mut harness, "s0.1", 0);
    let message = harness.reason("s20").message;
    assert!(
        message.contains("because of `s0` (s0 -> s13 -> s14 -> s15 -> s16 -> s17 -> s18 -> s19)"),
        "{message}"
    );
}

#[test]
fn a_retry_is_no_end() {
    let mut harness = one_host();
    harness
        .submit("prep", with_retries(spec(1, 1000), 1))
        .unwrap();
    harness
        .submit("train", after(spec(1, 1000), &["prep"]))
        .unwrap();
    harness.run("prep.1");
    end(&mut harness, "prep.1", 1);
    assert_eq!(harness.state("train"), StepState::Queued);
    harness.run("prep.2");
    end(&mut harness, "prep.2", 0);
    assert_eq!(harness.state("train"), StepState::Allocated);
}

#[test]
fn a_step_that_waits_can_be_held_cancelled_and_moved_like_any_other() {
    let mut harness = one_host();
    harness.submit("prep", spec(1, 1000)).unwrap();
    for id in ["held", "over"] {
        harness.submit(id, after(spec(1, 1000), &["prep"])).unwrap();
    }
    harness.action("held", StepAction::Suspend);
    harness.cancel("over");
    assert_eq!(harness.code("over"), ReasonCode::Cancelled);
    harness.run("prep.1");
    end(&mut harness, "prep.1", 0);
    assert_eq!(harness.code("held"), ReasonCode::Held);
    harness.action("held", StepAction::Resume);
    assert_eq!(harness.state("held"), StepState::Allocated);
}

#[test]
fn a_step_that_is_resumed_still_waits_for_others() {
    let mut harness = one_host();
    harness.submit("prep", spec(1, 1000)).unwrap();
    harness
        .submit("train", after(spec(1, 1000), &["prep"]))
        .unwrap();
    harness.action("train", StepAction::Suspend);
    harness.action("train", StepAction::Resume);
    assert_eq!(harness.code("train"), ReasonCode::WaitingForDependencies);
    harness.action("train", StepAction::Requeue);
    assert_eq!(harness.code("train"), ReasonCode::WaitingForDependencies);
}

#[test]
fn the_time_in_the_queue_begins_when_the_last_dependency_is_met() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("prep", spec(1, 1000)).unwrap();
    harness.submit("other", spec(1, 1000)).unwrap();
    let mut late = after(spec(1, 1000), &["prep"]);
    late.queue_timeout = Some(Span::from_secs(20));
    harness.submit("late", late).unwrap();
    harness.run("prep.1");
    harness.pass(100);
    assert_eq!(harness.state("late"), StepState::Queued);
    end(&mut harness, "prep.1", 0);
    harness.pass(19);
    assert_eq!(harness.state("late"), StepState::Queued);
    harness.pass(1);
    assert_eq!(harness.code("late"), ReasonCode::QueueTimeout);
}

#[test]
fn what_waits_for_a_step_is_kept_through_restarts() {
    let mut harness = one_host();
    harness.submit("prep", spec(1, 1000)).unwrap();
    harness
        .submit("train", after(spec(1, 1000), &["prep"]))
        .unwrap();
    harness.run("prep.1");
    harness.restart(harness.log.len());
    assert_eq!(harness.code("train"), ReasonCode::WaitingForDependencies);
    harness.restart(0);
    harness.hello(holding(
        hello("n", 4, 16),
        vec![status("prep.1", running())],
    ));
    end(&mut harness, "prep.1", 0);
    assert_eq!(harness.state("train"), StepState::Allocated);
}

#[test]
fn a_step_that_is_not_there_is_refused_and_nothing_is_stored() {
    let mut harness = one_host();
    let refused = harness.submit("train", after(spec(1, 1000), &["prep"]));
    let unknown = Refusal::UnknownDependency {
        step: step("train"),
        on: step("prep"),
    };
    assert_eq!(refused, Err(unknown.clone()));
    assert_eq!(
        unknown.to_string(),
        "there is no step `prep`, after which `train` is to start: `sluice get steps` lists those that are remembered"
    );
    assert!(harness.core.state().step(&step("train")).is_none());
}

#[test]
fn the_steps_of_one_call_may_name_each_other_in_any_order() {
    let mut harness = one_host();
    let results = harness.submit_all(vec![
        ("tell", after(spec(1, 1000), &["train:any"])),
        ("train", after(spec(1, 1000), &["prep"])),
        ("prep", spec(1, 1000)),
    ]);
    let ids: Vec<_> = results.into_iter().map(|it| it.unwrap().step).collect();
    assert_eq!(ids, [step("tell"), step("train"), step("prep")]);
    harness.run("prep.1");
    end(&mut harness, "prep.1", 0);
    harness.run("train.1");
    end(&mut harness, "train.1", 1);
    assert_eq!(harness.state("tell"), StepState::Allocated);
}

#[test]
fn steps_that_wait_for_each_other_are_refused_by_name() {
    let mut harness = one_host();
    let results = harness.submit_all(vec![
        ("good", spec(1, 1000)),
        ("x", after(spec(1, 1000), &["y"])),
        ("y", after(spec(1, 1000), &["x", "good"])),
        ("behind", after(spec(1, 1000), &["y"])),
    ]);
    assert!(results[0].is_ok());
    for result in &results[1..] {
        let refusal = result
            .as_ref()
            .expect_err("it is in the cycle, or behind it");
        assert_eq!(
            *refusal,
            Refusal::DependencyCycle {
                steps: vec![step("y"), step("x")]
            }
        );
    }
    let only = harness.submit("z", after(spec(1, 1000), &["z"]));
    let refusal = only.expect_err("it names itself").to_string();
    assert_eq!(
        refusal,
        "step `z` is to start after itself: remove it from its `after`"
    );
}

#[test]
fn the_same_step_again_is_the_same_and_other_dependencies_are_another_step() {
    let mut harness = one_host();
    harness.submit("prep", spec(1, 1000)).unwrap();
    let train = after(spec(1, 1000), &["prep"]);
    assert!(harness.submit("train", train.clone()).unwrap().created);
    assert!(!harness.submit("train", train).unwrap().created);
    let other = harness.submit("train", after(spec(1, 1000), &["prep:any"]));
    assert_eq!(
        other,
        Err(Refusal::IdInUse {
            step: step("train"),
            differs: "after".into()
        })
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_step_of_a_call_comes_after_those_it_names_unless_it_is_in_or_behind_a_cycle(
        edges in prop::collection::vec(prop::collection::vec(0usize..12, 0..3), 1..12)
    ) {
        let name = |place: usize| format!("s{place}");
        let steps = edges.iter().enumerate().map(|(place, on)| {
            let mut on: Vec<_> = on.iter().map(|it| name(*it)).collect();
            on.sort();
            on.dedup();
            let on: Vec<&str> = on.iter().map(|it| it.as_str()).collect();
            NewStep::new(step(&name(place)), after(spec(0, 0), &on))
        });
        let ordered = dependencies_first(steps.collect());
        prop_assert_eq!(ordered.len(), edges.len());
        // What can be submitted by going over the call again and again, each time taking what names nothing that is left.
        let mut submitted = vec![false; edges.len()];
        for _ in 0..edges.len() {
            for (place, on) in edges.iter().enumerate() {
                let open = |it: &usize| *it < edges.len() && !submitted[*it];
                submitted[place] = submitted[place] || !on.iter().any(open);
            }
        }
        let mut before = Vec::new();
        for (place, result) in ordered {
            prop_assert_eq!(result.is_ok(), submitted[place]);
            match result {
                Ok(_) => {
                    let is_there = |it: &usize| *it >= edges.len() || before.contains(it);
                    prop_assert!(edges[place].iter().all(is_there));
                    before.push(place);
                }
                Err(Refusal::DependencyCycle { steps }) => {
                    for (at, id) in steps.iter().enumerate() {
                        let next = &steps[(at + 1) % steps.len()];
                        let place: usize = id.as_str()[1..].parse().unwrap();
                        prop_assert!(edges[place].iter().any(|it| name(*it) == next.as_str()));
                    }
                }
                Err(other) => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
