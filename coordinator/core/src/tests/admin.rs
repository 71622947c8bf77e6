//! Nodes that admins close, empty, open, label and forget.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::amount::{GPU, ResourceKey};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{FromNode, StopReason};

use super::rig::*;
use crate::{Answer, Input, Node, NodeChange, Refusal, TimerKey};

const REBOOT: &str = "a new kernel";

fn cordon() -> NodeChange {
    NodeChange::Cordon {
        reason: Some(REBOOT.to_string()),
    }
}

fn drain(deadline: Option<u64>) -> NodeChange {
    NodeChange::Drain {
        reason: None,
        deadline: deadline.map(Span::from_secs),
    }
}

fn label(changes: &[(&str, Option<&str>)]) -> NodeChange {
    let changes = changes.iter().map(|(key, value)| {
        let value = value.map(|value| LabelValue::new(value).unwrap());
        (LabelKey::new(*key).unwrap(), value)
    });
    NodeChange::Label(changes.collect())
}

fn kept(rig: &Rig, name: &str) -> Node {
    rig.core.state().node(&node(name)).unwrap().clone()
}

fn refused(fed: &Fed) -> Refusal {
    match &fed.answers[..] {
        [Answer::Changed(Err(refusal))] => refusal.clone(),
        other => panic!("{other:?}"),
    }
}

fn done(fed: &Fed) {
    assert_eq!(fed.answers, [Answer::Changed(Ok(()))], "{fed:?}");
}

/// A cluster with the nodes `m` and `n`, where `s` has 2 GPUs of its own.
fn two_nodes() -> Rig {
    let mut rig = Rig::one_node(2, 8);
    rig.hello(hello("m", 2, 8));
    let reserved = [(ResourceKey::new(GPU).unwrap(), 2)].into();
    let policy = PolicySpec {
        reserved,
        ..PolicySpec::default()
    };
    rig.put_policy("default", "s", policy);
    rig
}

fn firm(mut spec: StepSpec) -> StepSpec {
    spec.preemptible = false;
    spec
}

/// Lets time pass in which both nodes are heard; the orders that came of it.
fn pass_heard(rig: &mut Rig, secs: u64) -> Vec<String> {
    let mut orders = Vec::new();
    for _ in 0..secs {
        orders.extend(rig.pass(1).orders);
        rig.heartbeat("m");
        rig.heartbeat("n");
    }
    orders
}

/// One step that gives way and one that does not, both running on `n`.
fn busy() -> Rig {
    let mut rig = two_nodes();
    done(&rig.change("m", cordon()));
    rig.submit("soft", spec(1, 1000)).unwrap();
    rig.submit("firm", firm(spec(1, 1000))).unwrap();
    for attempt in ["soft.1", "firm.1"] {
        rig.status("n", attempt, running());
    }
    done(&rig.change("m", NodeChange::Uncordon));
    rig
}

#[test]
fn a_cordoned_node_gets_nothing_and_keeps_what_it_has() {
    let mut rig = Rig::one_node(2, 8);
    rig.submit("a", spec(1, 1000)).unwrap();
    let fed = rig.change("n", cordon());
    assert_eq!(
        (fed.types(), fed.orders.len()),
        (vec!["node_cordoned".to_string()], 0)
    );
    rig.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(
        (rig.state("a"), rig.state("b")),
        (StepState::Allocated, StepState::Queued)
    );
    let reason = rig.reason("b");
    assert_eq!(reason.code, ReasonCode::NoLiveHost);
    assert!(
        reason.message.ends_with("`n` is cordoned (a new kernel)"),
        "{reason:?}"
    );
    let fed = rig.change("n", NodeChange::Uncordon);
    assert_eq!(fed.orders, ["assign b.1"]);
}

#[test]
fn a_cordon_outlives_a_restart_and_what_its_agent_says() {
    let mut rig = Rig::one_node(2, 8);
    rig.change("n", cordon());
    let since = kept(&rig, "n").cordon.unwrap().since;
    for snapshot_at in [0, rig.log.len()] {
        rig.restart(snapshot_at);
        rig.hello(hello("n", 1, 4));
        let cordon = kept(&rig, "n").cordon.unwrap();
        assert_eq!((cordon.since, cordon.reason.as_str()), (since, REBOOT));
        assert_eq!(rig.node_state("n"), NodeState::Ready);
        assert!(!rig.core.state().takes_work(&kept(&rig, "n")));
    }
}

