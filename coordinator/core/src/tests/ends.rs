//! Tests of the ends of attempts and the decisions about their steps.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;

use sluice_common::keep::KeptFiles;
use sluice_common::reason::{Detail, ReasonCode};
use sluice_common::state::StepState;
use sluice_common::supervision::{Exit, OutOfMemory, StorageBound, StorageExceeded};
use sluice_common::wire::{AttemptPhase, StopReason};

use super::harness::*;
use crate::{MAX_ATTEMPTS_KEPT, PartPhase};

#[test]
fn a_status_implies_all_that_came_before_it_and_a_repeat_is_harmless() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    let effects = harness.status("n", "a.1", AttemptPhase::Starting);
    assert_eq!(effects.types(), ["starting"]);
    assert_eq!(harness.state("a"), StepState::Starting);
    assert_eq!(harness.status("n", "a.1", running()).types(), ["started"]);
    assert_eq!(harness.state("a"), StepState::Running);
    for stale in [AttemptPhase::Starting, running()] {
        assert!(harness.status("n", "a.1", stale).records.is_empty());
    }
    harness.submit("b", spec(0, 1000)).unwrap();
    let effects = harness.status("n", "b.1", released(Exit::Code(0)));
    let all = ["starting", "started", "ended", "step_ended", "released"];
    assert_eq!(effects.types(), all);
    assert_eq!(effects.orders, ["forget b.1"]);
    let effects = harness.status("n", "b.1", released(Exit::Code(0)));
    assert_eq!(
        (effects.types().len(), effects.orders),
        (0, vec!["forget b.1".to_string()])
    );
}

#[test]
fn the_process_and_the_end_are_kept_with_the_attempt() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.status("n", "a.1", released(Exit::Code(3)));
    let attempt = harness.step("a").latest().unwrap();
    assert_eq!(attempt.number, 1);
    let part = attempt.on(&node("n")).unwrap();
    assert_eq!(part.started, Some(process()));
    assert_eq!(part.end, Some(end(Exit::Code(3), None)));
    assert_eq!(
        (part.phase, part.released_at),
        (PartPhase::Released, Some(harness.now))
    );
    assert!(harness.step("a").live().is_none());
}

#[test]
fn what_its_host_has_kept_is_recorded_once_with_the_release() {
    let mut harness = Harness::one_node(1, 4);
    let kept = KeptFiles {
        files: 2,
        ..KeptFiles::nothing("`a` was not kept")
    };
    let mut last = end(Exit::Code(0), None);
    last.kept = Some(Box::new(kept));
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.status("n", "a.1", AttemptPhase::Released(last.clone()));
    assert_eq!(effects.types(), ["ended", "step_ended", "released"]);
    let part = harness.step("a").latest().unwrap().on(&node("n")).unwrap();
    assert_eq!(part.end.as_ref(), Some(&last));
    let text = serde_json::to_string(&effects.records).unwrap();
    assert_eq!(text.matches("`a` was not kept").count(), 1, "{text}");
}

/// Exit of the attempt, reason of its stop, allowed retries, and the state and reason of the step.
type Case = (Exit, Option<StopReason>, u32, StepState, ReasonCode);

