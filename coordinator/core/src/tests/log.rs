//! Tests of the log: rejected records, and the state as the fold of all records.

use crate::record;
use alloc::string::ToString;
use alloc::vec;

use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;
use sluice_common::time::{Span, Time};
use sluice_common::wire::StopReason;

use super::harness::*;
use crate::{ApplyError, LogEntry, Record, State};

#[test]
fn a_record_that_does_not_follow_is_refused_by_number_and_name() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.submit("q", spec(1, 1000)).unwrap();
    let (attempt, node) = (attempt("a.1"), node("n"));
    let reason = harness.step("a").reason.clone();
    let ended_step = |id, state| {
        Record::StepEnded(record::StepEnded {
            step: step(id),
            state,
            reason: reason.clone(),
        })
    };
    let misfits = [
        (
            Record::CoordinatorStarted {
                epoch: epoch(1),
                lost_after: Span::ZERO,
            },
            "epoch 1 after 1",
        ),
        (
            Record::NodeReady { node: node.clone() },
            "`n` is ready already",
        ),
        (
            Record::NodeLost {
                node: super::harness::node("x"),
            },
            "no node `x`",
        ),
        (
            Record::StepQueued(record::StepQueued {
                unmet: Default::default(),
                not_before: None,
                excluded_pools: Default::default(),
                route: Default::default(),
                provenance: Default::default(),
                step: step("a"),
                spec: spec(1, 1).into(),
            }),
            "`a` is there already",
        ),
        (
            Record::Allocated(record::Allocated {
                attempt: attempt.clone(),
                pool: sluice_common::id::PoolName::new("default").unwrap(),
                placements: vec![],
                backfill: Default::default(),
                port: None,
            }),
            "attempt a.1 of a step that is allocated",
        ),
        (
            Record::Started(record::Started {
                attempt: attempt.clone(),
                node: node.clone(),
                process: process(),
            }),
            "a.1 on `n` is Allocated already",
        ),
        (
            Record::Released(record::Released {
                attempt: attempt.clone(),
                node: node.clone(),
                kept: None,
            }),
            "a.1 on `n`",
        ),
        (
            Record::Starting {
                attempt,
                node: super::harness::node("m"),
            },
            "a.1 is not on node `m`",
        ),
        (
            Record::Stopping(record::Stopping::because(
                super::harness::attempt("a.2"),
                StopReason::Drained,
            )),
            "no attempt a.2",
        ),
        (
            Record::Requeued {
                step: step("q"),
                reason: reason.clone(),
            },
            "`q` is queued and cannot wait again",
        ),
        (
            ended_step("a", StepState::Failed),
            "`a` is allocated and cannot become failed",
        ),
        (
            ended_step("q", StepState::Running),
            "`q` is queued and cannot become running",
        ),
        (
            Record::NodeUncordoned {
                node: super::harness::node("n"),
            },
            "`n` is not cordoned",
        ),
        (
            Record::NodeLeaving {
                node: super::harness::node("n"),
            },
            "`n` is ready and cannot leave",
        ),
        (
            Record::NodeDrained {
                node: super::harness::node("n"),
            },
            "`n` is not to become empty",
        ),
        (
            Record::NodeDeleted {
                node: super::harness::node("n"),
            },
            "`n` still holds steps",
        ),
        (
            Record::StepForgotten {
                step: step("a"),
                deleted: false,
            },
            "`a` is not over",
        ),
        (
            Record::StepForgotten {
                step: step("z"),
                deleted: false,
            },
            "no step `z`",
        ),
    ];
    for (record, expected) in misfits {
        let mut state = harness.core.state().clone();
        let stamped = LogEntry {
            seq: state.seq() + 1,
            at: Time::default(),
            record,
        };
        let misfit = state.apply(&stamped).unwrap_err();
        assert_eq!(misfit.seq, stamped.seq);
        assert!(misfit.to_string().contains(expected), "{misfit}");
    }
}

#[test]
fn a_gap_in_the_log_is_noticed() {
    let harness = Harness::one_node(1, 4);
    let mut state = State::default();
    state.apply(&harness.log[0]).unwrap();
    let misfit = state.apply(&harness.log[2]).unwrap_err().to_string();
    assert_eq!(
        misfit,
        "record 3 does not follow from those before it: 2 should come next"
    );
    assert!(state.apply(&harness.log[0]).is_err(), "nor twice");
}

#[test]
fn a_restart_loses_nothing_wherever_the_snapshot_was_made() {
    let mut played = Harness::one_node(1, 4);
    played.submit("a", with_retries(spec(1, 1000), 1)).unwrap();
    played.submit("b", spec(1, 1000)).unwrap();
    played.status("n", "a.1", ended(Exit::Code(1)));
    for snapshot_at in 0..=played.log.len() {
        let mut harness = Harness::one_node(1, 4);
        harness.submit("a", with_retries(spec(1, 1000), 1)).unwrap();
        harness.submit("b", spec(1, 1000)).unwrap();
        harness.status("n", "a.1", ended(Exit::Code(1)));
        assert_eq!(harness.log, played.log);
        harness.restart(snapshot_at);
        assert_eq!(harness.node_state("n"), NodeState::Unreachable);
        let left = vec![status("a.1", released(Exit::Code(1)))];
        let effects = harness.hello(holding(hello("n", 1, 4), left));
        assert_eq!(effects.orders, ["forget a.1", "assign a.2"]);
        assert_eq!(harness.state("b"), StepState::Queued);
    }
}

#[test]
fn an_empty_snapshot_and_the_whole_log_are_the_same_as_none() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    let json = serde_json::to_string(harness.core.state()).unwrap();
    let mut back: State = serde_json::from_str(&json).unwrap();
    let env = harness.step("a").spec.env.clone();
    let given = back.give_environments(|_| Ok::<_, ApplyError>(Some(env.clone())));
    assert_eq!(given.unwrap(), None);
    assert_eq!(
        &back,
        harness.core.state(),
        "what is derived is built again"
    );
    assert_eq!(
        back.used_on(&node("n")),
        harness.core.state().used_on(&node("n"))
    );
    let empty = serde_json::to_string(&State::default()).unwrap();
    assert_eq!(
        serde_json::from_str::<State>(&empty).unwrap(),
        State::default()
    );
}
