//! Tests of the rate limit for hosts that report changes again and again.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};

use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::host_health::{HostHealth, SupervisorState};
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::time::Span;
use sluice_common::wire::FromNode;

use super::harness::*;
use crate::HELD_BACK;

/// More changes than a host may report at once.
const FEW: u64 = 70;

fn labels(n: u32) -> FromNode {
    FromNode::Labels(BTreeMap::from([("n".to_string(), n.to_string())]))
}

fn gpus(count: u32) -> FromNode {
    FromNode::Inventory(Box::new(inventory("n", count, 8)))
}

fn faults(which: &[u32]) -> FromNode {
    let faults = which.iter();
    let faults = faults.map(|gpu| (format!("GPU-n-{gpu}"), GpuFault::Lost));
    FromNode::GpuStates(Box::new(GpuStates {
        faults: faults.collect(),
        drain: None,
    }))
}

/// Makes a ready host whose changes are held back.
fn exhausted(gpus: u32) -> Harness {
    let mut harness = Harness::one_node(gpus, 8);
    for n in 0..100 {
        harness.say("n", labels(n));
    }
    harness
}

fn records(harness: &Harness) -> u64 {
    harness.core.state().seq()
}

fn notes(harness: &Harness) -> &[String] {
    &harness
        .core
        .state()
        .node(&node("n"))
        .unwrap()
        .inventory
        .notes
}

fn label(harness: &Harness) -> String {
    harness.core.state().node(&node("n")).unwrap().labels["n"].clone()
}

#[test]
fn its_changes_become_few_records_and_the_last_of_them_holds() {
    let mut harness = Harness::one_node(0, 8);
    let before = records(&harness);
    for n in 0..2000 {
        harness.say("n", labels(n));
        harness.now = harness.now + Span::from_millis(10);
    }
    assert!(
        records(&harness) - before <= FEW + 10,
        "{}",
        records(&harness) - before
    );
    assert_eq!(notes(&harness), [HELD_BACK]);
    harness.pass(3);
    assert_eq!(label(&harness), "1999");
    for _ in 0..60 {
        harness.heartbeat("n");
        harness.pass(2);
    }
    assert!(notes(&harness).is_empty(), "it is told while it lasts");
    harness.say("n", labels(7));
    assert_eq!(label(&harness), "7", "who is quiet is heard at once");
}

#[test]
fn what_it_loses_is_seen_at_once_and_what_it_gains_waits() {
    let mut harness = exhausted(4);
    harness.say("n", gpus(3));
    let has = |harness: &Harness| {
        harness
            .core
            .state()
            .node(&node("n"))
            .unwrap()
            .inventory
            .gpus
            .len()
    };
    assert_eq!(has(&harness), 3);
    harness.say("n", faults(&[0]));
    let fit = |harness: &Harness, gpu| harness.core.state().node(&node("n")).unwrap().is_fit(gpu);
    assert!(!fit(&harness, "GPU-n-0"));
    harness.say("n", faults(&[]));
    harness.say("n", gpus(4));
    assert!(!fit(&harness, "GPU-n-0") && has(&harness) == 3);
    harness.say(
        "n",
        FromNode::Supervisor(SupervisorState::Unresponsive("it is gone".into())),
    );
    assert_eq!(harness.node_state("n"), NodeState::Unsupervised);
    harness.say("n", FromNode::Supervisor(SupervisorState::Responding));
    assert_eq!(harness.node_state("n"), NodeState::Unsupervised);
    harness.say(
        "n",
        FromNode::Health(HostHealth::Unfit("/scratch is full".into())),
    );
    assert!(
        harness
            .core
            .state()
            .node(&node("n"))
            .unwrap()
            .cordon
            .is_some()
    );
    harness.say("n", FromNode::Health(HostHealth::Fit));
    for _ in 0..20 {
        harness.heartbeat("n");
        harness.pass(2);
    }
    assert_eq!(harness.node_state("n"), NodeState::Ready);
    assert!(fit(&harness, "GPU-n-0") && has(&harness) == 4);
    assert!(
        harness
            .core
            .state()
            .node(&node("n"))
            .unwrap()
            .cordon
            .is_none()
    );
}

#[test]
fn whatever_it_says_it_makes_no_more_records_than_come_in() {
    let mut harness = Harness::one_node(8, 8);
    let before = records(&harness);
    let seconds = 400_u32;
    for n in 0..seconds {
        for k in 0..8 {
            let some: alloc::vec::Vec<u32> = (0..k).collect();
            harness.say("n", gpus(8 - k));
            harness.say("n", faults(&some));
            let why = format!("{n}.{k}");
            harness.say("n", FromNode::Health(HostHealth::Unfit(why.clone())));
            harness.say(
                "n",
                FromNode::Supervisor(SupervisorState::Unresponsive(why)),
            );
            harness.say("n", FromNode::Supervisor(SupervisorState::Responding));
            harness.say("n", FromNode::Health(HostHealth::Fit));
        }
        harness.heartbeat("n");
        harness.pass(1);
    }
    // One change in each 2 s; a change of GPUs may be two records: inventory and fitness.
    let made = records(&harness) - before;
    assert!(made <= FEW + 2 * u64::from(seconds) / 2, "{made}");
}

#[test]
fn however_long_it_was_in_trouble_it_is_heard_soon_after_it_is_well() {
    let mut harness = Harness::one_node(0, 8);
    // An agent dies after each hello and is restarted.
    for _ in 0..2_000 {
        harness.hello(hello("n", 0, 8));
    }
    let away = SupervisorState::Unresponsive("it is being restarted".to_string());
    harness.say("n", FromNode::Supervisor(away));
    let state = harness.core.state().node(&node("n")).unwrap().state;
    assert_eq!(state, NodeState::Unsupervised);
    harness.say("n", FromNode::Supervisor(SupervisorState::Responding));
    for _ in 0..35 {
        harness.heartbeat("n");
        harness.pass(1);
    }
    let state = harness.core.state().node(&node("n")).unwrap().state;
    assert_eq!(state, NodeState::Ready);
}

#[test]
fn that_it_hears_and_does_not_hear_makes_few_records_too() {
    let mut harness = Harness::one_node(0, 8);
    let before = records(&harness);
    for n in 1..1000 {
        let answered = if n % 2 == 0 {
            harness.host_clock()
        } else {
            BootMillis(0)
        };
        harness.beat("n", answered, u64::MAX);
        harness.now = harness.now + Span::from_millis(100);
    }
    let made = records(&harness) - before;
    assert!(made <= 2 * (FEW + 50), "{made}");
}

#[test]
fn the_ends_of_its_steps_are_heard_at_once() {
    let mut harness = Harness::one_node(0, 8);
    harness.submit("s", spec(0, 1000)).unwrap();
    for n in 0..100 {
        harness.say("n", labels(n));
    }
    harness.status("n", "s.1", released(Exit::Code(0)));
    assert_eq!(harness.state("s"), StepState::Succeeded);
}
