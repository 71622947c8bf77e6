//! Tests of steps inside allocations.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, STEP_RUN};
use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::id::{PoolName, Subject};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::request::ResourceSettings;
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{FromNode, StopReason, ToNode};

use super::harness::*;
use crate::{Input, NewStep, NodeChange, Refusal, ReplyId, StepAction};

/// An allocation of GPUs and 4 cores on each of its hosts.
fn allocation(gpus: u64, nodes: u32) -> StepSpec {
    StepSpec {
        lease: Some(Span::from_secs(600)),
        command: Vec::new(),
        timeout: None,
        on_preempt: OnPreempt::Fail,
        nodes,
        grace: Span::from_secs(60),
        ..spec(gpus, 4000)
    }
}

/// A step inside the allocation `a` that asks for GPUs; for all that the allocation has if `None`.
fn inside(gpus: Option<u64>) -> StepSpec {
    let resources = ResourceSettings {
        gpu_count: gpus,
        ..ResourceSettings::default()
    };
    StepSpec {
        inside: Some(step("a")),
        request: resources.demand().unwrap(),
        resources: resources.into(),
        nodes: 0,
        on_preempt: OnPreempt::Fail,
        timeout: None,
        ..spec(0, 0)
    }
}

/// A host of 4 GPUs and 8 cores, of which the allocation `a` has `gpus` and 4.
fn allocated(gpus: u64) -> Harness {
    let mut harness = Harness::one_node(4, 8);
    harness.submit("a", allocation(gpus, 1)).unwrap();
    harness.run("a.1");
    harness
}

fn used(harness: &Harness) -> (Amounts, Amounts) {
    let state = harness.core.state();
    let pool = PoolName::new("default").unwrap();
    (state.used_on(&node("n")), state.used_of(&pool))
}

#[test]
fn a_step_gets_all_of_its_allocation_and_counts_nowhere_else() {
    let mut harness = allocated(2);
    let before = used(&harness);
    harness.submit("b", inside(None)).unwrap();
    assert_eq!(harness.state("b"), StepState::Allocated);
    assert_eq!(harness.placed("b"), harness.placed("a"));
    let request = &harness.step("b").spec.request;
    assert_eq!((request.get(MGPU), request.get(MCPU)), (2000, 4000));
    assert_eq!(used(&harness), before);
    harness.run("b.1");
    harness.status("n", "b.1", released(Exit::Code(3)));
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Failed, ReasonCode::NonZeroExit)
    );
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(used(&harness), before);
}

#[test]
fn its_host_gets_the_gpus_the_amounts_and_the_name_of_the_allocation() {
    let mut harness = allocated(2);
    let steps = vec![NewStep::new(step("b"), inside(Some(1)))];
    let reply = ReplyId(1);
    let sent = harness.feed(Input::Submit { reply, steps }).sent;
    let mut assignments = sent.into_iter().filter_map(|order| {
        let ToNode::Assign(assignment) = order else {
            return None;
        };
        Some(assignment)
    });
    let assignment = assignments.next().unwrap();
    assert_eq!(assignment.gpus, harness.placed("a").1[..1]);
    // Half of the cores, as of the GPUs.
    assert_eq!(assignment.resources.get(MCPU), 2000);
    assert_eq!(assignment.env["SLUICE_ALLOCATION"], "a");
}

