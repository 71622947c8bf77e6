//! Which GPUs a step is given of a host that has several models, also where some are not fit or waited for by what is
//! frozen, and what is said of platforms that are not there.

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

use super::rig::*;
use crate::Steer;

/// A host with three A100 before three H100.
fn mixed() -> Rig {
    let mut rig = Rig::new();
    let mut hello = hello("n", 6, 8);
    for gpu in &mut hello.inventory.gpus {
        gpu.platform = if gpu.index < 3 { "a100" } else { "h100" }.into();
    }
    rig.hello(hello);
    rig
}

fn on(gpus: u64, platform: &str) -> StepSpec {
    StepSpec {
        platform: Some(platform.into()),
        ..spec(gpus, 0)
    }
}

/// The host says of these of its GPUs that a process holds them still.
fn quarantine(rig: &mut Rig, gpus: &[&str]) {
    let fault = || GpuFault::Quarantined {
        why: "it is still held by pid 7".into(),
        pids: vec![7],
    };
    let faults = gpus.iter().map(|gpu| ((*gpu).into(), fault())).collect();
    let states = GpuStates {
        faults,
        drain: None,
    };
    rig.say("n", FromNode::GpuStates(Box::new(states)));
}

#[test]
fn of_a_host_with_two_models_a_step_is_given_gpus_of_its_platform() {
    let mut rig = mixed();
    rig.submit("h", on(2, "h100")).unwrap();
    assert_eq!(rig.placed("h").1, ["GPU-n-3", "GPU-n-4"]);
    rig.submit("more", on(2, "h100")).unwrap();
    let reason = rig.reason("more");
    assert_eq!(reason.code, ReasonCode::WaitingForUnits);
    assert!(
        reason.message.contains("on one host of platform `h100`"),
        "{reason:?}"
    );
    rig.submit("either", on(2, "h100, a100")).unwrap();
    assert_eq!(rig.placed("either").1, ["GPU-n-0", "GPU-n-1"]);
    rig.status("n", "h.1", ended(Exit::Code(0)));
    rig.status("n", "h.1", released(Exit::Code(0)));
    assert_eq!(rig.placed("more").1, ["GPU-n-3", "GPU-n-4"]);
}

#[test]
fn who_takes_any_gets_gpus_of_one_model_where_one_has_enough() {
    let mut rig = mixed();
    rig.submit("a", on(1, "a100")).unwrap();
    rig.submit("h", on(1, "h100")).unwrap();
    rig.submit("h2", on(1, "h100")).unwrap();
    rig.submit("two", on(2, "any")).unwrap();
    assert_eq!(rig.placed("two").1, ["GPU-n-1", "GPU-n-2"]);
    rig.submit("one", spec(1, 0)).unwrap();
    assert_eq!(rig.placed("one").1, ["GPU-n-5"]);
}

#[test]
fn more_of_a_model_than_any_host_has_is_rejected_and_the_rest_of_it_is_not_counted() {
    let mut rig = mixed();
    rig.submit("four", on(4, "h100")).unwrap();
    let reason = rig.reason("four");
    assert_eq!(reason.code, ReasonCode::NoHostFits, "{reason:?}");
    assert!(reason.message.contains("has 3"), "{reason:?}");
    rig.submit("any", spec(4, 0)).unwrap();
    assert_eq!(rig.placed("any").1.len(), 4);
    rig.submit("none", on(1, "l40s")).unwrap();
    let reason = rig.reason("none");
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
    rig.submit("pending", pending).unwrap();
    assert_eq!(rig.state("pending"), StepState::Queued);
}

/// A host of each of two platforms.
fn two_hosts() -> Rig {
    let mut rig = Rig::new();
    for (node, platform) in [("a", "a100"), ("h", "h100")] {
        let mut hello = hello(node, 2, 8);
        for gpu in &mut hello.inventory.gpus {
            gpu.platform = platform.into();
        }
        rig.hello(hello);
    }
    rig
}

#[test]
fn a_gang_that_no_platform_has_room_for_is_told_so() {
    let mut rig = two_hosts();
    let gang = StepSpec {
        nodes: 2,
        ..spec(1, 0)
    };
    rig.submit("g", gang).unwrap();
    assert_eq!(rig.code("g"), ReasonCode::NoHostFits);
    let message = rig.reason("g").message;
    assert!(message.contains("2 hosts at once, and 1 of"), "{message}");
    assert!(
        message.contains("is large enough among those of any one platform"),
        "{message}"
    );
}

#[test]
fn what_holds_and_is_free_on_hosts_of_other_platforms_is_not_told_to_one_that_waits() {
    let mut rig = two_hosts();
    rig.submit("other", on(1, "a100")).unwrap();
    rig.submit("in-its-way", on(2, "h100")).unwrap();
    rig.submit("w", on(1, "h100")).unwrap();
    let explained = rig.core.explain(&step("w")).unwrap();
    let look = &explained.pools[0].look;
    let gpu = look.keys.iter().find(|terms| terms.key == "gpu").unwrap();
    assert_eq!(gpu.most_free, Some((&node("h"), 0)));
    assert_eq!(look.holders.len(), 1, "{look:?}");
    assert_eq!(format!("{}", look.holders[0].attempt), "in-its-way.1");
}

