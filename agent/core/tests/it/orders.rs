//! Orders to assign, to stop unknown attempts, and to forget.

use agent_core::{Input, InputsFailure};
use sluice_common::id::UserName;
use sluice_common::inputs::{InputFile, InputHash};
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::wire::ToNode;

use crate::harness::*;

#[test]
fn an_assignment_is_reported_and_spawned_with_all_that_it_needs() {
    let mut harness = Harness::linked();
    let mut with_gpu = assignment("a.1");
    with_gpu.gpus = vec!["GPU-a".to_owned()];
    with_gpu.submitter = Some(UserName::new("alice").unwrap().into());
    let submitter = with_gpu.submitter.clone();
    let outputs = harness.feed(order(ToNode::Assign(Box::new(with_gpu))));
    assert_eq!(words(&outputs), "1: a.1 starting; spawn a.1");
    let spec = spawn_of(&outputs);
    assert_eq!(spec.command, ["train", "--fast"]);
    assert_eq!(spec.submitter, submitter);
    assert_eq!(spec.workdir.as_deref(), Some("/data"));
    assert_eq!(spec.env["LR"], "1");
    assert_eq!(spec.env["SLUICE_STEP_ID"], "a");
    assert_eq!(spec.env["CUDA_VISIBLE_DEVICES"], "GPU-a");
    assert_eq!(spec.launch_record.gpus, ["GPU-a"]);
    assert_eq!(
        (spec.launch_record.timeout, spec.launch_record.grace),
        (None, GRACE)
    );
    assert_eq!(spec.lease_until, Some(BootMillis(400_000)));
    assert_eq!(spec.lease_grace, GRACE);
}

#[test]
fn the_grace_of_an_expired_lease_is_cut_to_the_stop_limit() {
    let mut harness = Harness::linked();
    let mut long = assignment("a.1");
    long.grace = Span::from_secs(3600);
    let outputs = harness.feed(order(ToNode::Assign(Box::new(long))));
    assert_eq!(spawn_of(&outputs).lease_grace, Span::from_secs(25));
    assert_eq!(
        spawn_of(&outputs).launch_record.grace,
        Span::from_secs(3600)
    );
}

#[test]
fn a_repeated_assignment_only_reports_where_the_attempt_stands() {
    let mut harness = Harness::linked();
    harness.feed(assign("a.1"));
    assert_eq!(harness.told(assign("a.1")), "1: a.1 starting");
    harness.feed(Input::Attempt(running("a.1")));
    assert_eq!(harness.told(assign("a.1")), "1: a.1 running");
    harness.feed(Input::Attempt(gone("a.1")));
    assert_eq!(harness.told(assign("a.1")), "1: a.1 released Code(0)");
}

#[test]
fn an_assignment_without_a_program_has_its_place_held_without_the_wrapper_of_programs() {
    let mut harness = Harness::linked();
    let mut empty = assignment("a.1");
    empty.command.clear();
    empty.launch.wrapper = vec!["/usr/bin/wrap".to_owned()];
    let outputs = harness.feed(order(ToNode::Assign(Box::new(empty))));
    let spec = spawn_of(&outputs);
    assert_eq!((&spec.command[..], spec.wrapper), (&[][..], 0));
}

#[test]
fn a_full_host_refuses_and_keeps_nothing_more() {
    let mut harness = Harness::linked();
    for number in 1..=MAX_ATTEMPTS_PER_NODE {
        let told = harness.told(assign(&format!("a.{number}")));
        assert!(told.contains("spawn"), "{told}");
    }
    let told = harness.told(assign("b.1"));
    assert!(
        told.contains("b.1 released StartFailed(\"the host already holds 4096 attempts"),
        "{told}"
    );
    assert_eq!(harness.told(stop("c.1", 0)), "1: c.1 released Unknown");
    assert_eq!(harness.core.statuses().count(), MAX_ATTEMPTS_PER_NODE);
}