#[test]
fn the_same_again_is_answered_and_not_recorded() {
    let mut rig = Rig::one_node(2, 8);
    let changes = [
        (NodeChange::Uncordon, 0),
        (cordon(), 1),
        (cordon(), 0),
        (NodeChange::Cordon { reason: None }, 0),
        (drain(None), 2),
        (drain(None), 0),
        (cordon(), 0),
        (drain(Some(60)), 1),
        (drain(Some(60)), 0),
        (drain(None), 0),
        (label(&[("zone", Some("a")), ("rack", None)]), 1),
        (label(&[("zone", Some("a")), ("rack", None)]), 0),
        (label(&[]), 0),
        (NodeChange::Uncordon, 1),
        (NodeChange::Uncordon, 0),
    ];
    for (change, records) in changes {
        let fed = rig.change("n", change.clone());
        done(&fed);
        assert_eq!(fed.records.len(), records, "{change:?}: {fed:?}");
    }
}

#[test]
fn a_cordon_of_a_drained_node_changes_no_more_than_the_reason() {
    let mut rig = Rig::one_node(2, 8);
    rig.change("n", drain(Some(60)));
    let before = kept(&rig, "n").cordon.unwrap();
    rig.now = rig.now + Span::from_secs(5);
    rig.change("n", cordon());
    let after = kept(&rig, "n").cordon.unwrap();
    assert_eq!((after.since, after.drain), (before.since, before.drain));
    assert_eq!(
        (before.reason.as_str(), after.reason.as_str()),
        ("", REBOOT)
    );
}

#[test]
fn a_drain_sends_what_can_give_way_elsewhere_and_lets_the_rest_end() {
    let mut rig = busy();
    let fed = rig.change("n", drain(None));
    done(&fed);
    assert_eq!(fed.types(), ["node_draining", "stopping"]);
    assert_eq!(fed.orders, ["stop soft.1 Drained 7s"]);
    assert_eq!(
        (rig.state("soft"), rig.code("soft")),
        (StepState::Stopping, ReasonCode::Drained)
    );
    assert_eq!(rig.state("firm"), StepState::Running);
    let fed = rig.status("n", "soft.1", gone(Exit::Signal(15), StopReason::Drained));
    assert_eq!(fed.orders, ["forget soft.1", "assign soft.2"]);
    assert_eq!(rig.placed("soft").0, "m");
    assert!(pass_heard(&mut rig, 1000).is_empty());
    let fed = rig.status("n", "firm.1", released(Exit::Code(0)));
    assert_eq!(fed.orders, ["forget firm.1"]);
    assert_eq!(rig.state("firm"), StepState::Succeeded);
    assert_eq!(rig.core.state().attempts_on(&node("n")).count(), 0);
}

#[test]
fn what_would_rather_fail_than_wait_is_over_when_it_is_drained() {
    let mut rig = two_nodes();
    let mut spec = spec(2, 1000);
    spec.on_preempt = OnPreempt::Fail;
    rig.submit("a", spec).unwrap();
    let on = rig.placed("a").0;
    rig.change(&on, drain(None));
    rig.status(&on, "a.1", gone(Exit::Signal(15), StopReason::Drained));
    assert_eq!(
        (rig.state("a"), rig.code("a")),
        (StepState::Preempted, ReasonCode::Drained)
    );
}

#[test]
fn at_the_deadline_the_rest_is_stopped_too() {
    let mut rig = busy();
    rig.change("n", drain(Some(60)));
    assert!(pass_heard(&mut rig, 59).is_empty());
    // It was put off, and the first timer may still fire.
    rig.change("n", drain(Some(30)));
    let key = TimerKey::DrainDeadline(node("n"));
    assert!(rig.feed(Input::Timer(key.clone())).orders.is_empty());
    assert!(pass_heard(&mut rig, 29).is_empty());
    assert_eq!(pass_heard(&mut rig, 1), ["stop firm.1 Drained 7s"]);
    assert!(rig.feed(Input::Timer(key)).records.is_empty());
    let noted = |fed: &Fed| fed.types().contains(&"node_drained".to_string());
    let fed = rig.status("n", "soft.1", gone(Exit::Signal(15), StopReason::Drained));
    assert!(!noted(&fed), "{fed:?}");
    let fed = rig.status("n", "firm.1", gone(Exit::Signal(15), StopReason::Drained));
    assert!(noted(&fed), "{fed:?}");
    assert_eq!(rig.placed("firm").0, "m");
}