#[test]
fn a_restart_knows_what_is_granted_of_each_model() {
    let mut rig = mixed();
    rig.submit("any", spec(4, 0)).unwrap();
    rig.submit("h", on(2, "h100")).unwrap();
    assert_eq!(rig.state("any"), StepState::Allocated);
    let granted: usize = rig.placed("any").1.len();
    let waits = rig.state("h");
    rig.restart(3);
    assert_eq!((granted, rig.state("h")), (4, waits));
    assert_eq!(waits, StepState::Allocated);
}

#[test]
fn gpus_that_are_not_fit_are_counted_to_their_own_platform() {
    let mut rig = mixed();
    quarantine(&mut rig, &["GPU-n-3"]);
    rig.submit("three", on(3, "h100")).unwrap();
    assert_eq!(rig.state("three"), StepState::Queued, "it may be fit again");
    rig.submit("two", on(2, "h100")).unwrap();
    assert_eq!(rig.placed("two").1, ["GPU-n-4", "GPU-n-5"]);
    rig.submit("a", on(3, "a100")).unwrap();
    assert_eq!(rig.placed("a").1, ["GPU-n-0", "GPU-n-1", "GPU-n-2"]);
    quarantine(&mut rig, &[]);
    rig.status("n", "two.1", released(Exit::Code(0)));
    assert_eq!(rig.placed("three").1, ["GPU-n-3", "GPU-n-4", "GPU-n-5"]);
}

#[test]
fn a_victim_gives_back_what_is_fit_of_the_platform_that_is_asked_for() {
    let mut rig = mixed();
    let priority = 10;
    let policy = PolicySpec {
        priority,
        ..PolicySpec::default()
    };
    rig.put_policy("default", "vip", policy);
    for (name, spec) in [
        ("a", on(3, "a100")),
        ("h", on(2, "h100")),
        ("one", on(1, "h100")),
    ] {
        rig.submit(name, spec).unwrap();
        rig.run(&alloc::format!("{name}.1"));
    }
    assert_eq!(rig.placed("h").1, ["GPU-n-3", "GPU-n-4"]);
    quarantine(&mut rig, &["GPU-n-3"]);
    let vip = |gpus| StepSpec {
        subject: "vip".parse().unwrap(),
        ..on(gpus, "h100")
    };
    rig.submit("three", vip(3)).unwrap();
    let states = |rig: &Rig| ["a", "h", "one"].map(|name| rig.state(name));
    assert_eq!(states(&rig), [StepState::Running; 3], "no cure");
    rig.submit("two", vip(2)).unwrap();
    let (stays, goes) = (StepState::Running, StepState::Stopping);
    assert_eq!(states(&rig), [stays, goes, goes]);
}

#[test]
fn what_is_frozen_waits_for_its_own_gpus_whatever_else_is_free_of_its_platforms() {
    let mut rig = mixed();
    let frozen = StepSpec {
        on_preempt: OnPreempt::Suspend,
        ..on(2, "h100, a100")
    };
    rig.submit("f", frozen).unwrap();
    assert_eq!(rig.placed("f").1, ["GPU-n-3", "GPU-n-4"]);
    rig.run("f.1");
    rig.steer("f", Steer::Suspend);
    let suspended = AttemptPhase::Suspended {
        started: process(),
        moved_mb: 0,
    };
    rig.status("n", "f.1", suspended);
    rig.submit("h", on(1, "h100")).unwrap();
    assert_eq!(rig.placed("h").1, ["GPU-n-5"]);
    rig.submit("any", spec(1, 0)).unwrap();
    assert_eq!(rig.placed("any").1, ["GPU-n-0"], "nobody waits for it");
    rig.submit("h2", on(1, "h100")).unwrap();
    assert_eq!(rig.placed("h2").1, ["GPU-n-3"], "better than none");
    rig.steer("f", Steer::Resume);
    assert_eq!(rig.state("f"), StepState::Suspended);
    rig.submit("h3", on(2, "h100")).unwrap();
    assert_eq!(rig.state("h3"), StepState::Queued);
    rig.status("n", "h2.1", released(Exit::Code(0)));
    assert_eq!(rig.state("f"), StepState::Resuming);
    assert_eq!(rig.placed("f").1, ["GPU-n-3", "GPU-n-4"]);
}

#[test]
fn who_takes_any_leaves_to_others_what_they_are_promised_of_a_platform() {
    let mut rig = mixed();
    let priority = 10;
    let policy = PolicySpec {
        priority,
        ..PolicySpec::default()
    };
    rig.put_policy("default", "vip", policy);
    rig.submit("a", on(1, "a100")).unwrap();
    rig.submit("h", on(2, "h100")).unwrap();
    rig.run("h.1");
    let vip = StepSpec {
        subject: "vip".parse().unwrap(),
        ..on(3, "h100")
    };
    rig.submit("vip", vip).unwrap();
    assert_eq!(rig.state("h"), StepState::Stopping);
    rig.submit("any", spec(1, 0)).unwrap();
    assert_eq!(rig.placed("any").1, ["GPU-n-1"], "of h100 there is one");
    rig.status("n", "h.1", released(Exit::Code(0)));
    assert_eq!(rig.placed("vip").1, ["GPU-n-3", "GPU-n-4", "GPU-n-5"]);
}
