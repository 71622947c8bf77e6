//! Tests of arrays.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use sluice_common::array::PartCounts;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::ToNode;

use super::harness::*;
use crate::{Input, NewStep, Record, Refusal, ReplyId, StepAction};

fn with_pending(spec: StepSpec) -> StepSpec {
    StepSpec {
        allow_pending: true,
        ..spec
    }
}

/// Submits an array of steps with one core each to a host with 4 GPUs and 4 cores.
fn array(id: &str, indexes: &str) -> Harness {
    let mut harness = Harness::one_node(4, 4);
    let spec = of_array(spec(0, 1000), indexes);
    harness.submit(id, spec).unwrap();
    harness
}

fn counts(harness: &Harness, id: &str) -> PartCounts {
    let array = harness.core.state().step(&step(id)).unwrap();
    harness.core.state().part_counts(array).unwrap()
}

/// The ids of the steps that are remembered, other than the array.
fn parts(harness: &Harness) -> Vec<String> {
    let steps = harness.core.state().steps().values();
    let parts = steps.filter(|step| step.part_of.is_some());
    parts.map(|step| step.id.to_string()).collect()
}

fn running(harness: &Harness) -> Vec<String> {
    let steps = harness.core.state().steps().values();
    let running = steps.filter(|step| step.part_of.is_some() && step.live().is_some());
    running.map(|step| step.id.to_string()).collect()
}

/// Runs an attempt and ends it with a code.
fn end(harness: &mut Harness, attempt: &str, code: i32) {
    harness.run(attempt);
    harness.status("n", attempt, released(Exit::Code(code)));
}

/// Ends the attempts that run, until none is left.
fn end_all(harness: &mut Harness) {
    loop {
        let node = node("n");
        let held: Vec<String> = (harness.core.state().attempts_on(&node))
            .map(|id| format!("{id}"))
            .collect();
        if held.is_empty() {
            return;
        }
        held.iter().for_each(|attempt| end(harness, attempt, 0));
    }
}

#[test]
fn an_array_is_one_record_and_its_parts_enter_the_queue_as_others_start() {
    let mut harness = Harness::new();
    let before = harness.log.len();
    harness
        .submit("a", of_array(with_pending(spec(0, 1000)), "0-99999"))
        .unwrap();
    let queued = |record: &Record| matches!(record, Record::StepQueued(_));
    let made: Vec<_> = harness.log[before..].iter().map(|it| &it.record).collect();
    assert_eq!(made.iter().filter(|it| queued(it)).count(), 1);
    assert_eq!(made.len(), 3, "the array and its first two parts");
    assert_eq!(parts(&harness), ["a.0", "a.1"]);
    assert_eq!(harness.state("a"), StepState::Queued);
    harness.hello(hello("n", 4, 4));
    assert_eq!(running(&harness), ["a.0", "a.1", "a.2", "a.3"]);
    assert_eq!(parts(&harness).len(), 6);
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(
        harness.reason("a").message,
        "0 of 100000 ended: 4 run, 2 are queued, 99994 wait to enter the queue"
    );
}

#[test]
fn every_part_runs_once_and_the_array_ends_with_the_last() {
    let mut harness = array("a", "0-20:2,5");
    end_all(&mut harness);
    assert_eq!(harness.state("a"), StepState::Succeeded);
    let all = counts(&harness, "a");
    assert_eq!((all.total, all.succeeded, all.ended()), (12, 12, 12));
    assert_eq!(harness.reason("a").message, "12 of 12 ended");
    assert_eq!(harness.code("a"), ReasonCode::Completed);
    let starts = |id: &str| {
        let is_start = |record: &Record| matches!(record, Record::Allocated(it) if it.attempt.step.as_str() == id);
        harness.log.iter().filter(|it| is_start(&it.record)).count()
    };
    for index in [0, 2, 5, 20] {
        assert_eq!(starts(&format!("a.{index}")), 1);
    }
}

#[test]
fn no_more_parts_than_allowed_are_at_work() {
    let mut harness = array("a", "0-9%3");
    assert_eq!(running(&harness), ["a.0", "a.1", "a.2"]);
    assert_eq!(parts(&harness).len(), 3);
    let waiting = harness.core.state().find(&step("a.5")).unwrap();
    assert_eq!(waiting.state, StepState::Queued);
    assert_eq!(
        harness.core.reason(&waiting).to_reason().message,
        "it enters the queue after 2 other parts of `a`, of which at most 3 are at work at once"
    );
    end(&mut harness, "a.1.1", 0);
    assert_eq!(running(&harness), ["a.0", "a.2", "a.3"]);
    end_all(&mut harness);
    assert_eq!(harness.state("a"), StepState::Succeeded);
}

