//! Tests of which GPUs a step gets on a host with several models, with unfit and awaited ones, and of the messages
//! about unknown platforms.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec;

use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, FromNode};

use super::harness::*;
use crate::StepAction;

/// Makes a host with three A100 before three H100.
fn mixed() -> Harness {
    let mut harness = Harness::new();
    let mut hello = hello("n", 6, 8);
    for gpu in &mut hello.inventory.gpus {
        gpu.platform = if gpu.index < 3 { "a100" } else { "h100" }.into();
    }
    harness.hello(hello);
    harness
}

fn on(gpus: u64, platform: &str) -> StepSpec {
    StepSpec {
        platform: Some(platform.into()),
        ..spec(gpus, 0)
    }
}

/// Reports that a process still holds these GPUs of the host.
fn quarantine(harness: &mut Harness, gpus: &[&str]) {
    let fault = || GpuFault::Quarantined {
        why: "it is still held by pid 7".into(),
        pids: vec![7],
    };
    let faults = gpus.iter().map(|gpu| ((*gpu).into(), fault())).collect();
    let states = GpuStates {
        faults,
        drain: None,
    };
    harness.say("n", FromNode::GpuStates(Box::new(states)));
}

#[test]
fn of_a_host_with_two_models_a_step_is_given_gpus_of_its_platform() {
    let mut harness = mixed();
    harness.submit("h", on(2, "h100")).unwrap();
    assert_eq!(harness.placed("h").1, ["GPU-n-3", "GPU-n-4"]);
    harness.submit("more", on(2, "h100")).unwrap();
    let reason = harness.reason("more");
    assert_eq!(reason.code, ReasonCode::WaitingForUnits);
    assert!(
        reason.message.contains("on one host of platform `h100`"),
        "{reason:?}"
    );
    harness.submit("either", on(2, "h100, a100")).unwrap();
    assert_eq!(harness.placed("either").1, ["GPU-n-0", "GPU-n-1"]);
    harness.status("n", "h.1", ended(Exit::Code(0)));
    harness.status("n", "h.1", released(Exit::Code(0)));
    assert_eq!(harness.placed("more").1, ["GPU-n-3", "GPU-n-4"]);
}

#[test]
fn who_takes_any_gets_gpus_of_one_model_where_one_has_enough() {
    let mut harness = mixed();
    harness.submit("a", on(1, "a100")).unwrap();
    harness.submit("h", on(1, "h100")).unwrap();
    harness.submit("h2", on(1, "h100")).unwrap();
    harness.submit("two", on(2, "any")).unwrap();
    assert_eq!(harness.placed("two").1, ["GPU-n-1", "GPU-n-2"]);
    harness.submit("one", spec(1, 0)).unwrap();
    assert_eq!(harness.placed("one").1, ["GPU-n-5"]);
}

#[test]
fn more_of_a_model_than_any_host_has_is_rejected_and_the_rest_of_it_is_not_counted() {
    let mut harness = mixed();
    harness.submit("four", on(4, "h100")).unwrap();
    let reason = harness.reason("four");
    assert_eq!(reason.code, ReasonCode::NoHostFits, "{reason:?}");
    assert!(reason.message.contains("has 3"), "{reason:?}");
    harness.submit("any", spec(4, 0)).unwrap();
    assert_eq!(harness.placed("any").1.len(), 4);
    harness.submit("none", on(1, "l40s")).unwrap();
    let reason = harness.reason("none");
    assert!(
        reason
            .message
            .contains("is of platform `l40s`: ask for `a100`, `h100` or `any`"),
        "{reason:?}"
    );
    let pending = StepSpec {
        allow_pending: true,
        ..on(1, "l40s")
    };
    harness.submit("pending", pending).unwrap();
    assert_eq!(harness.state("pending"), StepState::Queued);
}

/// Makes a host of each of two platforms.
fn two_hosts() -> Harness {
    let mut harness = Harness::new();
    for (node, platform) in [("a", "a100"), ("h", "h100")] {
        let mut hello = hello(node, 2, 8);
        for gpu in &mut hello.inventory.gpus {
            gpu.platform = platform.into();
        }
        harness.hello(hello);
    }
    harness
}

#[test]
fn a_gang_that_no_platform_has_room_for_is_told_so() {
    let mut harness = two_hosts();
    let gang = StepSpec {
        nodes: 2,
        ..spec(1, 0)
    };
    harness.submit("g", gang).unwrap();
    assert_eq!(harness.code("g"), ReasonCode::NoHostFits);
    let message = harness.reason("g").message;
    assert!(message.contains("2 hosts at once, and 1 of"), "{message}");
    assert!(
        message.contains("is large enough among those of any one platform"),
        "{message}"
    );
}

#[test]
fn what_holds_and_is_free_on_hosts_of_other_platforms_is_not_told_to_one_that_waits() {
    let mut harness = two_hosts();
    harness.submit("other", on(1, "a100")).unwrap();
    harness.submit("in-its-way", on(2, "h100")).unwrap();
    harness.submit("w", on(1, "h100")).unwrap();
    let explained = harness.core.explain(&step("w")).unwrap();
    let look = &explained.pools[0].inspection;
    let gpu = look.keys.iter().find(|terms| terms.key == "mgpu").unwrap();
    assert_eq!(gpu.most_free, Some((&node("h"), 0)));
    assert_eq!(look.holders.len(), 1, "{look:?}");
    assert_eq!(format!("{}", look.holders[0].attempt), "in-its-way.1");
}

