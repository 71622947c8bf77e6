//! Tests of nodes that admins cordon, drain, uncordon, label and delete.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::amount::MGPU;
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{FromNode, StopReason};

use super::harness::*;
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

fn stored_node(harness: &Harness, name: &str) -> Node {
    harness.core.state().node(&node(name)).unwrap().clone()
}

fn refused(effects: &InputEffects) -> Refusal {
    match &effects.answers[..] {
        [Answer::Changed(Err(refusal))] => refusal.clone(),
        other => panic!("{other:?}"),
    }
}

fn done(effects: &InputEffects) {
    assert_eq!(effects.answers, [Answer::Changed(Ok(()))], "{effects:?}");
}

/// Makes a cluster with the nodes `m` and `n`, in which `s` has 2 GPUs reserved.
fn two_nodes() -> Harness {
    let mut harness = Harness::one_node(2, 8);
    harness.hello(hello("m", 2, 8));
    let reserved = [amount("gpu", 2)].into();
    let policy = PolicySpec {
        reserved,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "s", policy);
    harness
}

fn firm(mut spec: StepSpec) -> StepSpec {
    spec.preemptible = false;
    spec
}

/// Lets time pass in which both nodes are heard, and returns the orders.
fn pass_heard(harness: &mut Harness, secs: u64) -> Vec<String> {
    let mut orders = Vec::new();
    for _ in 0..secs {
        orders.extend(harness.pass(1).orders);
        harness.heartbeat("m");
        harness.heartbeat("n");
    }
    orders
}

/// Runs one preemptible step and one that is not on `n`.
fn busy() -> Harness {
    let mut harness = two_nodes();
    done(&harness.change("m", cordon()));
    harness.submit("soft", spec(1, 1000)).unwrap();
    harness.submit("firm", firm(spec(1, 1000))).unwrap();
    for attempt in ["soft.1", "firm.1"] {
        harness.status("n", attempt, running());
    }
    done(&harness.change("m", NodeChange::Uncordon));
    harness
}

#[test]
fn a_cordoned_node_gets_nothing_and_keeps_what_it_has() {
    let mut harness = Harness::one_node(2, 8);
    harness.submit("a", spec(1, 1000)).unwrap();
    let effects = harness.change("n", cordon());
    assert_eq!(
        (effects.types(), effects.orders.len()),
        (vec!["node_cordoned".to_string()], 0)
    );
    harness.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(
        (harness.state("a"), harness.state("b")),
        (StepState::Allocated, StepState::Queued)
    );
    let reason = harness.reason("b");
    assert_eq!(reason.code, ReasonCode::NoLiveHost);
    assert!(
        reason.message.ends_with("`n` is cordoned (a new kernel)"),
        "{reason:?}"
    );
    let effects = harness.change("n", NodeChange::Uncordon);
    assert_eq!(effects.orders, ["assign b.1"]);
}

#[test]
fn a_cordon_outlives_a_restart_and_what_its_agent_says() {
    let mut harness = Harness::one_node(2, 8);
    harness.change("n", cordon());
    let since = stored_node(&harness, "n").cordon.unwrap().since;
    for snapshot_at in [0, harness.log.len()] {
        harness.restart(snapshot_at);
        harness.hello(hello("n", 1, 4));
        let cordon = stored_node(&harness, "n").cordon.unwrap();
        assert_eq!((cordon.since, cordon.reason.as_str()), (since, REBOOT));
        assert_eq!(harness.node_state("n"), NodeState::Ready);
        assert!(!harness.core.state().takes_work(&stored_node(&harness, "n")));
    }
}

#[test]
fn the_same_again_is_answered_and_not_recorded() {
    let mut harness = Harness::one_node(2, 8);
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
        let effects = harness.change("n", change.clone());
        done(&effects);
        assert_eq!(effects.records.len(), records, "{change:?}: {effects:?}");
    }
}

