//! Tests of forgetting ended steps on request.

use alloc::string::ToString;

use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::supervision::Exit;
use sluice_common::wire::AttemptPhase;

use super::harness::*;
use crate::{Answer, Refusal, StepAction};

/// Deletes a step; `Ok` if it is forgotten.
fn delete(harness: &mut Harness, id: &str) -> Result<(), Refusal> {
    let mut effects = harness.action(id, StepAction::Delete);
    let Answer::Steered(done) = effects.answers.remove(0) else {
        panic!("a step action is answered otherwise");
    };
    done.map(|deleted| assert_eq!(deleted, step(id)))
}

#[test]
fn a_step_that_has_ended_is_forgotten_and_its_id_is_not_given_again() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.status("n", "a.1", released(Exit::Code(3)));
    delete(&mut harness, "a").unwrap();
    assert!(harness.core.state().find(&step("a")).is_none());
    let again = delete(&mut harness, "a").unwrap_err();
    assert!(matches!(again, Refusal::UnknownStep { .. }), "{again}");
    // A host that missed the order to forget `a.1` may still report its end.
    for restarts in [false, true] {
        if restarts {
            harness.restart(harness.log.len());
        }
        let taken = harness.submit("a", spec(1, 1000)).unwrap_err();
        assert_eq!(taken, Refusal::IdDeleted { step: step("a") });
    }
}

#[test]
fn a_step_that_lives_or_still_holds_its_host_is_kept() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("runs", spec(1, 1000)).unwrap();
    harness.submit("waits", spec(1, 1000)).unwrap();
    harness.run("runs.1");
    for (id, state) in [("runs", StepState::Running), ("waits", StepState::Queued)] {
        let refusal = Refusal::CannotDelete {
            step: step(id),
            state,
        };
        assert_eq!(delete(&mut harness, id), Err(refusal));
    }
    let ended = AttemptPhase::Ended(end(Exit::Code(0), None));
    harness.status("n", "runs.1", ended);
    assert_eq!(harness.state("runs"), StepState::Succeeded);
    let refusal = delete(&mut harness, "runs").unwrap_err();
    assert!(
        refusal.to_string().contains("not seen free yet"),
        "{refusal}"
    );
    harness.status("n", "runs.1", released(Exit::Code(0)));
    delete(&mut harness, "runs").unwrap();
}

#[test]
fn a_part_is_kept_with_its_array_and_goes_with_it() {
    let mut harness = Harness::one_node(4, 4);
    harness.submit("a", of_array(spec(0, 1000), "0-1")).unwrap();
    harness.status("n", "a.0.1", released(Exit::Code(0)));
    let refusal = delete(&mut harness, "a.0").unwrap_err();
    let kept = Refusal::CannotDeletePart {
        step: step("a.0"),
        array: step("a"),
    };
    assert_eq!(refusal, kept);
    let lives = delete(&mut harness, "a").unwrap_err();
    assert!(matches!(lives, Refusal::CannotDelete { .. }), "{lives}");
    harness.status("n", "a.1.1", released(Exit::Code(1)));
    assert_eq!(harness.state("a"), StepState::Failed);
    delete(&mut harness, "a").unwrap();
    for id in ["a", "a.0", "a.1"] {
        assert!(harness.core.state().find(&step(id)).is_none(), "{id}");
    }
}

#[test]
fn a_step_whose_condition_held_starts_though_what_it_waited_for_is_deleted() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("first", spec(0, 1000)).unwrap();
    harness.submit("second", spec(0, 1000)).unwrap();
    harness
        .submit("last", after(spec(0, 1000), &["first", "second"]))
        .unwrap();
    harness.status("n", "first.1", released(Exit::Code(0)));
    delete(&mut harness, "first").unwrap();
    assert_eq!(harness.code("last"), ReasonCode::WaitingForDependencies);
    harness.status("n", "second.1", released(Exit::Code(0)));
    assert_eq!(harness.state("last"), StepState::Allocated);
}