#[test]
fn steps_share_what_the_allocation_has_and_wait_for_each_other_in_order() {
    let mut harness = allocated(2);
    harness.submit("b", inside(Some(1))).unwrap();
    harness.submit("c", inside(Some(1))).unwrap();
    assert_ne!(harness.placed("b").1, harness.placed("c").1);
    harness.submit("d", inside(Some(2))).unwrap();
    harness.submit("e", inside(Some(1))).unwrap();
    let waits = harness.reason("d");
    assert_eq!(waits.code, ReasonCode::WaitingForUnits);
    assert_eq!(
        waits.message,
        "it asks for 2 gpu, and the allocation `a` has 0 free on `n`: `b`, `c` hold the rest"
    );
    assert_eq!(
        harness.reason("e").message,
        "`d` goes before it inside the allocation `a`"
    );
    harness.run("b.1");
    harness.status("n", "b.1", released(Exit::Code(0)));
    // One GPU is free, and the large one comes first.
    assert_eq!(harness.state("e"), StepState::Queued);
    assert_eq!(
        harness.reason("d").message,
        "it asks for 2 gpu, and the allocation `a` has 1 free on `n`: `c` holds the rest"
    );
    harness.run("c.1");
    harness.status("n", "c.1", released(Exit::Code(0)));
    assert_eq!(harness.state("d"), StepState::Allocated);
    assert_eq!(harness.state("e"), StepState::Queued);
    harness.cancel("d");
    harness.status("n", "d.1", gone(Exit::Signal(9), StopReason::Cancelled));
    assert_eq!(harness.state("e"), StepState::Allocated);
}

#[test]
fn one_that_never_fits_is_rejected_with_the_numbers() {
    let mut harness = allocated(2);
    harness.submit("b", inside(Some(3))).unwrap();
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Rejected, ReasonCode::ExceedsAllocation)
    );
    assert!(
        harness
            .reason("b")
            .message
            .starts_with("it asks for 3 gpu per host, and the allocation `a` has 2 on each"),
        "{}",
        harness.reason("b").message
    );
    let two = StepSpec {
        nodes: 2,
        ..inside(Some(1))
    };
    harness.submit("c", two).unwrap();
    assert_eq!(
        harness.reason("c").message,
        "it asks for 2 hosts, and the allocation `a` has 1: ask for fewer"
    );
}

#[test]
fn only_open_allocations_of_the_same_subject_take_steps() {
    let mut harness = Harness::one_node(4, 8);
    assert_eq!(
        harness.submit("b", inside(None)),
        Err(Refusal::UnknownStep { step: step("a") })
    );
    harness.submit("a", spec(0, 1000)).unwrap();
    assert_eq!(
        harness.submit("b", inside(None)),
        Err(Refusal::NotAnAllocation { step: step("a") })
    );
    let mut harness = allocated(1);
    let mut others = inside(None);
    others.subject = Subject::new("t").unwrap();
    let refused = harness.submit("b", others).unwrap_err();
    assert!(
        refused.to_string().contains("belongs to subject `s`"),
        "{refused}"
    );
    harness.cancel_within("a", Some(0));
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::Cancelled));
    let refused = harness.submit("b", inside(None)).unwrap_err();
    assert!(
        matches!(&refused, Refusal::StepOver { step: over, .. } if *over == step("a")),
        "{refused}"
    );
}

#[test]
fn a_repeated_submit_is_the_same_step() {
    let mut harness = allocated(2);
    for _ in 0..2 {
        harness.submit("b", inside(None)).unwrap();
    }
    let other = harness.submit("b", inside(Some(1))).unwrap_err();
    assert!(matches!(other, Refusal::IdInUse { .. }), "{other:?}");
    let outside = StepSpec {
        inside: None,
        ..inside(None)
    };
    let other = harness.submit("b", outside).unwrap_err();
    assert!(other.to_string().contains("(inside)"), "{other}");
}

#[test]
fn a_step_waits_for_its_allocation_and_ends_with_it() {
    let mut harness = Harness::one_node(1, 8);
    harness.submit("first", spec(1, 1000)).unwrap();
    harness.submit("a", allocation(1, 1)).unwrap();
    harness.submit("b", inside(None)).unwrap();
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Queued, ReasonCode::WaitingForAllocation)
    );
    harness.run("first.1");
    harness.status("n", "first.1", released(Exit::Code(0)));
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.run("a.1");
    assert_eq!(harness.state("b"), StepState::Allocated);
    harness.submit("c", inside(None)).unwrap();
    harness.cancel("a");
    assert_eq!(
        (harness.state("b"), harness.state("c")),
        (StepState::Stopping, StepState::Cancelled)
    );
    assert_eq!(
        harness.reason("c").message,
        "its allocation `a` was released"
    );
}

