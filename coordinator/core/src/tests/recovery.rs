//! Tests of a coordinator whose store is older than its hosts.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::id::PoolName;
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, AttemptStatus, Hello, StopReason, ToNode};

use super::harness::*;
use crate::{Answer, Input, NewStep, RecoveryCause, Refusal, ReplyId, Step, Warrant};

const RESTORED: RecoveryCause = RecoveryCause::Restored;

/// Makes a later hello of a host with two GPUs, under the epoch that it had obeyed.
fn back(name: &str, attempts: Vec<AttemptStatus>) -> Hello {
    holding(hello(name, 2, 4), attempts)
}

fn frozen() -> AttemptPhase {
    AttemptPhase::Suspended {
        started: process(),
        moved_mb: 5,
    }
}

/// Runs `a` on a GPU of `n` and restores the store to a time before its submit. Returns its warrant too.
fn before_a() -> (Harness, Warrant) {
    let mut harness = Harness::one_node(2, 4);
    let backup = harness.log.len();
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let warrant = harness.warrant("a.1");
    harness.restore(backup, RESTORED);
    (harness, warrant)
}

fn latest(step: &Step) -> u32 {
    step.latest().map_or(0, |attempt| attempt.number)
}

#[test]
fn what_runs_and_is_not_known_is_adopted_where_it_runs_with_all_that_it_is() {
    let (mut harness, warrant) = before_a();
    let effects = harness.hello(back("n", vec![status("a.1", running())]));
    assert_eq!(effects.orders, ["show a.1"]);
    assert_eq!(harness.node_state("n"), NodeState::Reconciling);
    let effects = harness.show("n", "a.1", Some(&warrant));
    assert_eq!(
        effects.types(),
        ["adopted", "starting", "started", "node_ready"]
    );
    assert!(effects.orders.is_empty(), "{:?}", effects.orders);
    assert_eq!(harness.state("a"), StepState::Running);
    let (before, now) = (&warrant, harness.warrant("a.1"));
    assert_eq!(
        (&before.spec, &before.placements),
        (&now.spec, &now.placements)
    );
    assert_eq!(
        (before.submitted_at, &before.pool),
        (now.submitted_at, &now.pool)
    );
    // The step is charged like any other, ends once, and is forgotten.
    let pool = PoolName::new("default").unwrap();
    assert_eq!(harness.core.state().used_of(&pool).get("mgpu"), 1000);
    let effects = harness.status("n", "a.1", released(Exit::Code(0)));
    assert_eq!(effects.types(), ["ended", "step_ended", "released"]);
    assert_eq!(
        (harness.state("a"), &effects.orders[..]),
        (StepState::Succeeded, &["forget a.1".to_string()][..])
    );
}

#[test]
fn nothing_new_starts_until_what_may_run_unseen_has_stopped() {
    let (mut harness, warrant) = before_a();
    harness.hello(back("n", vec![status("a.1", running())]));
    harness.show("n", "a.1", Some(&warrant));
    harness.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(harness.code("b"), ReasonCode::Recovering);
    assert!(
        harness
            .reason("b")
            .message
            .contains("hosts that it does not remember")
    );
    let effects = beat(&mut harness, 388);
    assert!(!effects.contains(&"allocated".to_string()), "{effects:?}");
    let effects = beat(&mut harness, 4);
    assert_eq!(effects, ["recovery_ended", "allocated"]);
    assert_eq!(harness.state("a"), StepState::Running);
}

/// Lets seconds pass in which the node is heard.
fn beat(harness: &mut Harness, secs: u64) -> Vec<alloc::string::String> {
    let seconds = 0..secs;
    let types = seconds.flat_map(|_| {
        harness.heartbeat("n");
        harness.pass(1).types()
    });
    types.collect()
}

