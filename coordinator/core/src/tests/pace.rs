//! A host that says again and again that it has changed.

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

use super::rig::*;
use crate::HELD_BACK;

/// What a host may do at once, and some that follow from it.
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

/// A ready host of which nothing more is taken in for a while.
fn exhausted(gpus: u32) -> Rig {
    let mut rig = Rig::one_node(gpus, 8);
    for n in 0..100 {
        rig.say("n", labels(n));
    }
    rig
}

fn records(rig: &Rig) -> u64 {
    rig.core.state().seq()
}

fn notes(rig: &Rig) -> &[String] {
    &rig.core.state().node(&node("n")).unwrap().inventory.notes
}

fn label(rig: &Rig) -> String {
    rig.core.state().node(&node("n")).unwrap().labels["n"].clone()
}

#[test]
fn its_changes_become_few_records_and_the_last_of_them_holds() {
    let mut rig = Rig::one_node(0, 8);
    let before = records(&rig);
    for n in 0..2000 {
        rig.say("n", labels(n));
        rig.now = rig.now + Span::from_millis(10);
    }
    assert!(
        records(&rig) - before <= FEW + 10,
        "{}",
        records(&rig) - before
    );
    assert_eq!(notes(&rig), [HELD_BACK]);
    rig.pass(3);
    assert_eq!(label(&rig), "1999");
    for _ in 0..60 {
        rig.heartbeat("n");
        rig.pass(2);
    }
    assert!(notes(&rig).is_empty(), "it is told while it lasts");
    rig.say("n", labels(7));
    assert_eq!(label(&rig), "7", "who is quiet is heard at once");
}

#[test]
fn what_it_loses_is_seen_at_once_and_what_it_gains_waits() {
    let mut rig = exhausted(4);
    rig.say("n", gpus(3));
    let has = |rig: &Rig| {
        rig.core
            .state()
            .node(&node("n"))
            .unwrap()
            .inventory
            .gpus
            .len()
    };
    assert_eq!(has(&rig), 3);
    rig.say("n", faults(&[0]));
    let fit = |rig: &Rig, gpu| rig.core.state().node(&node("n")).unwrap().is_fit(gpu);
    assert!(!fit(&rig, "GPU-n-0"));
    rig.say("n", faults(&[]));
    rig.say("n", gpus(4));
    assert!(!fit(&rig, "GPU-n-0") && has(&rig) == 3);
    rig.say(
        "n",
        FromNode::Supervisor(SupervisorState::Unresponsive("it is gone".into())),
    );
    assert_eq!(rig.node_state("n"), NodeState::Unsupervised);
    rig.say("n", FromNode::Supervisor(SupervisorState::Responding));
    assert_eq!(rig.node_state("n"), NodeState::Unsupervised);
    rig.say(
        "n",
        FromNode::Health(HostHealth::Unfit("/scratch is full".into())),
    );
    assert!(rig.core.state().node(&node("n")).unwrap().cordon.is_some());
    rig.say("n", FromNode::Health(HostHealth::Fit));
    for _ in 0..20 {
        rig.heartbeat("n");
        rig.pass(2);
    }
    assert_eq!(rig.node_state("n"), NodeState::Ready);
    assert!(fit(&rig, "GPU-n-0") && has(&rig) == 4);
    assert!(rig.core.state().node(&node("n")).unwrap().cordon.is_none());
}

#[test]
fn whatever_it_says_it_makes_no_more_records_than_come_in() {
    let mut rig = Rig::one_node(8, 8);
    let before = records(&rig);
    let seconds = 400_u32;
    for n in 0..seconds {
        for k in 0..8 {
            let some: alloc::vec::Vec<u32> = (0..k).collect();
            rig.say("n", gpus(8 - k));
            rig.say("n", faults(&some));
            let why = format!("{n}.{k}");
            rig.say("n", FromNode::Health(HostHealth::Unfit(why.clone())));
            rig.say(
                "n",
                FromNode::Supervisor(SupervisorState::Unresponsive(why)),
            );
            rig.say("n", FromNode::Supervisor(SupervisorState::Responding));
            rig.say("n", FromNode::Health(HostHealth::Fit));
        }
        rig.heartbeat("n");
        rig.pass(1);
    }
    // One each 2 s, of which one that changes GPUs may be two: what they are and what is wrong with them.
    let made = records(&rig) - before;
    assert!(made <= FEW + 2 * u64::from(seconds) / 2, "{made}");
}

#[test]
fn however_long_it_was_in_trouble_it_is_heard_soon_after_it_is_well() {
    let mut rig = Rig::one_node(0, 8);
    // An agent that dies as soon as it has said hello, and is started again each time.
    for _ in 0..2_000 {
        rig.hello(hello("n", 0, 8));
    }
    let away = SupervisorState::Unresponsive("it is being restarted".to_string());
    rig.say("n", FromNode::Supervisor(away));
    let state = rig.core.state().node(&node("n")).unwrap().state;
    assert_eq!(state, NodeState::Unsupervised);
    rig.say("n", FromNode::Supervisor(SupervisorState::Responding));
    for _ in 0..35 {
        rig.heartbeat("n");
        rig.pass(1);
    }
    let state = rig.core.state().node(&node("n")).unwrap().state;
    assert_eq!(state, NodeState::Ready);
}

#[test]
fn that_it_hears_and_does_not_hear_makes_few_records_too() {
    let mut rig = Rig::one_node(0, 8);
    let before = records(&rig);
    for n in 1..1000 {
        let answered = if n % 2 == 0 {
            rig.host_clock()
        } else {
            BootMillis(0)
        };
        rig.beat("n", answered, u64::MAX);
        rig.now = rig.now + Span::from_millis(100);
    }
    let made = records(&rig) - before;
    assert!(made <= 2 * (FEW + 50), "{made}");
}

#[test]
fn the_ends_of_its_steps_are_heard_at_once() {
    let mut rig = Rig::one_node(0, 8);
    rig.submit("s", spec(0, 1000)).unwrap();
    for n in 0..100 {
        rig.say("n", labels(n));
    }
    rig.status("n", "s.1", released(Exit::Code(0)));
    assert_eq!(rig.state("s"), StepState::Succeeded);
}