#[test]
fn a_restart_knows_what_is_granted_of_each_model() {
    let mut harness = mixed();
    harness.submit("any", spec(4, 0)).unwrap();
    harness.submit("h", on(2, "h100")).unwrap();
    assert_eq!(harness.state("any"), StepState::Allocated);
    let granted: usize = harness.placed("any").1.len();
    let waits = harness.state("h");
    harness.restart(3);
    assert_eq!((granted, harness.state("h")), (4, waits));
    assert_eq!(waits, StepState::Allocated);
}

#[test]
fn gpus_that_are_not_fit_are_counted_to_their_own_platform() {
    let mut harness = mixed();
    quarantine(&mut harness, &["GPU-n-3"]);
    harness.submit("three", on(3, "h100")).unwrap();
    assert_eq!(
        harness.state("three"),
        StepState::Queued,
        "it may be fit again"
    );
    harness.submit("two", on(2, "h100")).unwrap();
    assert_eq!(harness.placed("two").1, ["GPU-n-4", "GPU-n-5"]);
    harness.submit("a", on(3, "a100")).unwrap();
    assert_eq!(harness.placed("a").1, ["GPU-n-0", "GPU-n-1", "GPU-n-2"]);
    quarantine(&mut harness, &[]);
    harness.status("n", "two.1", released(Exit::Code(0)));
    assert_eq!(harness.placed("three").1, ["GPU-n-3", "GPU-n-4", "GPU-n-5"]);
}

#[test]
fn a_victim_gives_back_what_is_fit_of_the_platform_that_is_asked_for() {
    let mut harness = mixed();
    let priority = 10;
    let policy = PolicySpec {
        priority,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", policy);
    for (name, spec) in [
        ("a", on(3, "a100")),
        ("h", on(2, "h100")),
        ("one", on(1, "h100")),
    ] {
        harness.submit(name, spec).unwrap();
        harness.run(&alloc::format!("{name}.1"));
    }
    assert_eq!(harness.placed("h").1, ["GPU-n-3", "GPU-n-4"]);
    quarantine(&mut harness, &["GPU-n-3"]);
    let vip = |gpus| StepSpec {
        subject: "vip".parse().unwrap(),
        ..on(gpus, "h100")
    };
    harness.submit("three", vip(3)).unwrap();
    let states = |harness: &Harness| ["a", "h", "one"].map(|name| harness.state(name));
    assert_eq!(states(&harness), [StepState::Running; 3], "no cure");
    harness.submit("two", vip(2)).unwrap();
    let (stays, goes) = (StepState::Running, StepState::Stopping);
    assert_eq!(states(&harness), [stays, goes, goes]);
}

#[test]
fn what_is_frozen_waits_for_its_own_gpus_whatever_else_is_free_of_its_platforms() {
    let mut harness = mixed();
    let frozen = StepSpec {
        on_preempt: OnPreempt::Suspend,
        ..on(2, "h100, a100")
    };
    harness.submit("f", frozen).unwrap();
    assert_eq!(harness.placed("f").1, ["GPU-n-3", "GPU-n-4"]);
    harness.run("f.1");
    harness.action("f", StepAction::Suspend);
    let suspended = AttemptPhase::Suspended {
        started: process(),
        moved_mb: 0,
    };
    harness.status("n", "f.1", suspended);
    harness.submit("h", on(1, "h100")).unwrap();
    assert_eq!(harness.placed("h").1, ["GPU-n-5"]);
    harness.submit("any", spec(1, 0)).unwrap();
    assert_eq!(harness.placed("any").1, ["GPU-n-0"], "nobody waits for it");
    harness.submit("h2", on(1, "h100")).unwrap();
    assert_eq!(harness.placed("h2").1, ["GPU-n-3"], "better than none");
    harness.action("f", StepAction::Resume);
    assert_eq!(harness.state("f"), StepState::Suspended);
    harness.submit("h3", on(2, "h100")).unwrap();
    assert_eq!(harness.state("h3"), StepState::Queued);
    harness.status("n", "h2.1", released(Exit::Code(0)));
    assert_eq!(harness.state("f"), StepState::Resuming);
    assert_eq!(harness.placed("f").1, ["GPU-n-3", "GPU-n-4"]);
}

#[test]
fn who_takes_any_leaves_to_others_what_they_are_promised_of_a_platform() {
    let mut harness = mixed();
    let priority = 10;
    let policy = PolicySpec {
        priority,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", policy);
    harness.submit("a", on(1, "a100")).unwrap();
    harness.submit("h", on(2, "h100")).unwrap();
    harness.run("h.1");
    let vip = StepSpec {
        subject: "vip".parse().unwrap(),
        ..on(3, "h100")
    };
    harness.submit("vip", vip).unwrap();
    assert_eq!(harness.state("h"), StepState::Stopping);
    harness.submit("any", spec(1, 0)).unwrap();
    assert_eq!(harness.placed("any").1, ["GPU-n-1"], "of h100 there is one");
    harness.status("n", "h.1", released(Exit::Code(0)));
    assert_eq!(harness.placed("vip").1, ["GPU-n-3", "GPU-n-4", "GPU-n-5"]);
}