#[test]
fn nodes_that_are_remembered_report_or_are_lost_before_anything_starts() {
    let mut harness = Harness::one_node(2, 4);
    harness.hello(hello("m", 2, 4));
    harness.submit("a", spec(2, 1000)).unwrap();
    let (there, _) = harness.placed("a");
    harness.status(&there, "a.1", running());
    let backup = harness.log.len();
    harness.restore(backup, RESTORED);
    let other = if there == "n" { "m" } else { "n" };
    harness.hello(back(other, vec![]));
    harness.submit("b", spec(1, 1000)).unwrap();
    assert!(
        harness
            .reason("b")
            .message
            .contains(&alloc::format!("`{there}`")),
        "{:?}",
        harness.reason("b")
    );
    let effects = harness.pass(391).types();
    for (one, then) in [("node_lost", "requeued"), ("requeued", "recovery_ended")] {
        let at = |word: &str| effects.iter().position(|kind| kind == word);
        assert!(at(one) < at(then), "{effects:?}");
    }
}

#[test]
fn an_admin_ends_it_early_and_only_where_there_is_one() {
    let (mut harness, _) = before_a();
    harness.hello(back("n", vec![status("a.1", running())]));
    harness.submit("b", spec(2, 1000)).unwrap();
    let end = || Input::EndRecovery { reply: ReplyId(9) };
    let effects = harness.feed(end());
    // An attempt without a warrant by then is a stray, and nothing is granted there until it is gone.
    assert_eq!(effects.types(), ["recovery_ended"]);
    assert_eq!(effects.orders, ["stop a.1 Superseded 30s"]);
    assert_eq!(effects.answers, [Answer::Changed(Ok(()))]);
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.status("n", "a.1", gone(Exit::Signal(15), StopReason::Superseded));
    assert_eq!(harness.state("b"), StepState::Allocated);
    let refused = Answer::Changed(Err(Refusal::NotRecovering));
    assert_eq!(harness.feed(end()).answers, [refused]);
}

#[test]
fn what_the_store_has_running_and_its_host_does_not_know_waits_again_for_free() {
    for phase in [None, Some(running())] {
        let mut harness = Harness::one_node(2, 4);
        harness.submit("a", spec(1, 1000)).unwrap();
        phase
            .into_iter()
            .for_each(|phase| drop(harness.status("n", "a.1", phase)));
        let backup = harness.log.len();
        harness.status("n", "a.1", released(Exit::Code(0)));
        harness.restore(backup, RESTORED);
        let effects = harness.hello(back("n", vec![]));
        assert!(effects.orders.is_empty(), "{:?}", effects.orders);
        assert_eq!(harness.state("a"), StepState::Queued);
        assert!(
            harness
                .reason("a")
                .message
                .contains("no longer knows the attempt")
        );
        assert_eq!(harness.step("a").retries_spent, 0);
        let effects = harness.feed(Input::EndRecovery { reply: ReplyId(1) });
        assert_eq!(effects.orders, ["assign a.2"]);
    }
}

#[test]
fn a_later_attempt_takes_the_place_of_the_one_that_the_store_has() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let backup = harness.log.len();
    harness.action("a", crate::StepAction::Requeue);
    harness.hello(hello("m", 2, 4));
    harness.status("n", "a.1", gone(Exit::Signal(15), StopReason::Requeued));
    let (there, _) = harness.placed("a");
    harness.status(&there, "a.2", running());
    let warrant = harness.warrant("a.2");
    harness.restore(backup, RESTORED);
    assert_eq!(latest(harness.step("a")), 1);
    harness.hello(back(&there, vec![status("a.2", running())]));
    let effects = harness.show(&there, "a.2", Some(&warrant));
    assert!(
        effects.types().contains(&"adopted".to_string()),
        "{effects:?}"
    );
    assert_eq!(
        (latest(harness.step("a")), harness.state("a")),
        (2, StepState::Running)
    );
    // The rest of the earlier attempt is stopped.
    let effects = harness.hello(back(if there == "n" { "m" } else { "n" }, vec![]));
    assert!(
        !effects.types().contains(&"requeued".to_string()),
        "{effects:?}"
    );
    assert_eq!(harness.state("a"), StepState::Running);
}

#[test]
fn gpus_go_to_who_has_them_now_whatever_the_store_says() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.submit("b", spec(1, 1000)).unwrap();
    let backup = harness.log.len();
    harness.status("n", "a.1", released(Exit::Code(0)));
    harness.status("n", "b.1", running());
    let warrant = harness.warrant("b.1");
    harness.restore(backup, RESTORED);
    // The end of the first attempt was not forgotten: it is reported once more, with the second.
    let first = status("a.1", released(Exit::Code(0)));
    let effects = harness.hello(holding(
        hello("n", 1, 4),
        vec![status("b.1", running()), first],
    ));
    assert_eq!(effects.orders, ["forget a.1", "show b.1"]);
    harness.show("n", "b.1", Some(&warrant));
    assert_eq!(harness.state("a"), StepState::Succeeded);
    assert_eq!(harness.state("b"), StepState::Running);
}