#[test]
fn parts_share_the_place_of_their_array() {
    let mut harness = Harness::one_node(4, 1);
    let one = || spec(0, 1000);
    harness.submit("first", of_array(one(), "0-2")).unwrap();
    harness.submit("second", one()).unwrap();
    let mut order = Vec::new();
    loop {
        let node = node("n");
        let Some(attempt) = harness.core.state().attempts_on(&node).next().cloned() else {
            break;
        };
        order.push(attempt.step.to_string());
        end(&mut harness, &format!("{attempt}"), 0);
    }
    assert_eq!(order, ["first.0", "first.1", "first.2", "second"]);
}

#[test]
fn a_failed_part_is_retried_before_later_ones_and_fails_the_array_in_the_end() {
    let mut harness = Harness::one_node(4, 1);
    harness
        .submit("a", of_array(with_retries(spec(0, 1000), 1), "0-2"))
        .unwrap();
    end(&mut harness, "a.0.1", 7);
    assert_eq!(running(&harness), ["a.0"]);
    end(&mut harness, "a.0.2", 7);
    assert_eq!(harness.state("a.0"), StepState::Failed);
    end(&mut harness, "a.1.1", 7);
    end(&mut harness, "a.1.2", 0);
    end_all(&mut harness);
    assert_eq!(harness.state("a"), StepState::Failed);
    assert_eq!(harness.code("a"), ReasonCode::PartsFailed);
    assert_eq!(harness.reason("a").message, "3 of 3 ended, 1 failed");
}

#[test]
fn one_part_is_cancelled_whether_it_waits_or_runs() {
    let mut harness = array("a", "0-9");
    harness.cancel("a.9");
    harness.cancel("a.5");
    harness.cancel("a.0");
    harness.status("n", "a.0.1", released(Exit::Code(1)));
    assert_eq!(counts(&harness, "a").cancelled, 3);
    let ended = harness.core.state().find(&step("a.9")).unwrap();
    assert_eq!(ended.state, StepState::Cancelled);
    assert_eq!(
        harness.core.reason(&ended).to_reason().code,
        ReasonCode::Cancelled
    );
    end_all(&mut harness);
    assert_eq!(harness.state("a"), StepState::Cancelled);
    assert_eq!(harness.reason("a").message, "10 of 10 ended, 3 cancelled");
}

#[test]
fn a_cancelled_array_starts_nothing_more_and_ends_with_its_last_part() {
    let mut harness = array("a", "0-99999");
    harness.cancel("a");
    assert_eq!(counts(&harness, "a").cancelled, 99_996);
    assert_eq!(harness.state("a"), StepState::Running);
    for part in 0..4 {
        harness.status("n", &format!("a.{part}.1"), released(Exit::Signal(15)));
    }
    assert_eq!(harness.state("a"), StepState::Cancelled);
    assert_eq!(harness.code("a"), ReasonCode::Cancelled);
}

#[test]
fn a_held_array_lets_no_part_start_until_it_is_resumed() {
    let mut harness = Harness::one_node(4, 1);
    harness.submit("a", of_array(spec(0, 1000), "0-2")).unwrap();
    harness.run("a.0.1");
    harness.action("a", StepAction::Suspend);
    assert_eq!(harness.code("a.1"), ReasonCode::Held);
    harness.status("n", "a.0.1", released(Exit::Code(0)));
    assert!(running(&harness).is_empty());
    harness.action("a", StepAction::Resume);
    end_all(&mut harness);
    assert_eq!(harness.state("a"), StepState::Succeeded);
}

#[test]
fn an_array_waits_for_what_it_names_and_others_wait_for_all_of_it_or_for_one_part() {
    let mut harness = Harness::one_node(4, 4);
    let one = || spec(0, 1000);
    harness.submit("prep", one()).unwrap();
    harness
        .submit("a", of_array(after(one(), &["prep"]), "0-5"))
        .unwrap();
    harness.submit("third", after(one(), &["a.3"])).unwrap();
    harness.submit("all", after(one(), &["a"])).unwrap();
    assert_eq!(harness.code("a"), ReasonCode::WaitingForDependencies);
    assert!(parts(&harness).is_empty());
    end(&mut harness, "prep.1", 0);
    assert_eq!(running(&harness), ["a.0", "a.1", "a.2", "a.3"]);
    end(&mut harness, "a.3.1", 0);
    assert_eq!(harness.code("third"), ReasonCode::WaitingForUnits);
    assert_eq!(harness.code("all"), ReasonCode::WaitingForDependencies);
    for index in [0, 1, 2, 4, 5] {
        end(&mut harness, &format!("a.{index}.1"), 0);
    }
    assert_eq!(harness.state("a"), StepState::Succeeded);
    assert_eq!(harness.state("all"), StepState::Allocated);
}