#[test]
fn a_cordon_of_a_drained_node_changes_no_more_than_the_reason() {
    let mut harness = Harness::one_node(2, 8);
    harness.change("n", drain(Some(60)));
    let before = stored_node(&harness, "n").cordon.unwrap();
    harness.now = harness.now + Span::from_secs(5);
    harness.change("n", cordon());
    let after = stored_node(&harness, "n").cordon.unwrap();
    assert_eq!((after.since, after.drain), (before.since, before.drain));
    assert_eq!(
        (before.reason.as_str(), after.reason.as_str()),
        ("", REBOOT)
    );
}

#[test]
fn a_drain_sends_what_can_give_way_elsewhere_and_lets_the_rest_end() {
    let mut harness = busy();
    let effects = harness.change("n", drain(None));
    done(&effects);
    assert_eq!(effects.types(), ["node_draining", "stopping"]);
    assert_eq!(effects.orders, ["stop soft.1 Drained 7s"]);
    assert_eq!(
        (harness.state("soft"), harness.code("soft")),
        (StepState::Stopping, ReasonCode::Drained)
    );
    assert_eq!(harness.state("firm"), StepState::Running);
    let effects = harness.status("n", "soft.1", gone(Exit::Signal(15), StopReason::Drained));
    assert_eq!(effects.orders, ["forget soft.1", "assign soft.2"]);
    assert_eq!(harness.placed("soft").0, "m");
    assert!(pass_heard(&mut harness, 1000).is_empty());
    let effects = harness.status("n", "firm.1", released(Exit::Code(0)));
    assert_eq!(effects.orders, ["forget firm.1"]);
    assert_eq!(harness.state("firm"), StepState::Succeeded);
    assert_eq!(harness.core.state().attempts_on(&node("n")).count(), 0);
}

#[test]
fn what_would_rather_fail_than_wait_is_over_when_it_is_drained() {
    let mut harness = two_nodes();
    let mut spec = spec(2, 1000);
    spec.on_preempt = OnPreempt::Fail;
    harness.submit("a", spec).unwrap();
    let on = harness.placed("a").0;
    harness.change(&on, drain(None));
    harness.status(&on, "a.1", gone(Exit::Signal(15), StopReason::Drained));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Preempted, ReasonCode::Drained)
    );
}

#[test]
fn at_the_deadline_the_rest_is_stopped_too() {
    let mut harness = busy();
    harness.change("n", drain(Some(60)));
    assert!(pass_heard(&mut harness, 59).is_empty());
    // The deadline was extended, and the first timer may still fire.
    harness.change("n", drain(Some(30)));
    let key = TimerKey::DrainDeadline(node("n"));
    assert!(harness.feed(Input::Timer(key.clone())).orders.is_empty());
    assert!(pass_heard(&mut harness, 29).is_empty());
    assert_eq!(pass_heard(&mut harness, 1), ["stop firm.1 Drained 7s"]);
    assert!(harness.feed(Input::Timer(key)).records.is_empty());
    let noted = |effects: &InputEffects| effects.types().contains(&"node_drained".to_string());
    let effects = harness.status("n", "soft.1", gone(Exit::Signal(15), StopReason::Drained));
    assert!(!noted(&effects), "{effects:?}");
    let effects = harness.status("n", "firm.1", gone(Exit::Signal(15), StopReason::Drained));
    assert!(noted(&effects), "{effects:?}");
    assert_eq!(harness.placed("firm").0, "m");
}

#[test]
fn a_deadline_that_passed_while_nobody_was_there_is_kept_afterwards() {
    let mut harness = busy();
    harness.change("n", drain(Some(1)));
    harness.now = harness.now + Span::from_secs(100);
    let effects = harness.restart(harness.log.len());
    assert!(
        effects
            .timers
            .iter()
            .any(|(key, _)| *key == TimerKey::DrainDeadline(node("n")))
    );
    assert_eq!(harness.pass(0).types(), ["stopping"]);
    let held = vec![status("soft.1", running()), status("firm.1", running())];
    let effects = harness.hello(holding(hello("n", 2, 8), held));
    assert_eq!(
        effects.orders,
        ["stop soft.1 Drained 7s", "stop firm.1 Drained 7s"]
    );
}