#[test]
fn what_was_frozen_or_brought_back_meanwhile_stands_here_as_it_stands_there() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let ran = harness.log.len();
    harness.action("a", crate::StepAction::Suspend);
    harness.status("n", "a.1", frozen());
    let rested = harness.log.len();
    harness.submit("b", spec(1, 1000)).unwrap();
    harness.status("n", "b.1", running());
    let warrant = harness.warrant("b.1");
    let log = harness.log.clone();

    harness.restore(ran, RESTORED);
    let effects = harness.hello(holding(
        hello("n", 1, 4),
        vec![status("a.1", frozen()), status("b.1", running())],
    ));
    assert_eq!(effects.orders, ["show b.1"]);
    assert_eq!(harness.state("a"), StepState::Suspended);
    harness.show("n", "b.1", Some(&warrant));
    assert_eq!(harness.state("b"), StepState::Running);

    harness.log = log;
    harness.restore(rested, RESTORED);
    let effects = harness.hello(holding(hello("n", 1, 4), vec![status("a.1", running())]));
    assert!(
        effects.types().contains(&"resumed".to_string()),
        "{effects:?}"
    );
}

#[test]
fn one_that_is_met_frozen_holds_its_memory_alone() {
    let mut harness = Harness::one_node(1, 4);
    let backup = harness.log.len();
    harness
        .submit("a", with_memory(spec(1, 1000), 100))
        .unwrap();
    harness.run("a.1");
    let warrant = harness.warrant("a.1");
    harness.restore(backup, RESTORED);
    harness.hello(holding(hello("n", 1, 4), vec![status("a.1", frozen())]));
    harness.show("n", "a.1", Some(&warrant));
    assert_eq!(harness.state("a"), StepState::Suspended);
    let used = harness.core.state().used_on(&node("n"));
    assert_eq!((used.get("mgpu"), used.get("memory_mb")), (0, 105));
    // The attempt waits for its GPU like any other, and is resumed.
    let effects = harness.feed(Input::EndRecovery { reply: ReplyId(1) });
    assert_eq!(effects.orders, ["resume a.1"]);
}

#[test]
fn a_host_that_says_it_has_moved_more_than_its_gpus_hold_takes_no_memory_of_its_subject() {
    let moved = |moved_mb| AttemptPhase::Suspended {
        started: process(),
        moved_mb,
    };
    let used = |harness: &Harness| {
        let pool = harness
            .core
            .state()
            .scheduler()
            .pool(&"default".parse().unwrap());
        pool.unwrap().used().get("memory_mb")
    };
    let mut harness = Harness::one_node(2, 4);
    harness
        .submit("b", with_memory(spec(1, 1000), 200))
        .unwrap();
    harness.run("b.1");
    let backup = harness.log.len();
    harness
        .submit("a", with_memory(spec(1, 1000), 100))
        .unwrap();
    harness.run("a.1");
    let ran = harness.log.len();
    let log = harness.log.clone();
    let warrant = harness.warrant("a.1");
    let lie = vec![status("a.1", moved(u64::MAX)), status("b.1", running())];
    for (at, is_known) in [(backup, false), (ran, true)] {
        harness.log = log.clone();
        harness.restore(at, RESTORED);
        harness.hello(back("n", lie.clone()));
        if !is_known {
            harness.show("n", "a.1", Some(&warrant));
        }
        assert_eq!(harness.state("a"), StepState::Suspended);
        assert_eq!(used(&harness), 300 + 80_000, "one GPU has 80 GB");
        harness.status("n", "a.1", gone(Exit::Code(0), StopReason::Cancelled));
        assert_eq!(used(&harness), 200);
    }
}