#[test]
fn what_becomes_of_a_step_is_told_by_how_its_attempt_ended() {
    use ReasonCode as R;
    use StepState::{Allocated, Cancelled, Failed, Succeeded};
    let start_failed = || Exit::StartFailed("no such file".into());
    let out_of_memory = || {
        Exit::OutOfMemory(OutOfMemory {
            limit_bytes: Some(1 << 30),
            peak_bytes: None,
        })
    };
    let storage_exceeded = |bound| {
        Exit::StorageExceeded(StorageExceeded {
            bound,
            used_bytes: 3 << 30,
            used_files: 4,
        })
    };
    let granted = storage_exceeded(StorageBound::Granted(2 << 30));
    let reserve = storage_exceeded(StorageBound::Reserve);
    let files = storage_exceeded(StorageBound::Files(3));
    let cases: [Case; 25] = [
        (granted.clone(), None, 0, Failed, R::StorageExceeded),
        (granted, None, 1, Allocated, R::Allocated),
        (reserve, None, 0, Failed, R::StorageExceeded),
        (files, None, 0, Failed, R::StorageExceeded),
        (out_of_memory(), None, 0, Failed, R::OutOfMemory),
        (out_of_memory(), None, 1, Allocated, R::Allocated),
        (Exit::Code(0), None, 0, Succeeded, R::Completed),
        (Exit::Code(7), None, 0, Failed, R::NonZeroExit),
        (Exit::Code(-7), None, 0, Failed, R::NonZeroExit),
        (Exit::Signal(9), None, 0, Failed, R::KilledBySignal),
        (Exit::Unknown, None, 0, Failed, R::ExitUnknown),
        (start_failed(), None, 0, Failed, R::StartFailed),
        (start_failed(), None, 5, Failed, R::StartFailed),
        (Exit::Code(7), None, 1, Allocated, R::Allocated),
        (Exit::Signal(9), None, 1, Allocated, R::Allocated),
        (Exit::Unknown, None, 1, Allocated, R::Allocated),
        (Exit::LeaseExpired, None, 0, Allocated, R::Allocated),
        (Exit::HostRebooted, None, 0, Allocated, R::Allocated),
        (
            Exit::Signal(15),
            Some(StopReason::TimedOut),
            5,
            Failed,
            R::TimedOut,
        ),
        (
            Exit::Code(0),
            Some(StopReason::TimedOut),
            0,
            Failed,
            R::TimedOut,
        ),
        (
            Exit::Signal(15),
            Some(StopReason::Cancelled),
            0,
            Cancelled,
            R::Cancelled,
        ),
        (
            Exit::Code(0),
            Some(StopReason::Preempted),
            0,
            Succeeded,
            R::Completed,
        ),
        (
            Exit::Signal(15),
            Some(StopReason::Preempted),
            0,
            Allocated,
            R::Allocated,
        ),
        (
            Exit::Signal(15),
            Some(StopReason::Drained),
            0,
            Allocated,
            R::Allocated,
        ),
        (
            Exit::Code(1),
            Some(StopReason::Superseded),
            0,
            Allocated,
            R::Allocated,
        ),
    ];
    for (exit, stopped, retries, state, code) in cases {
        let mut harness = Harness::one_node(1, 4);
        harness
            .submit("a", with_retries(spec(1, 1000), retries))
            .unwrap();
        harness.run("a.1");
        harness.status(
            "n",
            "a.1",
            AttemptPhase::Released(end(exit.clone(), stopped)),
        );
        let now = (harness.state("a"), harness.code("a"));
        assert_eq!(now, (state, code), "{exit:?} {stopped:?} {retries}");
    }
}

#[test]
fn one_that_waits_again_says_why_and_for_what() {
    for (exit, code) in [
        (Exit::LeaseExpired, ReasonCode::LeaseExpired),
        (Exit::HostRebooted, ReasonCode::HostRebooted),
        (Exit::Code(1), ReasonCode::Retry),
    ] {
        let mut harness = Harness::one_node(1, 4);
        harness.submit("a", with_retries(spec(1, 1000), 1)).unwrap();
        harness.run("a.1");
        harness.status("n", "a.1", ended(exit));
        assert_eq!(
            (harness.state("a"), harness.code("a")),
            (StepState::Queued, code)
        );
        let detail = harness.reason("a").detail;
        assert_eq!(detail["waiting"], Detail::from("waiting_for_units"));
    }
}

#[test]
fn retries_are_spent_by_failures_alone_and_then_it_fails() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", with_retries(spec(1, 1000), 2)).unwrap();
    for (attempt, exit) in [
        ("a.1", Exit::Code(1)),
        ("a.2", Exit::LeaseExpired),
        ("a.3", Exit::Signal(9)),
    ] {
        harness.status("n", attempt, released(exit));
        assert_eq!(harness.state("a"), StepState::Allocated, "{attempt}");
    }
    assert_eq!(harness.step("a").retries_spent, 2);
    harness.status("n", "a.4", released(Exit::Code(1)));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Failed, ReasonCode::NonZeroExit)
    );
    assert_eq!(harness.reason("a").detail["exit_code"], Detail::from(1));
}

#[test]
fn a_requeued_step_keeps_its_place_and_cannot_have_its_old_units_before_they_are_free() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", with_retries(spec(1, 1000), 1)).unwrap();
    harness.submit("b", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.status("n", "a.1", ended(Exit::Code(1)));
    assert_eq!(effects.types(), ["ended", "requeued"]);
    let effects = harness.status("n", "a.1", released(Exit::Code(1)));
    assert_eq!(effects.orders, ["forget a.1", "assign a.2"]);
    assert_eq!(harness.state("b"), StepState::Queued);
}

#[test]
fn a_requeued_step_goes_elsewhere_while_its_old_attempt_is_still_being_cleared() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", with_retries(spec(1, 1000), 1)).unwrap();
    harness.hello(hello("other", 1, 4));
    harness.run("a.1");
    let effects = harness.status("n", "a.1", ended(Exit::Code(1)));
    assert_eq!(effects.orders, ["assign a.2"]);
    assert_eq!(harness.placed("a").0, "other");
    harness.status("other", "a.2", ended(Exit::Code(0)));
    assert_eq!(harness.state("a"), StepState::Succeeded);
    assert!(harness.step("a").holds_units());
    harness.status("n", "a.1", released(Exit::Code(1)));
    harness.status("other", "a.2", released(Exit::Code(0)));
    assert_eq!(harness.core.state().finished().count(), 1);
}