#[test]
fn a_deadline_that_passed_while_nobody_was_there_is_kept_afterwards() {
    let mut rig = busy();
    rig.change("n", drain(Some(1)));
    rig.now = rig.now + Span::from_secs(100);
    let fed = rig.restart(rig.log.len());
    assert!(
        fed.timers
            .iter()
            .any(|(key, _)| *key == TimerKey::DrainDeadline(node("n")))
    );
    assert_eq!(rig.pass(0).types(), ["stopping"]);
    let held = vec![status("soft.1", running()), status("firm.1", running())];
    let fed = rig.hello(holding(hello("n", 2, 8), held));
    assert_eq!(
        fed.orders,
        ["stop soft.1 Drained 7s", "stop firm.1 Drained 7s"]
    );
}

#[test]
fn a_clock_that_is_ahead_at_a_start_takes_nothing_off_a_deadline() {
    let mut rig = busy();
    rig.change("n", drain(Some(100)));
    rig.restart_ahead(Span::from_secs(3600));
    // The restart took a second.
    assert!(pass_heard(&mut rig, 98).is_empty());
    rig.pass(1);
    let stopped = rig.state("firm");
    assert_eq!(stopped, StepState::Stopping);
}

#[test]
fn an_uncordon_ends_a_drain() {
    let mut rig = busy();
    rig.change("n", drain(Some(60)));
    rig.change("n", NodeChange::Uncordon);
    assert!(
        rig.pass(60).orders.is_empty(),
        "its deadline is gone with it"
    );
    rig.change("m", cordon());
    let fed = rig.status("n", "soft.1", gone(Exit::Signal(15), StopReason::Drained));
    assert_eq!(fed.orders, ["forget soft.1", "assign soft.2"]);
    assert_eq!(rig.placed("soft").0, "n");
}

#[test]
fn what_is_on_its_way_out_already_is_not_told_twice() {
    let mut rig = busy();
    rig.cancel("soft");
    let fed = rig.change("n", drain(Some(0)));
    assert!(fed.orders.is_empty(), "{fed:?}");
    assert_eq!(rig.pass(0).orders, ["stop firm.1 Drained 7s"]);
    rig.status("n", "soft.1", gone(Exit::Signal(15), StopReason::Cancelled));
    assert_eq!(rig.state("soft"), StepState::Cancelled);
}

#[test]
fn a_promise_on_a_node_that_is_closed_is_made_elsewhere() {
    let mut rig = two_nodes();
    for id in ["a", "b"] {
        rig.submit(id, spec(2, 1000)).unwrap();
    }
    rig.submit("wide", spec(2, 1000)).unwrap();
    rig.submit("behind", spec(0, 1000)).unwrap();
    let (on, other) = match rig.placed("a").0.as_str() {
        "n" => ("n", "m"),
        _ => ("m", "n"),
    };
    rig.change(on, cordon());
    rig.status(on, "a.1", released(Exit::Code(0)));
    assert_eq!(rig.state("wide"), StepState::Queued);
    rig.status(other, "b.1", released(Exit::Code(0)));
    assert_eq!(rig.placed("wide").0, other);
}

#[test]
fn labels_of_an_admin_win_over_those_of_the_config() {
    let mut rig = Rig::new();
    let mut words = hello("n", 1, 4);
    words.labels = [("zone", "a"), ("rack", "7")]
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .into();
    rig.hello(words.clone());
    let labels = |rig: &Rig| {
        let labels = kept(rig, "n").labels_in_force().into_iter();
        labels
            .map(|(key, value)| key + "=" + &value)
            .collect::<Vec<_>>()
    };
    rig.change(
        "n",
        label(&[("zone", Some("b")), ("team", Some("x")), ("rack", None)]),
    );
    assert_eq!(labels(&rig), ["team=x", "zone=b"]);
    rig.restart(1);
    rig.hello(words);
    assert_eq!(labels(&rig), ["team=x", "zone=b"]);
    let overridden = kept(&rig, "n").labels_overridden();
    let both = [("rack", "7"), ("zone", "a")].map(|(k, v)| (k.to_string(), v.to_string()));
    assert_eq!(overridden, both.into());
    rig.change(
        "n",
        label(&[("zone", None), ("team", None), ("rack", Some("8"))]),
    );
    assert_eq!(labels(&rig), ["rack=8"]);
}