#[test]
fn a_clock_that_is_ahead_at_a_start_takes_nothing_off_a_deadline() {
    let mut harness = busy();
    harness.change("n", drain(Some(100)));
    harness.restart_ahead(Span::from_secs(3600));
    // The restart took a second.
    assert!(pass_heard(&mut harness, 98).is_empty());
    harness.pass(1);
    let stopped = harness.state("firm");
    assert_eq!(stopped, StepState::Stopping);
}

#[test]
fn an_uncordon_ends_a_drain() {
    let mut harness = busy();
    harness.change("n", drain(Some(60)));
    harness.change("n", NodeChange::Uncordon);
    assert!(
        harness.pass(60).orders.is_empty(),
        "its deadline is gone with it"
    );
    harness.change("m", cordon());
    let effects = harness.status("n", "soft.1", gone(Exit::Signal(15), StopReason::Drained));
    assert_eq!(effects.orders, ["forget soft.1", "assign soft.2"]);
    assert_eq!(harness.placed("soft").0, "n");
}

#[test]
fn what_is_on_its_way_out_already_is_not_told_twice() {
    let mut harness = busy();
    harness.cancel("soft");
    let effects = harness.change("n", drain(Some(0)));
    assert!(effects.orders.is_empty(), "{effects:?}");
    assert_eq!(harness.pass(0).orders, ["stop firm.1 Drained 7s"]);
    harness.status("n", "soft.1", gone(Exit::Signal(15), StopReason::Cancelled));
    assert_eq!(harness.state("soft"), StepState::Cancelled);
}

#[test]
fn a_promise_on_a_node_that_is_closed_is_made_elsewhere() {
    let mut harness = two_nodes();
    for id in ["a", "b"] {
        harness.submit(id, spec(2, 1000)).unwrap();
    }
    harness.submit("wide", spec(2, 1000)).unwrap();
    harness.submit("behind", spec(0, 1000)).unwrap();
    let (on, other) = match harness.placed("a").0.as_str() {
        "n" => ("n", "m"),
        _ => ("m", "n"),
    };
    harness.change(on, cordon());
    harness.status(on, "a.1", released(Exit::Code(0)));
    assert_eq!(harness.state("wide"), StepState::Queued);
    harness.status(other, "b.1", released(Exit::Code(0)));
    assert_eq!(harness.placed("wide").0, other);
}

#[test]
fn labels_of_an_admin_win_over_those_of_the_config() {
    let mut harness = Harness::new();
    let mut words = hello("n", 1, 4);
    words.labels = [("zone", "a"), ("rack", "7")]
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .into();
    harness.hello(words.clone());
    let labels = |harness: &Harness| {
        let labels = stored_node(harness, "n").labels_in_force().into_iter();
        labels
            .map(|(key, value)| key + "=" + &value)
            .collect::<Vec<_>>()
    };
    harness.change(
        "n",
        label(&[("zone", Some("b")), ("team", Some("x")), ("rack", None)]),
    );
    assert_eq!(labels(&harness), ["team=x", "zone=b"]);
    harness.restart(1);
    harness.hello(words);
    assert_eq!(labels(&harness), ["team=x", "zone=b"]);
    let overridden = stored_node(&harness, "n").labels_overridden();
    let both = [("rack", "7"), ("zone", "a")].map(|(k, v)| (k.to_string(), v.to_string()));
    assert_eq!(overridden, both.into());
    harness.change(
        "n",
        label(&[("zone", None), ("team", None), ("rack", Some("8"))]),
    );
    assert_eq!(labels(&harness), ["rack=8"]);
}

#[test]
fn labels_that_a_config_has_anew_count_as_those_of_a_hello() {
    let mut harness = Harness::one_node(1, 8);
    let report = |zone: &str| FromNode::Labels([("zone".into(), zone.into())].into());
    let zone = |harness: &Harness| {
        stored_node(harness, "n")
            .labels_in_force()
            .get("zone")
            .cloned()
    };
    assert_eq!(harness.say("n", report("a")).types(), ["node_reported"]);
    assert_eq!(zone(&harness).as_deref(), Some("a"));
    assert_eq!(
        harness.say("n", report("a")).types(),
        [""; 0],
        "nothing new"
    );
    harness.change("n", label(&[("zone", Some("b"))]));
    assert_eq!(harness.say("n", report("c")).types(), ["node_reported"]);
    assert_eq!(
        zone(&harness).as_deref(),
        Some("b"),
        "an admin's goes before it"
    );
}