#[test]
fn a_queued_allocation_that_ends_takes_what_waits_for_it_along() {
    let mut harness = Harness::one_node(1, 8);
    harness.submit("first", spec(1, 1000)).unwrap();
    harness.submit("a", allocation(1, 1)).unwrap();
    harness.submit("b", inside(None)).unwrap();
    harness.cancel("a");
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Cancelled, ReasonCode::AllocationEnded)
    );
}

/// Orders to stop, in order.
fn stops(orders: &[String]) -> Vec<&str> {
    let stops = orders.iter().filter(|order| order.starts_with("stop"));
    stops.map(String::as_str).collect()
}

#[test]
fn the_end_of_an_allocation_stops_what_is_inside_within_its_grace_and_waits_for_it() {
    let mut harness = allocated(1);
    harness.submit("b", inside(None)).unwrap();
    harness.run("b.1");
    let effects = harness.cancel_within("a", Some(20));
    // The step's own grace is shorter than that of the allocation.
    assert_eq!(
        stops(&effects.orders),
        ["stop a.1 Cancelled 20s", "stop b.1 Cancelled 7s"]
    );
    // The allocation's own process is gone, and its host keeps its resources for the step.
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::Cancelled));
    assert_eq!(harness.state("a"), StepState::Stopping);
    harness.submit("next", spec(4, 1000)).unwrap();
    let effects = harness.status("n", "b.1", gone(Exit::Signal(15), StopReason::Cancelled));
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Cancelled, ReasonCode::AllocationEnded)
    );
    assert_eq!(harness.state("a"), StepState::Cancelled);
    assert_eq!(harness.state("next"), StepState::Allocated);
    assert!(
        effects.orders.contains(&String::from("forget a.1")),
        "{effects:?}"
    );
}

#[test]
fn a_stop_of_its_own_is_hurried_by_the_end_of_the_allocation() {
    let mut harness = allocated(1);
    harness.submit("b", inside(None)).unwrap();
    harness.run("b.1");
    harness.cancel("b");
    let effects = harness.cancel_within("a", Some(2));
    assert_eq!(
        stops(&effects.orders),
        ["stop a.1 Cancelled 2s", "stop b.1 Cancelled 2s"]
    );
    harness.status("n", "b.1", gone(Exit::Signal(9), StopReason::Cancelled));
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Cancelled, ReasonCode::Cancelled)
    );
}

#[test]
fn a_preempted_allocation_takes_its_steps_along_for_good() {
    let mut harness = allocated(4);
    harness
        .submit("b", with_retries(inside(Some(2)), 5))
        .unwrap();
    harness.submit("c", inside(Some(2))).unwrap();
    harness.run("b.1");
    harness.run("c.1");
    let policy = PolicySpec {
        reserved: [amount("gpu", 4)].into_iter().collect(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "t", policy);
    let mut claim = spec(4, 1000);
    claim.subject = Subject::new("t").unwrap();
    claim.preemptible = false;
    harness.submit("claim", claim).unwrap();
    assert_eq!(
        (harness.state("a"), harness.state("b")),
        (StepState::Stopping, StepState::Stopping)
    );
    harness.status("n", "b.1", gone(Exit::Signal(15), StopReason::Preempted));
    harness.status("n", "c.1", gone(Exit::Code(0), StopReason::Preempted));
    assert_eq!(
        (harness.state("b"), harness.state("c")),
        (StepState::Preempted, StepState::Succeeded)
    );
    assert!(
        harness
            .reason("b")
            .message
            .contains("gave way to another step")
    );
    assert_eq!(harness.step("b").attempts.len(), 1);
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::Preempted));
    assert_eq!(harness.state("claim"), StepState::Allocated);
}