#[test]
fn a_stop_of_an_unknown_attempt_releases_it_and_a_late_assignment_starts_nothing() {
    let mut harness = Harness::linked();
    assert_eq!(harness.told(stop("a.1", 5)), "1: a.1 released Unknown");
    assert_eq!(harness.told(assign("a.1")), "1: a.1 released Unknown");
    assert_eq!(harness.told(stop("a.1", 5)), "1: a.1 released Unknown");
}

#[test]
fn only_what_is_released_is_forgotten() {
    let mut harness = Harness::linked();
    harness.feed(assign("a.1"));
    for (event, phase) in [
        (Input::Attempt(running("a.1")), "starting"),
        (stop("a.1", 5), "running"),
        (Input::Attempt(ended("a.1")), "stopping Cancelled"),
        (Input::Attempt(gone("a.1")), "ended Code(0)"),
    ] {
        assert_eq!(harness.told(forget("a.1")), "", "{phase}");
        assert_eq!(harness.phase("a.1"), phase);
        harness.feed(event);
    }
    assert_eq!(harness.told(forget("a.1")), "drop a.1");
    assert_eq!(harness.phase("a.1"), "unknown");
    assert_eq!(
        harness.told(forget("a.1")),
        "",
        "nothing is there to forget"
    );
}

#[test]
fn what_was_forgotten_while_the_supervisor_was_down_is_reported_once_more() {
    let mut harness = Harness::running();
    harness.feed(Input::Attempt(gone("a.1")));
    harness.feed(down());
    assert_eq!(harness.told(forget("a.1")), "", "it cannot be told");
    let told = harness.told(up(vec![gone("a.1")]));
    assert_eq!(
        told,
        "renew 400000; 1: a.1 ended Code(0); 1: a.1 released Code(0)"
    );
    assert_eq!(harness.told(forget("a.1")), "drop a.1");
}

/// An attempt with one input, and what the host tells about it.
fn with_input(id: &str) -> Input {
    let mut assignment = assignment(id);
    assignment.workdir = None;
    assignment.inputs = vec![InputFile {
        name: "data.csv".to_owned(),
        sha256: InputHash::of_digest(&[7; 32]),
        size: 1,
        executable: false,
    }];
    order(ToNode::Assign(Box::new(assignment)))
}

fn fetched(id: &str, fetched: Result<(), InputsFailure>) -> Input {
    let attempt = attempt(id);
    Input::Inputs { attempt, fetched }
}

#[test]
fn nothing_is_spawned_before_its_inputs_are_here() {
    let mut harness = Harness::linked();
    assert_eq!(
        harness.told(with_input("a.1")),
        "1: a.1 starting; fetch 1 of a.1"
    );
    let outputs = harness.feed(fetched("a.1", Ok(())));
    assert_eq!(words(&outputs), "spawn a.1");
    assert_eq!(spawn_of(&outputs).inputs.as_deref(), Some("/inputs/a.1"));
    assert_eq!(
        harness.told(fetched("a.1", Ok(()))),
        "",
        "a repeat starts nothing"
    );
}

#[test]
fn an_attempt_that_is_stopped_before_its_inputs_are_here_never_starts() {
    let mut harness = Harness::linked();
    harness.feed(with_input("a.1"));
    let told = harness.told(stop("a.1", 1));
    assert!(told.starts_with("1: a.1 released NotBegun"), "{told}");
    assert_eq!(harness.told(fetched("a.1", Ok(()))), "");
}

#[test]
fn inputs_that_cannot_be_had_end_the_attempt_with_the_reason() {
    let mut harness = Harness::linked();
    for (id, failure, exit) in [
        (
            "a.1",
            InputsFailure::Step("no `x`".to_owned()),
            "StartFailed",
        ),
        ("b.1", InputsFailure::Host("full".to_owned()), "HostFailed"),
    ] {
        harness.feed(with_input(id));
        let told = harness.told(fetched(id, Err(failure)));
        assert!(told.contains(&format!("released {exit}")), "{told}");
        assert!(!told.contains("spawn"), "{told}");
    }
}