#[test]
fn a_gang_is_adopted_when_all_its_hosts_are_known() {
    let mut harness = Harness::one_node(2, 4);
    let backup = harness.log.len();
    harness.hello(hello("m", 2, 4));
    let mut spec = spec(2, 1000);
    spec.nodes = 2;
    harness.submit("g", spec).unwrap();
    harness.status("n", "g.1", running());
    harness.status("m", "g.1", running());
    let warrant = harness.warrant("g.1");
    harness.restore(backup, RESTORED);
    harness.hello(back("n", vec![status("g.1", running())]));
    let effects = harness.show("n", "g.1", Some(&warrant));
    assert!(effects.types().is_empty(), "{effects:?}");
    let effects = harness.hello(back("m", vec![status("g.1", running())]));
    assert!(
        effects.types().contains(&"adopted".to_string()),
        "{effects:?}"
    );
    assert_eq!(harness.state("g"), StepState::Running);
    assert_eq!(harness.node_state("n"), NodeState::Ready);
    assert_eq!(harness.node_state("m"), NodeState::Ready);
}

#[test]
fn a_gang_of_which_a_host_has_lost_its_part_ends_as_one() {
    let mut harness = Harness::one_node(2, 4);
    harness.hello(hello("m", 2, 4));
    let backup = harness.log.len();
    let mut spec = spec(2, 1000);
    spec.nodes = 2;
    harness.submit("g", spec).unwrap();
    harness.status("n", "g.1", running());
    let warrant = harness.warrant("g.1");
    harness.restore(backup, RESTORED);
    harness.hello(back("m", vec![]));
    harness.hello(back("n", vec![status("g.1", running())]));
    let effects = harness.show("n", "g.1", Some(&warrant));
    assert!(
        effects
            .orders
            .contains(&"stop g.1 Superseded 7s".to_string()),
        "{effects:?}"
    );
    harness.status("n", "g.1", gone(Exit::Signal(15), StopReason::Superseded));
    assert_eq!(harness.state("g"), StepState::Queued);
}