#[test]
fn parts_are_paired_by_index() {
    let mut harness = Harness::one_node(4, 4);
    let one = || spec(0, 1000);
    harness.submit("a", of_array(one(), "0-3")).unwrap();
    harness
        .submit("b", of_array(after(one(), &["a:each"]), "1-3"))
        .unwrap();
    harness
        .submit("c", of_array(after(one(), &["b:each:failed"]), "1-3%1"))
        .unwrap();
    end(&mut harness, "a.2.1", 0);
    assert_eq!(running(&harness), ["a.0", "a.1", "a.3", "b.2"]);
    end(&mut harness, "a.1.1", 5);
    assert_eq!(running(&harness), ["a.0", "a.3", "b.2", "c.1"]);
    let ended = harness.core.state().find(&step("b.1")).unwrap();
    let reason = harness.core.reason(&ended).to_reason();
    assert_eq!(
        (ended.state, reason.code),
        (StepState::Cancelled, ReasonCode::DependencyFailed)
    );
    assert_eq!(
        reason.message,
        "it was to start after the part of `a` with its index has succeeded, and that ended as failed: `sluice explain a.INDEX` says why"
    );
    end_all(&mut harness);
    assert_eq!(harness.state("a"), StepState::Failed);
    assert_eq!(harness.state("b"), StepState::Cancelled);
    assert_eq!(harness.state("c"), StepState::Cancelled);
    assert_eq!(counts(&harness, "b").succeeded, 2);
    assert_eq!(counts(&harness, "c").succeeded, 1);
    // What has ended before the submit counts.
    harness
        .submit("d", of_array(after(one(), &["a:each"]), "0-3"))
        .unwrap();
    end_all(&mut harness);
    assert_eq!(counts(&harness, "d").succeeded, 3);
    assert_eq!(counts(&harness, "d").cancelled, 1);
}

#[test]
fn wrong_pairs_and_ids_are_refused_with_the_way_out() {
    let mut harness = array("a", "0-3");
    let one = || spec(0, 1000);
    let refusal = |harness: &mut Harness, id: &str, spec| {
        let refusal: Refusal = harness.submit(id, spec).unwrap_err();
        refusal.to_string()
    };
    harness.submit("x.7", one()).unwrap();
    let pairs = of_array(after(one(), &["a:each"]), "2-5");
    assert_eq!(
        refusal(&mut harness, "b", pairs),
        "array `a` has no part 4, after which `b.4` is to start: leave out that index, or write `a` without `:each` to start after all of it"
    );
    let pairs = of_array(after(one(), &["x.7:each"]), "0-5");
    assert_eq!(
        refusal(&mut harness, "b", pairs),
        "step `x.7` is no array, so `x.7:each` of `b` pairs nothing: write `x.7` to start after all of it"
    );
    assert!(refusal(&mut harness, "a.3", one()).contains("`a.3` belongs to a step"));
    let taken = of_array(one(), "0-9");
    assert!(refusal(&mut harness, "x", taken).contains("`x.7` belongs to a step"));
    harness.submit("x", of_array(one(), "0-6")).unwrap();
    harness.submit("a", of_array(one(), "0-3")).unwrap();
    let other = of_array(one(), "0-4");
    assert!(refusal(&mut harness, "a", other).contains("(array)"));
    let unknown = refusal(&mut harness, "c", after(one(), &["a.9"]));
    assert!(unknown.contains("there is no step `a.9`"), "{unknown}");
}

#[test]
fn an_array_that_can_never_be_granted_is_rejected_as_a_whole() {
    let mut harness = Harness::one_node(4, 4);
    harness
        .submit("a", of_array(spec(99, 1000), "0-99999"))
        .unwrap();
    assert_eq!(harness.state("a"), StepState::Rejected);
    assert_eq!(counts(&harness, "a").failed, 100_000);
    harness
        .submit("next", of_array(after(spec(0, 1), &["a:each:any"]), "5-7"))
        .unwrap();
    end_all(&mut harness);
    assert_eq!(harness.state("next"), StepState::Succeeded);
}

#[test]
fn an_array_that_is_queued_at_its_deadline_fails_as_a_whole() {
    let mut harness = Harness::new();
    let mut spec = of_array(with_pending(spec(0, 1000)), "0-999");
    spec.deadline = Some(harness.now + Span::from_secs(60));
    harness.submit("a", spec).unwrap();
    harness.pass(61);
    assert_eq!(harness.state("a"), StepState::Failed);
    assert_eq!(harness.code("a"), ReasonCode::DeadlineMissed);
}