#[test]
fn one_whose_allocation_expires_or_ends_by_itself_says_so() {
    let mut harness = Harness::one_node(4, 8);
    let short = StepSpec {
        lease: Some(Span::from_secs(60)),
        ..allocation(1, 1)
    };
    harness.submit("a", short).unwrap();
    harness.run("a.1");
    harness.submit("b", inside(None)).unwrap();
    harness.run("b.1");
    harness.pass(60);
    harness.status("n", "b.1", gone(Exit::Signal(15), StopReason::NotRenewed));
    assert_eq!(
        (harness.state("b"), harness.reason("b").message),
        (
            StepState::Cancelled,
            "its allocation `a` was not renewed in time".to_string()
        )
    );
    let mut harness = allocated(1);
    harness.submit("b", inside(None)).unwrap();
    harness.run("b.1");
    harness.status("n", "a.1", released(Exit::Signal(9)));
    assert_eq!(
        (harness.state("a"), harness.state("b")),
        (StepState::Failed, StepState::Stopping)
    );
    // Nobody else gets the GPU before the step is gone.
    harness.submit("next", spec(4, 1000)).unwrap();
    assert_eq!(harness.state("next"), StepState::Queued);
    harness.status("n", "b.1", gone(Exit::Signal(15), StopReason::PeerEnded));
    assert_eq!(
        (harness.state("b"), harness.state("next")),
        (StepState::Failed, StepState::Allocated)
    );
}

#[test]
fn a_lost_host_takes_the_allocation_and_its_steps() {
    let mut harness = allocated(1);
    harness.submit("b", with_retries(inside(None), 5)).unwrap();
    harness.submit("c", inside(None)).unwrap();
    harness.run("b.1");
    harness.gone("n");
    harness.pass(400);
    assert_eq!(
        (harness.state("a"), harness.state("b")),
        (StepState::Failed, StepState::Failed)
    );
    assert_eq!(harness.state("c"), StepState::Cancelled);
    assert!(harness.step("b").attempts[0].is_released());
    assert_eq!(harness.step("b").attempts.len(), 1);
}

#[test]
fn it_is_retried_in_place_and_survives_restarts_of_the_coordinator() {
    let mut harness = allocated(2);
    harness
        .submit("b", with_retries(inside(Some(1)), 1))
        .unwrap();
    harness.run("b.1");
    harness.status("n", "b.1", released(Exit::Code(1)));
    assert_eq!(harness.state("b"), StepState::Allocated);
    harness.run("b.2");
    harness.restart(0);
    harness.hello(holding(
        hello("n", 4, 8),
        vec![status("a.1", running()), status("b.2", running())],
    ));
    assert_eq!(harness.state("b"), StepState::Running);
    harness.submit("c", inside(Some(2))).unwrap();
    assert_eq!(harness.code("c"), ReasonCode::WaitingForUnits);
    harness.status("n", "b.2", released(Exit::Code(0)));
    assert_eq!(harness.state("c"), StepState::Allocated);
}

#[test]
fn while_its_host_is_away_nothing_starts_inside() {
    let mut harness = allocated(1);
    harness.gone("n");
    harness.pass(20);
    harness.submit("b", inside(None)).unwrap();
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Queued, ReasonCode::NoLiveHost)
    );
    harness.hello(holding(hello("n", 4, 8), vec![status("a.1", running())]));
    assert_eq!(harness.state("b"), StepState::Allocated);
}

#[test]
fn several_hosts_run_one_step_as_a_gang() {
    let mut harness = Harness::one_node(2, 8);
    harness.hello(hello("m", 2, 8));
    harness.submit("a", allocation(2, 2)).unwrap();
    for host in ["m", "n"] {
        harness.status(host, "a.1", running());
    }
    harness.submit("b", inside(None)).unwrap();
    let attempt = harness.step("b").latest().unwrap();
    assert_eq!((attempt.parts.len(), attempt.port.is_some()), (2, true));
    harness.cancel("b");
    for host in ["m", "n"] {
        harness.status(host, "b.1", gone(Exit::Signal(15), StopReason::Cancelled));
    }
    // One host each.
    harness.submit("c", inside(Some(2))).unwrap();
    harness.submit("d", inside(Some(2))).unwrap();
    assert_ne!(harness.placed("c").0, harness.placed("d").0);
}