#[test]
fn what_has_no_warrant_or_one_of_a_time_that_is_known_is_stopped() {
    let mut harness = Harness::one_node(2, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let old = harness.warrant("a.1");
    harness.submit("b", spec(1, 1000)).unwrap();
    let later = harness.warrant("b.1");
    harness.restore(2, RESTORED);
    let strange = |spec: Warrant| Warrant {
        placements: vec![],
        ..spec
    };
    for (id, warrant) in [("x.1", None), ("y.1", Some(strange(later.clone())))] {
        harness.hello(back("n", vec![status(id, running())]));
        let effects = harness.show("n", id, warrant.as_ref());
        assert_eq!(effects.orders, [alloc::format!("stop {id} Superseded 30s")]);
    }
    // The store knew this attempt and has forgotten it since.
    let known = Warrant {
        told_at: crate::LogPoint { epoch: 1, seq: 1 },
        ..old
    };
    harness.hello(back("n", vec![status("a.1", running())]));
    let effects = harness.show("n", "a.1", Some(&known));
    assert_eq!(effects.orders, ["stop a.1 Superseded 30s"]);
}

#[test]
fn a_step_that_was_submitted_again_meanwhile_is_the_one_that_runs() {
    let (mut harness, warrant) = before_a();
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.hello(back("n", vec![status("a.1", running())]));
    harness.show("n", "a.1", Some(&warrant));
    assert_eq!(
        (harness.state("a"), latest(harness.step("a"))),
        (StepState::Running, 1)
    );

    // Another step under the same name counts.
    let (mut harness, warrant) = before_a();
    harness.submit("a", spec(2, 1000)).unwrap();
    harness.hello(back("n", vec![status("a.1", running())]));
    let effects = harness.show("n", "a.1", Some(&warrant));
    assert_eq!(effects.orders, ["stop a.1 Superseded 7s"]);
}

#[test]
fn a_new_store_of_an_old_cluster_learns_pools_and_steps_from_its_hosts() {
    let mut harness = Harness::new();
    harness.put_pool("big");
    let mut host = hello("n", 2, 4);
    host.pool = PoolName::new("big").unwrap();
    harness.hello(host.clone());
    harness.submit("a", in_pool(spec(1, 1000), "big")).unwrap();
    harness.run("a.1");
    let warrant = harness.warrant("a.1");
    harness.restore(0, RecoveryCause::StoreLost);
    let mut again = holding(host, vec![status("a.1", running())]);
    again.highest_epoch = Some(epoch(7).into());
    let effects = harness.hello(again);
    assert_eq!(effects.welcome().epoch.epoch, epoch(8));
    harness.show("n", "a.1", Some(&warrant));
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(harness.step("a").live().unwrap().pool.as_str(), "big");
}

#[test]
fn a_host_of_a_later_epoch_begins_one() {
    let mut harness = Harness::one_node(2, 4);
    let backup = harness.log.len();
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let warrant = harness.warrant("a.1");
    // The directory was restored by hand, without a report of it.
    let log = harness.log[..backup].to_vec();
    harness.log = log;
    harness.restart_over_log();
    assert!(harness.core.state().recovery().is_none());
    let mut later = back("n", vec![status("a.1", running())]);
    later.highest_epoch = Some(epoch(5).into());
    let effects = harness.hello(later);
    assert_eq!(
        effects.types()[..2],
        ["coordinator_started", "recovery_began"]
    );
    assert_eq!(effects.orders, ["show a.1"]);
    harness.show("n", "a.1", Some(&warrant));
    assert_eq!(harness.state("a"), StepState::Running);
}

#[test]
fn a_recovery_outlives_a_restart() {
    let (mut harness, warrant) = before_a();
    harness.restart(harness.log.len());
    harness.hello(back("n", vec![status("a.1", running())]));
    harness.show("n", "a.1", Some(&warrant));
    assert_eq!(harness.state("a"), StepState::Running);
    let effects = beat(&mut harness, 400);
    assert!(
        effects.contains(&"recovery_ended".to_string()),
        "{effects:?}"
    );
}

#[test]
fn what_is_adopted_on_a_drained_node_leaves_it() {
    let mut harness = Harness::one_node(2, 4);
    harness.change(
        "n",
        crate::NodeChange::Drain {
            reason: None,
            deadline: None,
        },
    );
    let backup = harness.log.len();
    harness.change("n", crate::NodeChange::Uncordon);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let warrant = harness.warrant("a.1");
    harness.restore(backup, RESTORED);
    harness.hello(back("n", vec![status("a.1", running())]));
    let effects = harness.show("n", "a.1", Some(&warrant));
    assert_eq!(effects.orders, ["stop a.1 Drained 7s"]);
    let effects = harness.status("n", "a.1", gone(Exit::Signal(15), StopReason::Drained));
    assert!(
        effects.types().contains(&"node_drained".to_string()),
        "{effects:?}"
    );
}

#[test]
fn what_has_ended_is_not_frozen_whatever_its_host_says() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.status("n", "a.1", ended(Exit::Code(0)));
    let backup = harness.log.len();
    harness.restore(backup, RESTORED);
    let effects = harness.hello(holding(hello("n", 1, 4), vec![status("a.1", frozen())]));
    assert!(
        !effects.types().contains(&"suspended".to_string()),
        "{effects:?}"
    );
    assert_eq!(harness.state("a"), StepState::Succeeded);
}

/// Runs part 1 of an array and restores the store to a time before its submit; then the part is adopted.
fn before_array(spec: StepSpec) -> Harness {
    let mut harness = Harness::one_node(2, 4);
    let (backup, before) = (harness.log.len(), harness.now);
    harness.submit("a", spec).unwrap();
    harness.pass(10);
    harness.run("a.1.1");
    let warrant = harness.warrant("a.1.1");
    // The clock of the other machine is behind.
    harness.now = before;
    harness.restore(backup, RESTORED);
    harness.hello(back("n", vec![status("a.1.1", running())]));
    harness.show("n", "a.1.1", Some(&warrant));
    assert_eq!(harness.state("a.1"), StepState::Running);
    harness
}

fn pair(indexes: &str) -> StepSpec {
    StepSpec {
        array: Some(indexes.parse().unwrap()),
        ..spec(1, 1000)
    }
}

/// The numbers of parts that run, have ended, and there are.
fn counted(harness: &Harness) -> (u64, u64, u64) {
    let counts = harness.core.state().part_counts(harness.step("a")).unwrap();
    (counts.running, counts.ended(), counts.total)
}