#[test]
fn a_host_that_stops_a_step_for_its_timeout_says_so() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    let effects = harness.status("n", "a.1", stopping(StopReason::TimedOut));
    assert_eq!(effects.types(), ["starting", "started", "stopping"]);
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Stopping, ReasonCode::TimedOut)
    );
    harness.cancel("a");
    harness.status("n", "a.1", ended(Exit::Signal(9)));
    assert_eq!(harness.code("a"), ReasonCode::TimedOut);
}

#[test]
fn of_many_attempts_the_latest_are_remembered() {
    let mut harness = Harness::one_node(1, 4);
    harness
        .submit("a", with_retries(spec(1, 1000), 1000))
        .unwrap();
    for number in 1..=150 {
        let id = alloc::format!("a.{number}");
        harness.status("n", &id, released(Exit::Code(1)));
    }
    let attempts = &harness.step("a").attempts;
    assert_eq!(
        (attempts.len(), attempts[0].number),
        (MAX_ATTEMPTS_KEPT, 52)
    );
}

#[test]
fn one_with_an_unreleased_attempt_is_not_forgotten() {
    let mut harness = Harness::with(crate::Settings {
        bounds: crate::Bounds {
            keep_finished: 0,
            ..SETTINGS.bounds
        },
        ..SETTINGS
    });
    harness.hello(hello("n", 1, 4));
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.status("n", "a.1", ended(Exit::Code(0)));
    assert_eq!(harness.state("a"), StepState::Succeeded);
    let effects = harness.status("n", "a.1", released(Exit::Code(0)));
    assert_eq!(effects.types(), ["released", "step_forgotten"]);
    assert!(harness.core.state().steps().is_empty());
}

#[test]
fn giving_way_and_losing_a_host_are_paid_with_retries_where_that_is_chosen() {
    for (exit, stopped, over) in [
        (
            Exit::Signal(15),
            Some(StopReason::Preempted),
            StepState::Preempted,
        ),
        (
            Exit::Signal(15),
            Some(StopReason::Drained),
            StepState::Preempted,
        ),
        (Exit::LeaseExpired, None, StepState::Failed),
        (Exit::HostRebooted, None, StepState::Failed),
    ] {
        let mut harness = Harness::one_node(1, 4);
        let mut paid = with_retries(spec(1, 1000), 1);
        paid.free_preemptions = false;
        harness.submit("a", paid).unwrap();
        harness.run("a.1");
        let gone = || AttemptPhase::Released(end(exit.clone(), stopped));
        harness.status("n", "a.1", gone());
        assert_eq!(harness.step("a").retries_spent, 1, "{exit:?} {stopped:?}");
        harness.run("a.2");
        harness.status("n", "a.2", gone());
        assert_eq!(harness.state("a"), over, "{exit:?} {stopped:?}");
    }
}

#[test]
fn a_host_that_cannot_start_steps_is_closed_and_keeps_nobody_s_step() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.submit("b", spec(1, 1000)).unwrap();
    let disk_full = Exit::HostFailed("the host could not write its record: no space left".into());
    let effects = harness.status("n", "a.1", released(disk_full.clone()));
    assert!(
        effects.types().contains(&"node_cordoned".to_string()),
        "{effects:?}"
    );
    for id in ["a", "b"] {
        assert_eq!(
            harness.state(id),
            StepState::Queued,
            "it waits for a host that works"
        );
    }
    assert_eq!(harness.code("a"), ReasonCode::HostFailed);
    assert_eq!(harness.code("b"), ReasonCode::NoLiveHost);
    let cordon = harness
        .core
        .state()
        .node(&node("n"))
        .unwrap()
        .cordon
        .clone()
        .unwrap();
    assert!(
        cordon
            .reason
            .contains("step `a` could not be started: the host could not write"),
        "{cordon:?}"
    );
    harness.hello(hello("m", 1, 4));
    assert_eq!(harness.placed("a").0, "m", "in its old place, before `b`");
    assert_eq!(harness.step("a").retries_spent, 0);
    let effects = harness.status("m", "a.2", released(disk_full));
    assert!(
        effects.types().contains(&"node_cordoned".to_string()),
        "{effects:?}"
    );
}

#[test]
fn one_whose_prolog_failed_is_tried_elsewhere_first() {
    let no_disk = || ended(Exit::PrologFailed("no disk".into()));
    let mut harness = Harness::one_node(2, 4);
    harness.hello(hello("o", 4, 8));
    // The tightest host, but for the failed prolog there.
    harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("a").0, "n");
    harness.status("n", "a.1", no_disk());
    harness.status("n", "a.1", released(Exit::PrologFailed("no disk".into())));
    assert_eq!(harness.placed("a").0, "o");
    harness.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("b").0, "n", "nobody else shuns it");
    // The avoided host survives a restart, and is used if no other has space.
    harness.restart(0);
    harness.hello(hello("n", 2, 4));
    harness.hello(hello("o", 4, 8));
    harness.status("o", "a.2", released(Exit::PrologFailed("no disk".into())));
    assert_eq!(
        harness.step("a").attempts.len(),
        3,
        "all have failed it: it goes on all the same"
    );
}