#[test]
fn labels_are_bounded() {
    let mut harness = Harness::one_node(1, 4);
    let many: Vec<_> = (0..65).map(|n| alloc::format!("k{n}")).collect();
    let some = |range: core::ops::Range<usize>| {
        let set: Vec<_> = many[range]
            .iter()
            .map(|key| (key.as_str(), Some("v")))
            .collect();
        label(&set)
    };
    done(&harness.change("n", some(0..64)));
    let error = refused(&harness.change("n", some(1..65))).to_string();
    assert!(
        error.contains("65 labels") && error.contains("the maximum is 64"),
        "{error}"
    );
    done(&harness.change("n", label(&[("k3", None)])));
    done(&harness.change("n", some(64..65)));
}

#[test]
fn a_node_is_deleted_when_it_is_away_and_empty() {
    let mut harness = two_nodes();
    assert!(matches!(
        refused(&harness.change("x", cordon())),
        Refusal::UnknownNode { .. }
    ));
    let delete = |force| NodeChange::Delete { force };
    let linked = refused(&harness.change("n", delete(false)));
    assert!(linked.to_string().contains("stop its agent"), "{linked}");
    harness.gone("n");
    let effects = harness.change("n", delete(false));
    done(&effects);
    assert_eq!(effects.types(), ["node_revoked", "node_deleted"]);
    assert_eq!(harness.core.state().nodes().len(), 1);
    let pool = sluice_common::id::PoolName::new("default").unwrap();
    assert_eq!(harness.core.state().capacity_of(&pool).get(MGPU), 2000);
    harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("a").0, "m");
    harness.pass(1000);
    assert!(matches!(
        refused(&harness.change("n", delete(false))),
        Refusal::UnknownNode { .. }
    ));
    // The node may join again, as a new one.
    harness.hello(hello("n", 1, 4));
    assert_eq!(harness.node_state("n"), NodeState::Ready);
}

#[test]
fn a_silent_node_that_may_run_something_is_forgotten_when_it_is_lost_and_not_before() {
    let mut harness = busy();
    harness.gone("n");
    let error = refused(&harness.change("n", NodeChange::Delete { force: false })).to_string();
    assert!(
        error.contains("`firm`, `soft`") && error.contains("--force"),
        "{error}"
    );
    let force = || NodeChange::Delete { force: true };
    let effects = harness.change("n", force());
    done(&effects);
    assert_eq!(effects.types(), ["node_revoked", "node_leaving"]);
    assert!(harness.change("n", force()).records.is_empty());
    harness.heartbeat("m");
    harness.pass(SETTINGS.lost_after.millis() / 1000 - 1);
    assert_eq!(
        (harness.state("soft"), harness.state("firm")),
        (StepState::Running, StepState::Running)
    );
    harness.heartbeat("m");
    let types = harness.pass(1).types();
    assert!(types.contains(&"node_deleted".to_string()), "{types:?}");
    assert_eq!(
        (harness.placed("soft").0, harness.placed("firm").0),
        ("m".into(), "m".into())
    );
    assert_eq!(harness.core.state().nodes().len(), 1);
}

#[test]
fn a_node_that_comes_back_in_time_is_kept() {
    let mut harness = busy();
    harness.gone("n");
    harness.change("n", NodeChange::Delete { force: true });
    let held = vec![status("soft.1", running()), status("firm.1", running())];
    harness.hello(holding(hello("n", 2, 8), held));
    assert!(!stored_node(&harness, "n").leaving);
    harness.gone("n");
    harness.pass(1000);
    assert_eq!(harness.node_state("n"), NodeState::Lost);
}