#[test]
fn an_adopted_part_is_a_part_again_once_its_array_is_submitted_again() {
    let mut harness = before_array(pair("0-3"));
    let again = harness.submit("a", pair("0-3")).unwrap();
    assert!(again.created);
    assert!(!harness.submit("a", pair("0-3")).unwrap().created);
    assert_eq!(counted(&harness), (1, 0, 4));
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(harness.step("a.1").place, harness.step("a").place);
    harness.feed(Input::EndRecovery { reply: ReplyId(1) });
    // The other GPU goes to another part: there is one copy of each.
    assert_eq!(counted(&harness), (2, 0, 4));
    let held: Vec<_> = (harness.core.state().attempts_on(&node("n")))
        .map(ToString::to_string)
        .collect();
    assert_eq!(held, ["a.0.1", "a.1.1"]);
    harness.status("n", "a.1.1", released(Exit::Code(0)));
    assert_eq!(counted(&harness), (2, 1, 4));
    harness.restart(harness.log.len());
    assert_eq!(counted(&harness), (2, 1, 4));
}

#[test]
fn a_cancel_of_the_array_reaches_a_part_that_was_adopted_before() {
    let mut harness = before_array(pair("0-3"));
    harness.submit("a", pair("0-3")).unwrap();
    let effects = harness.cancel("a");
    assert_eq!(effects.orders, ["stop a.1.1 Cancelled 7s"]);
    harness.status("n", "a.1.1", gone(Exit::Signal(15), StopReason::Cancelled));
    assert_eq!(harness.state("a"), StepState::Cancelled);
    assert_eq!(counted(&harness), (0, 4, 4));
}

#[test]
fn a_part_that_ended_before_its_array_was_submitted_again_counts_once() {
    let mut harness = before_array(pair("0-1"));
    harness.status("n", "a.1.1", released(Exit::Code(3)));
    harness.submit("a", pair("0-1")).unwrap();
    assert_eq!(counted(&harness), (0, 1, 2));
    let other = harness.submit("a.1", spec(1, 1000)).unwrap_err();
    assert!(matches!(other, Refusal::IdInUse { .. }), "{other:?}");
    harness.feed(Input::EndRecovery { reply: ReplyId(1) });
    harness.status("n", "a.0.1", released(Exit::Code(0)));
    assert_eq!(harness.state("a"), StepState::Failed);
    assert_eq!(harness.reason("a").message, "2 of 2 ended, 1 failed");
}

#[test]
fn another_array_or_step_under_the_id_of_an_adopted_part_is_refused() {
    let mut harness = before_array(pair("0-3"));
    let others = [
        (pair("5-9"), "array"),
        (with_retries(pair("0-3"), 7), "retries"),
        (spec(1, 1000), "array"),
    ];
    for (other, field) in others {
        let expected = Refusal::IdInUse {
            step: step("a.1"),
            differs: field.into(),
        };
        assert_eq!(harness.submit("a", other), Err(expected));
    }
    assert_eq!(harness.state("a.1"), StepState::Running);
    harness.submit("a", pair("0-3")).unwrap();
}

#[test]
fn an_adopted_part_without_its_array_is_a_step_like_others() {
    let mut harness = before_array(pair("0-3"));
    harness.action("a.1", crate::StepAction::Requeue);
    harness.status("n", "a.1.1", gone(Exit::Signal(15), StopReason::Requeued));
    assert_eq!(harness.state("a.1"), StepState::Queued);
    harness.apply(vec![wanted_pool("other", &[])]);
    harness.put_policy("other", "s", Default::default());
    harness.hello(in_other(hello("m", 2, 4)));
    assert_eq!(harness.move_step("a.1", "other"), Ok(true));
    let effects = harness.feed(Input::EndRecovery { reply: ReplyId(1) });
    assert_eq!(effects.orders, ["assign a.1.2"]);
    let ToNode::Assign(assigned) = &effects.sent[0] else {
        panic!("{effects:?}");
    };
    assert_eq!(assigned.env.get("SLUICE_ARRAY_INDEX").unwrap(), "1");
    harness.submit("a", pair("0-3")).unwrap();
    assert_eq!(counted(&harness), (4, 0, 4));
}