#[test]
fn a_moved_array_takes_its_queued_parts_with_it() {
    let mut harness = Harness::new();
    harness.apply(vec![wanted_pool("other", &[])]);
    harness.put_policy("other", "s", Default::default());
    let mut spec = of_array(with_pending(spec(0, 1000)), "0-9");
    spec.pool = Some("default".parse().unwrap());
    harness.submit("a", spec).unwrap();
    super::step_moves::move_foreseen(&mut harness, "a", "other").unwrap();
    let alone = super::step_moves::move_foreseen(&mut harness, "a.0", "default");
    assert!(
        alone
            .unwrap_err()
            .to_string()
            .contains("is not moved alone")
    );
    for id in ["a", "a.0", "a.1"] {
        let step = harness.core.state().step(&step(id)).unwrap();
        assert_eq!(step.only_pool().unwrap().as_str(), "other");
    }
}

#[test]
fn a_restart_keeps_every_part_in_its_place() {
    let mut harness = array("a", "0-19");
    end(&mut harness, "a.2.1", 0);
    end(&mut harness, "a.0.1", 3);
    harness.cancel("a.15");
    let before = counts(&harness, "a");
    for at in [0, harness.log.len() / 2, harness.log.len()] {
        harness.restart(at);
        assert_eq!(counts(&harness, "a"), before);
    }
    let held: Vec<_> = (harness.core.state().attempts_on(&node("n")))
        .map(|id| status(&format!("{id}"), running_phase()))
        .collect();
    let mut words = hello("n", 4, 4);
    words.attempts = held;
    harness.hello(words);
    end_all(&mut harness);
    let after = counts(&harness, "a");
    assert_eq!((after.succeeded, after.failed, after.cancelled), (18, 1, 1));
}

fn running_phase() -> sluice_common::wire::AttemptPhase {
    super::harness::running()
}

#[test]
fn ended_parts_are_forgotten_and_their_array_still_knows_how_they_ended() {
    let mut harness = Harness::with(crate::Settings {
        bounds: crate::Bounds {
            keep_finished: 3,
            ..SETTINGS.bounds
        },
        ..SETTINGS
    });
    harness.hello(hello("n", 4, 4));
    harness
        .submit("a", of_array(spec(0, 1000), "0-49"))
        .unwrap();
    end(&mut harness, "a.0.1", 3);
    for _ in 0..40 {
        let node = node("n");
        let next = harness.core.state().attempts_on(&node).next().cloned();
        end(&mut harness, &format!("{}", next.unwrap()), 0);
    }
    assert!(parts(&harness).len() <= 3 + 6, "{:?}", parts(&harness));
    let forgotten = harness.core.state().find(&step("a.0")).unwrap();
    assert_eq!(forgotten.state, StepState::Failed);
    assert_eq!(
        harness.core.reason(&forgotten).to_reason().message,
        "its process exited with code 3"
    );
    let explained = harness.core.explain(&step("a.1")).unwrap();
    assert_eq!(explained.step.state, StepState::Succeeded);
    assert_eq!(counts(&harness, "a").ended(), 41);
}

#[test]
fn a_part_is_told_its_index_and_its_array() {
    let mut harness = Harness::one_node(4, 4);
    let effects = harness.feed(Input::Submit {
        reply: ReplyId(1),
        steps: vec![NewStep::new(step("a"), of_array(spec(0, 1000), "3-9:3"))],
    });
    let assigned = effects.sent.iter().filter_map(|order| {
        let ToNode::Assign(assignment) = order else {
            return None;
        };
        Some(assignment)
    });
    let mut assigned = assigned.filter(|it| it.attempt == attempt("a.6.1"));
    let env = assigned.next().map(|it| &it.env);
    let env = env.unwrap();
    for (name, value) in [
        ("SLUICE_ARRAY_ID", "a"),
        ("SLUICE_ARRAY_INDEX", "6"),
        ("SLUICE_ARRAY_SIZE", "3"),
        ("SLUICE_ARRAY_MIN", "3"),
        ("SLUICE_ARRAY_MAX", "9"),
    ] {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[test]
fn a_part_that_outlives_its_array_needs_no_variables() {
    let mut harness = Harness::with(crate::Settings {
        bounds: crate::Bounds {
            keep_finished: 1,
            ..SETTINGS.bounds
        },
        ..SETTINGS
    });
    harness.hello(hello("n", 4, 4));
    harness.submit("a", of_array(spec(0, 1000), "0")).unwrap();
    harness.status("n", "a.0.1", ended(Exit::Code(0)));
    harness.submit("x", spec(0, 1000)).unwrap();
    end(&mut harness, "x.1", 0);
    assert_eq!(parts(&harness), ["a.0"]);
    assert!(harness.core.state().step(&step("a")).is_none());
    let snapshot = serde_json::to_string(harness.core.state()).unwrap();
    let mut state: crate::State = serde_json::from_str(&snapshot).unwrap();
    let x = harness.step("x").spec.env.clone();
    let variables = |key: &str| {
        let id = &step(key);
        Ok::<_, crate::ApplyError>((id.as_str() == "x").then(|| x.clone()))
    };
    assert_eq!(state.give_environments(variables), Ok(None));
}