#[test]
fn labels_that_a_config_has_anew_count_as_those_of_a_hello() {
    let mut rig = Rig::one_node(1, 8);
    let said = |zone: &str| FromNode::Labels([("zone".into(), zone.into())].into());
    let zone = |rig: &Rig| kept(rig, "n").labels_in_force().get("zone").cloned();
    assert_eq!(rig.say("n", said("a")).types(), ["node_reported"]);
    assert_eq!(zone(&rig).as_deref(), Some("a"));
    assert_eq!(rig.say("n", said("a")).types(), [""; 0], "nothing new");
    rig.change("n", label(&[("zone", Some("b"))]));
    assert_eq!(rig.say("n", said("c")).types(), ["node_reported"]);
    assert_eq!(
        zone(&rig).as_deref(),
        Some("b"),
        "an admin's goes before it"
    );
}

#[test]
fn labels_are_bounded() {
    let mut rig = Rig::one_node(1, 4);
    let many: Vec<_> = (0..65).map(|n| alloc::format!("k{n}")).collect();
    let some = |range: core::ops::Range<usize>| {
        let set: Vec<_> = many[range]
            .iter()
            .map(|key| (key.as_str(), Some("v")))
            .collect();
        label(&set)
    };
    done(&rig.change("n", some(0..64)));
    let error = refused(&rig.change("n", some(1..65))).to_string();
    assert!(
        error.contains("65 labels") && error.contains("64 are the most"),
        "{error}"
    );
    done(&rig.change("n", label(&[("k3", None)])));
    done(&rig.change("n", some(64..65)));
}

#[test]
fn a_node_is_deleted_when_it_is_away_and_empty() {
    let mut rig = two_nodes();
    assert!(matches!(
        refused(&rig.change("x", cordon())),
        Refusal::UnknownNode { .. }
    ));
    let delete = |force| NodeChange::Delete { force };
    let linked = refused(&rig.change("n", delete(false)));
    assert!(linked.to_string().contains("stop its agent"), "{linked}");
    rig.gone("n");
    let fed = rig.change("n", delete(false));
    done(&fed);
    assert_eq!(fed.types(), ["node_revoked", "node_deleted"]);
    assert_eq!(rig.core.state().nodes().len(), 1);
    let pool = sluice_common::id::PoolName::new("default").unwrap();
    assert_eq!(rig.core.state().capacity_of(&pool).get(GPU), 2);
    rig.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(rig.placed("a").0, "m");
    rig.pass(1000);
    assert!(matches!(
        refused(&rig.change("n", delete(false))),
        Refusal::UnknownNode { .. }
    ));
    // It may join again, as a new one.
    rig.hello(hello("n", 1, 4));
    assert_eq!(rig.node_state("n"), NodeState::Ready);
}

#[test]
fn a_silent_node_that_may_run_something_is_forgotten_when_it_is_lost_and_not_before() {
    let mut rig = busy();
    rig.gone("n");
    let error = refused(&rig.change("n", NodeChange::Delete { force: false })).to_string();
    assert!(
        error.contains("`firm`, `soft`") && error.contains("--force"),
        "{error}"
    );
    let force = || NodeChange::Delete { force: true };
    let fed = rig.change("n", force());
    done(&fed);
    assert_eq!(fed.types(), ["node_revoked", "node_leaving"]);
    assert!(rig.change("n", force()).records.is_empty());
    rig.heartbeat("m");
    rig.pass(SETTINGS.lost_after.millis() / 1000 - 1);
    assert_eq!(
        (rig.state("soft"), rig.state("firm")),
        (StepState::Running, StepState::Running)
    );
    rig.heartbeat("m");
    let types = rig.pass(1).types();
    assert!(types.contains(&"node_deleted".to_string()), "{types:?}");
    assert_eq!(
        (rig.placed("soft").0, rig.placed("firm").0),
        ("m".into(), "m".into())
    );
    assert_eq!(rig.core.state().nodes().len(), 1);
}

#[test]
fn a_node_that_comes_back_in_time_is_kept() {
    let mut rig = busy();
    rig.gone("n");
    rig.change("n", NodeChange::Delete { force: true });
    let held = vec![status("soft.1", running()), status("firm.1", running())];
    rig.hello(holding(hello("n", 2, 8), held));
    assert!(!kept(&rig, "n").leaving);
    rig.gone("n");
    rig.pass(1000);
    assert_eq!(rig.node_state("n"), NodeState::Lost);
}