#[test]
fn a_part_that_was_moved_before_its_array_was_known_follows_it() {
    let mut harness = before_array(pair("0-3"));
    harness.action("a.1", crate::StepAction::Requeue);
    harness.status("n", "a.1.1", gone(Exit::Signal(15), StopReason::Requeued));
    harness.put_pool("other");
    harness.move_step("a.1", "other").unwrap();
    let array = StepSpec {
        pool: None,
        ..pair("0-3")
    };
    harness.submit("a", array).unwrap();
    assert_eq!(harness.move_step("a.1", "default"), Ok(true));
    harness.feed(Input::EndRecovery { reply: ReplyId(1) });
    assert_eq!(harness.state("a.1"), StepState::Allocated);
}

fn in_other(mut words: Hello) -> Hello {
    words.pool = PoolName::new("other").unwrap();
    words
}

#[test]
fn the_other_parts_of_an_array_that_can_never_be_granted_any_more_are_rejected() {
    let mut harness = before_array(pair("0-3"));
    harness.apply(vec![wanted_pool("default", &[("gpu", 0)])]);
    harness.submit("a", pair("0-3")).unwrap();
    assert_eq!(counted(&harness), (1, 3, 4));
    harness.status("n", "a.1.1", released(Exit::Code(0)));
    assert_eq!(harness.state("a"), StepState::Failed);
    assert_eq!(harness.reason("a").message, "4 of 4 ended, 3 failed");
}

#[test]
fn an_array_that_waits_again_has_its_adopted_part_meanwhile() {
    let begin = Harness::new().now + Span::from_secs(9);
    let waiting = || StepSpec {
        begin: Some(begin),
        ..pair("0-3")
    };
    let mut harness = before_array(waiting());
    harness.submit("prep", spec(0, 1000)).unwrap();
    harness.submit("a", after(waiting(), &["prep"])).unwrap();
    assert_eq!(counted(&harness), (1, 0, 4));
    assert_eq!(harness.code("a"), ReasonCode::WaitingForDependencies);
    harness.feed(Input::EndRecovery { reply: ReplyId(1) });
    harness.status("n", "prep.1", released(Exit::Code(0)));
    assert_eq!(counted(&harness), (1, 0, 4));
    assert_eq!(harness.code("a"), ReasonCode::WaitingForBegin);
    beat(&mut harness, 9);
    assert_eq!(counted(&harness), (2, 0, 4));
}

#[test]
fn a_dry_run_of_an_array_leaves_its_adopted_parts_as_they_are() {
    let mut harness = before_array(pair("0-3"));
    let before = harness.core.state().clone();
    harness.feed(Input::Preview {
        reply: ReplyId(1),
        step: NewStep::new(step("a"), pair("0-3")).into(),
    });
    assert_eq!(harness.core.state(), &before);
}

#[test]
fn a_part_of_a_later_array_under_the_same_id_takes_the_place_of_the_earlier_one() {
    let later = |before: &str| {
        let mut harness = Harness::with(crate::Settings {
            bounds: crate::Bounds {
                keep_finished: 1,
                ..SETTINGS.bounds
            },
            ..SETTINGS
        });
        harness.hello(hello("n", 2, 4));
        harness.submit("a", pair(before)).unwrap();
        harness.status("n", "a.1.1", released(Exit::Code(0)));
        let backup = harness.log.len();
        (harness, backup)
    };
    for (before, open) in [("1", false), ("1-3", true)] {
        let (mut harness, backup) = later(before);
        for left in ["a.2.1", "a.3.1", "x.1", "y.1"] {
            if left.ends_with("x.1") || left.ends_with("y.1") {
                harness.submit(&left[..1], spec(1, 1000)).unwrap();
            }
            harness.status("n", left, released(Exit::Code(0)));
        }
        harness.pass(5);
        harness.submit("a", pair("0-3")).unwrap();
        harness.run("a.1.1");
        let warrant = harness.warrant("a.1.1");
        harness.restore(backup, RESTORED);
        harness.hello(back("n", vec![status("a.1.1", running())]));
        let effects = harness.show("n", "a.1.1", Some(&warrant));
        let orders: &[&str] = match open {
            true => &["stop a.1.1 Superseded 7s"],
            false => &[],
        };
        assert_eq!(effects.orders, orders);
        if !open {
            assert!(harness.core.state().step(&step("a")).is_none());
            harness.submit("a", pair("0-3")).unwrap();
            assert_eq!(counted(&harness), (1, 0, 4));
        }
    }
}