#[test]
fn a_drained_host_stops_the_allocation_and_that_its_steps() {
    let mut harness = allocated(1);
    harness.submit("b", inside(None)).unwrap();
    harness.run("b.1");
    let drain = NodeChange::Drain {
        reason: None,
        deadline: None,
    };
    let effects = harness.change("n", drain);
    assert_eq!(
        stops(&effects.orders),
        ["stop a.1 Drained 1m", "stop b.1 Drained 7s"]
    );
    harness.status("n", "b.1", gone(Exit::Signal(15), StopReason::Drained));
    assert_eq!(harness.state("b"), StepState::Preempted);
}

#[test]
fn it_is_neither_suspended_nor_moved() {
    let mut harness = allocated(1);
    harness.submit("b", inside(None)).unwrap();
    harness.submit("c", inside(None)).unwrap();
    harness.action("b", StepAction::Suspend);
    assert_eq!(harness.state("b"), StepState::Allocated);
    harness.put_pool("other");
    let refused = harness.move_step("c", "other").unwrap_err();
    assert!(
        refused.to_string().contains("inside the allocation `a`"),
        "{refused}"
    );
}

#[test]
fn shares_of_what_it_leaves_open_follow_what_it_asks_for() {
    let mut harness = Harness::one_node(4, 8);
    let whole = StepSpec {
        request: Amounts::new()
            .with_gpus(4)
            .with(MCPU, 8000)
            .with(MEMORY_MB, 10_000)
            .with(STEP_RUN, 1),
        ..allocation(4, 1)
    };
    let mut hello = hello("n", 4, 8);
    hello.inventory.memory_bytes = 20_000_000_000;
    harness.hello(hello);
    harness.submit("a", whole).unwrap();
    harness.run("a.1");
    for (id, resources, expected) in [
        ("b", r#"{"gpu_count":1}"#, (1000, 2000, 2500)),
        ("c", r#"{"cpu_count":2}"#, (0, 2000, 2500)),
        ("d", r#"{"memory":"1GB"}"#, (0, 800, 1000)),
        ("e", r#"{"gpu_count":2,"cpu_count":1}"#, (2000, 1000, 5000)),
    ] {
        let resources: ResourceSettings = serde_json::from_str(resources).unwrap();
        let asks = StepSpec {
            request: resources.demand().unwrap(),
            resources: resources.into(),
            ..inside(None)
        };
        harness.submit(id, asks).unwrap();
        let request = &harness.step(id).spec.request;
        let found = (request.get(MGPU), request.get(MCPU), request.get(MEMORY_MB));
        assert_eq!(found, expected, "{id}: {request:?}");
        harness.cancel(id);
    }
}

#[test]
fn a_gpu_that_did_not_come_free_inside_is_granted_to_nobody_there_until_it_is() {
    let mut harness = allocated(1);
    harness.submit("b", inside(None)).unwrap();
    harness.run("b.1");
    harness.submit("c", inside(None)).unwrap();
    let held = GpuFault::Quarantined {
        why: "it is still held by pid 4711".into(),
        pids: vec![4711],
    };
    let states = |faults| {
        FromNode::GpuStates(Box::new(GpuStates {
            faults,
            drain: None,
        }))
    };
    harness.say("n", states([("GPU-n-0".into(), held)].into()));
    harness.status("n", "b.1", released(Exit::Code(0)));
    let waits = harness.reason("c");
    assert_eq!(waits.code, ReasonCode::WaitingForUnits);
    assert_eq!(
        waits.message,
        "it asks for 1 gpu, and the allocation `a` has 0 free on `n`: 1 of its GPUs is unusable (`GPU-n-0` is quarantined: it is still held by pid 4711)"
    );
    harness.say("n", states([].into()));
    assert_eq!(harness.placed("c").1, ["GPU-n-0"]);
}
