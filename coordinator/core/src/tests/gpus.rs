//! Tests of which GPUs are granted: those that are neither unfit nor cordoned.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::{format, vec};

use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::id::Subject;
use sluice_common::inventory::{Gpu, MigInstance};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::wire::{FromNode, StopReason, ToNode};

use super::harness::*;
use crate::input::NodeChange;
use crate::output::{Answer, Refusal};

fn held(pid: u32) -> GpuFault {
    GpuFault::Quarantined {
        why: "it is still held by pid 4711".into(),
        pids: vec![pid],
    }
}

fn states(faults: &[(&str, GpuFault)]) -> GpuStates {
    let faults = faults.iter();
    GpuStates {
        faults: faults
            .map(|(gpu, fault)| ((*gpu).into(), fault.clone()))
            .collect(),
        drain: None,
    }
}

fn say(faults: &[(&str, GpuFault)]) -> FromNode {
    FromNode::GpuStates(Box::new(states(faults)))
}

fn cordon(gpu: &str, reason: Option<&str>) -> NodeChange {
    NodeChange::CordonGpu {
        gpu: gpu.into(),
        reason: reason.map(String::from),
    }
}

fn uncordon(gpu: &str) -> NodeChange {
    NodeChange::UncordonGpu { gpu: gpu.into() }
}

fn of(subject: &str, spec: StepSpec) -> StepSpec {
    StepSpec {
        subject: Subject::new(subject).unwrap(),
        ..spec
    }
}

/// Runs `low` on the only GPU of `n` and preempts it for `vip`.
fn preempted() -> Harness {
    let mut harness = Harness::one_node(1, 8);
    let policy = PolicySpec {
        priority: 10,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", policy);
    harness.submit("low", spec(1, 1000)).unwrap();
    harness.run("low.1");
    harness.submit("high", of("vip", spec(1, 1000))).unwrap();
    assert_eq!(harness.state("low"), StepState::Stopping);
    harness
}

#[test]
fn a_gpu_that_is_not_fit_is_granted_to_nobody_until_it_is() {
    let mut harness = Harness::one_node(2, 8);
    for fault in [
        held(4711),
        GpuFault::Foreign { pids: vec![7] },
        GpuFault::Lost,
    ] {
        let effects = harness.say("n", say(&[("GPU-n-0", fault.clone())]));
        assert_eq!(effects.types(), ["gpus_reported"]);
        assert_eq!(
            harness.say("n", say(&[("GPU-n-0", fault)])).types(),
            [""; 0]
        );
    }
    harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("a").1, ["GPU-n-1"]);
    harness.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(harness.code("b"), ReasonCode::WaitingForUnits);
    harness.say("n", say(&[]));
    assert_eq!(harness.placed("b").1, ["GPU-n-0"]);
}

#[test]
fn free_is_what_can_be_granted() {
    let mut harness = Harness::one_node(4, 8);
    let free = |harness: &Harness| {
        let pool = harness.core.state().pools().keys().next().unwrap();
        let scheduler = harness.core.state().scheduler().pool(pool).unwrap();
        (
            scheduler.free().get("mgpu") / 1000,
            scheduler.free().get("mcpu"),
        )
    };
    assert_eq!(free(&harness), (4, 8000));
    harness.say("n", say(&[("GPU-n-0", GpuFault::Lost)]));
    assert_eq!(free(&harness), (3, 8000), "one that is not fit is not free");
    harness.submit("a", spec(2, 1000)).unwrap();
    assert_eq!(free(&harness), (1, 7000));
    // One of its GPUs fails: the others stay as free as before.
    harness.say("n", say(&[("GPU-n-1", GpuFault::Lost)]));
    assert_eq!(free(&harness), (2, 7000), "GPU-n-0 is fit again");
    harness.apply(vec![wanted_pool("default", &[("gpu", 3), ("seats", 2)])]);
    assert_eq!(
        free(&harness),
        (1, 7000),
        "so much is left of what is declared"
    );
    harness.change("n", NodeChange::Cordon { reason: None });
    assert_eq!(free(&harness), (0, 0));
}

#[test]
fn what_a_pool_could_do_is_judged_with_all_gpus() {
    let mut harness = Harness::one_node(2, 8);
    harness.say("n", say(&[("GPU-n-0", GpuFault::Lost)]));
    harness.submit("a", spec(2, 1000)).unwrap();
    assert_eq!(harness.state("a"), StepState::Queued);
    harness.say("n", say(&[]));
    assert_eq!(harness.state("a"), StepState::Allocated);
}

#[test]
fn a_waiter_whose_gpu_did_not_come_free_loses_its_promise_and_keeps_its_place() {
    let mut harness = preempted();
    let effects = harness.say("n", say(&[("GPU-n-0", held(4711))]));
    assert_eq!(effects.types(), ["gpus_reported", "withdrawn"]);
    let effects = harness.status("n", "low.1", gone(Exit::Signal(15), StopReason::Preempted));
    assert!(
        !effects.types().contains(&"allocated".into()),
        "{:?}",
        effects.types()
    );
    assert_eq!(harness.state("high"), StepState::Queued);
    // Another host joins: the first of the queue starts there.
    harness.hello(hello("m", 1, 8));
    assert_eq!(harness.placed("high"), ("m".into(), vec!["GPU-m-0".into()]));
    assert_eq!(harness.state("low"), StepState::Queued);
    harness.say("n", say(&[]));
    assert_eq!(harness.placed("low"), ("n".into(), vec!["GPU-n-0".into()]));
}

#[test]
fn nobody_is_stopped_for_a_gpu_that_is_not_given_back() {
    let mut harness = Harness::one_node(2, 8);
    let policy = PolicySpec {
        priority: 10,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", policy);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    harness.submit("b", spec(1, 1000)).unwrap();
    harness.run("b.1");
    // The younger would be preempted first, but its resources would not help.
    harness.change("n", cordon("GPU-n-1", None));
    harness.submit("high", of("vip", spec(1, 1000))).unwrap();
    assert_eq!(harness.state("b"), StepState::Running);
    assert_eq!(harness.state("a"), StepState::Stopping);
}

#[test]
fn a_hello_tells_of_gpus_before_anything_is_granted() {
    let mut harness = Harness::new();
    harness.submit("a", spec(1, 1000)).unwrap();
    let mut words = hello("n", 1, 8);
    words.gpu_states = states(&[("GPU-n-0", held(4711))]);
    harness.hello(words);
    assert_eq!(harness.state("a"), StepState::Queued);
    let mut words = holding(hello("n", 1, 8), vec![]);
    words.gpu_states = GpuStates::default();
    harness.hello(words);
    assert_eq!(harness.state("a"), StepState::Allocated);
}

#[test]
fn an_admin_closes_gpus_and_what_runs_there_goes_on() {
    let mut harness = Harness::one_node(2, 8);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.change("n", cordon("0", Some("fans")));
    assert_eq!(effects.types(), ["gpus_cordoned"]);
    assert_eq!(
        harness.change("n", cordon("GPU-n-0", None)).types(),
        [""; 0]
    );
    assert_eq!(harness.state("a"), StepState::Running);
    harness.restart(0);
    harness.hello(holding(hello("n", 2, 8), vec![status("a.1", running())]));
    harness.status("n", "a.1", released(Exit::Code(0)));
    harness.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("b").1, ["GPU-n-1"]);
    let state = harness.core.state();
    let why = state.unfit_gpus(state.node(&node("n")).unwrap());
    assert_eq!(
        why,
        BTreeMap::from([((0, "GPU-n-0"), "cordoned: fans".into())])
    );
    harness.submit("c", spec(1, 1000)).unwrap();
    assert_eq!(harness.state("c"), StepState::Queued);
    assert_eq!(harness.change("n", uncordon("1")).types(), [""; 0]);
    harness.change("n", uncordon("0"));
    assert_eq!(harness.placed("c").1, ["GPU-n-0"]);
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
    let mut harness = Harness::one_node(1, 8);
    let effects = harness.change("n", cordon("7", None));
    let [Answer::Changed(Err(refusal @ Refusal::UnknownGpu { .. }))] = &effects.answers[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(
        format!("{refusal}"),
        "node `n` has no GPU `7`: name one by its index or by UUID, such as `GPU-n-0`"
    );
    // A cordoned GPU that fell off the bus can be uncordoned.
    harness.change("n", cordon("0", None));
    harness.say("n", FromNode::Inventory(Box::new(inventory("n", 0, 8))));
    assert_eq!(
        harness.change("n", uncordon("GPU-n-0")).types(),
        ["gpus_uncordoned"]
    );
}

#[test]
fn a_gpu_that_failed_is_looked_at_when_an_admin_opens_it() {
    let mut harness = Harness::one_node(2, 8);
    harness.say("n", say(&[("GPU-n-0", held(4711))]));
    harness.change("n", cordon("0", None));
    let effects = harness.change("n", uncordon("0"));
    assert_eq!(effects.types(), ["gpus_uncordoned"]);
    let restore = ToNode::RestoreGpus {
        gpus: vec!["GPU-n-0".into()],
    };
    assert_eq!(effects.sent, core::slice::from_ref(&restore));
    harness.submit("a", spec(2, 1000)).unwrap();
    assert_eq!(harness.state("a"), StepState::Queued, "it is not fit yet");
    // A GPU that fell off the bus is named by UUID, and checked again when it is reported again.
    harness.say("n", FromNode::Inventory(Box::new(inventory("n", 1, 8))));
    assert_eq!(harness.change("n", uncordon("GPU-n-0")).sent, [restore]);
    harness.say("n", FromNode::Inventory(Box::new(inventory("n", 2, 8))));
    harness.say("n", say(&[]));
    assert_eq!(harness.state("a"), StepState::Allocated);
    assert_eq!(harness.change("n", uncordon("0")).types(), [""; 0]);
}

#[test]
fn a_gpu_that_failed_is_not_opened_while_nobody_can_look_at_it() {
    let mut harness = Harness::one_node(1, 8);
    harness.say("n", say(&[("GPU-n-0", held(4711))]));
    harness.gone("n");
    let effects = harness.change("n", uncordon("0"));
    let [Answer::Changed(Err(refusal @ Refusal::CannotLookAtGpu { .. }))] = &effects.answers[..]
    else {
        panic!("{effects:?}");
    };
    let words = format!("{refusal}");
    assert!(words.starts_with("node `n` is away"), "{words}");
    assert_eq!(effects.types(), [""; 0]);
}

#[test]
fn a_host_that_calls_itself_unfit_is_drained_once_for_each_cause() {
    let mut harness = Harness::one_node(1, 8);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let unfit = |why: &str| {
        FromNode::GpuStates(Box::new(GpuStates {
            faults: BTreeMap::new(),
            drain: Some(why.into()),
        }))
    };
    let effects = harness.say("n", unfit("XID 79"));
    assert_eq!(
        effects.types(),
        ["gpus_reported", "node_draining", "stopping"]
    );
    harness.status("n", "a.1", gone(Exit::Signal(15), StopReason::Drained));
    harness.change("n", NodeChange::Uncordon);
    assert_eq!(harness.state("a"), StepState::Allocated, "the admin's word");
    assert_eq!(harness.say("n", unfit("XID 79")).types(), [""; 0]);
}

#[test]
fn a_step_whose_gpu_is_lost_fails_with_that_reason_unless_it_may_try_again() {
    for (retries, state, code) in [
        (0, StepState::Failed, ReasonCode::GpuLost),
        (1, StepState::Queued, ReasonCode::Retry),
    ] {
        let mut harness = Harness::one_node(1, 8);
        harness
            .submit("a", with_retries(spec(1, 1000), retries))
            .unwrap();
        harness.run("a.1");
        harness.say("n", say(&[("GPU-n-0", GpuFault::Lost)]));
        harness.status("n", "a.1", stopping(StopReason::GpuLost));
        assert_eq!(
            (harness.state("a"), harness.code("a")),
            (StepState::Stopping, ReasonCode::GpuLost)
        );
        harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::GpuLost));
        assert_eq!((harness.state("a"), harness.code("a")), (state, code));
    }
}

/// The inventory of a host whose only GPU is whole, or cut into two MIG instances.
fn one_gpu(is_cut: bool) -> FromNode {
    let mut found = inventory("n", 1, 8);
    if is_cut {
        let whole = found.gpus.remove(0);
        found.gpus.extend(["MIG-1", "MIG-2"].map(|uuid| Gpu {
            uuid: uuid.into(),
            mig: Some(MigInstance {
                profile: "3g.40gb".into(),
                parent: whole.uuid.clone(),
            }),
            ..whole.clone()
        }));
    }
    FromNode::Inventory(Box::new(found))
}

/// A step on these instances.
fn slices(count: u64) -> StepSpec {
    of_slices(spec(0, 1000), "3g.40gb", count)
}

/// Ends the only attempt of a step and frees its GPUs.
fn finish(harness: &mut Harness, attempt: &str) {
    harness.status("n", attempt, ended(Exit::Code(0)));
    harness.status("n", attempt, released(Exit::Code(0)));
}

#[test]
fn a_whole_gpu_is_not_granted_beside_a_step_on_an_instance_of_it() {
    let mut harness = Harness::one_node(0, 8);
    harness.say("n", one_gpu(true));
    harness.submit("slice", slices(1)).unwrap();
    assert_eq!(harness.placed("slice").1, ["MIG-1"]);
    harness.run("slice.1");
    harness.say("n", one_gpu(false));
    harness.submit("whole", spec(1, 1000)).unwrap();
    assert_eq!(harness.state("whole"), StepState::Queued);
    let why = harness.reason("whole").message;
    let expected = "in use: step `slice` holds its MIG instance `MIG-1`";
    assert!(why.contains(expected), "{why}");
    // The relation outlives further reports and a restart.
    let mut noted = inventory("n", 1, 8);
    noted.notes.push("a note".into());
    harness.say("n", FromNode::Inventory(Box::new(noted)));
    harness.restart(0);
    harness.hello(holding(
        hello("n", 1, 8),
        vec![status("slice.1", running())],
    ));
    assert_eq!(harness.state("whole"), StepState::Queued);
    finish(&mut harness, "slice.1");
    assert_eq!(harness.placed("whole").1, ["GPU-n-0"]);
}

#[test]
fn instances_are_not_granted_beside_a_step_on_their_whole_gpu() {
    let mut harness = Harness::one_node(1, 8);
    harness.submit("whole", spec(1, 1000)).unwrap();
    harness.run("whole.1");
    harness.say("n", one_gpu(true));
    harness.submit("slice", slices(2)).unwrap();
    assert_eq!(harness.state("slice"), StepState::Queued);
    let why = harness.reason("slice").message;
    let expected = "in use: step `whole` holds its whole GPU `GPU-n-0`";
    assert!(why.contains(expected), "{why}");
    finish(&mut harness, "whole.1");
    assert_eq!(harness.placed("slice").1, ["MIG-1", "MIG-2"]);
}

#[test]
fn a_gpu_that_is_listed_whole_and_cut_is_granted_by_its_instances_alone() {
    let mut harness = Harness::one_node(0, 8);
    let FromNode::Inventory(mut both) = one_gpu(true) else {
        unreachable!()
    };
    both.gpus.extend(inventory("n", 1, 8).gpus);
    harness.say("n", FromNode::Inventory(both));
    harness.submit("a", slices(2)).unwrap();
    assert_eq!(harness.placed("a").1, ["MIG-1", "MIG-2"]);
    let notes = &harness
        .core
        .state()
        .node(&node("n"))
        .unwrap()
        .inventory
        .notes;
    assert!(
        notes[0].contains("listed whole and by its MIG instances"),
        "{notes:?}"
    );
}

#[test]
fn a_cordon_of_a_gpu_outlives_its_instances() {
    let mut harness = Harness::one_node(0, 8);
    harness.say("n", one_gpu(true));
    harness.change("n", cordon("0", Some("fans")));
    harness.say("n", one_gpu(false));
    harness.submit("whole", spec(1, 1000)).unwrap();
    assert_eq!(harness.state("whole"), StepState::Queued);
    harness.say("n", one_gpu(true));
    harness.submit("a", slices(1)).unwrap();
    assert_eq!(harness.state("a"), StepState::Queued);
    harness.change("n", uncordon("MIG-2"));
    assert_eq!(harness.placed("a").1, ["MIG-1"]);
    harness.change("n", cordon("MIG-2", None));
    harness.submit("b", slices(1)).unwrap();
    assert_eq!(harness.state("b"), StepState::Queued);
    finish(&mut harness, "a.1");
    assert_eq!(harness.placed("b").1, ["MIG-1"], "the other stays open");
}

#[test]
fn a_new_cause_drains_a_host_that_was_opened_again() {
    let mut harness = Harness::one_node(1, 8);
    for why in ["XID 79", "XID 79 (2 times)", "XID 119"] {
        let drain = Some(why.into());
        let faults = BTreeMap::new();
        let effects = harness.say(
            "n",
            FromNode::GpuStates(Box::new(GpuStates { faults, drain })),
        );
        assert!(effects.types().contains(&"node_draining".into()), "{why}");
        harness.change("n", NodeChange::Uncordon);
    }
}

#[test]
fn what_a_gpu_lacks_its_instances_lack() {
    let mut harness = Harness::one_node(0, 8);
    harness.say("n", one_gpu(true));
    harness.say("n", say(&[("GPU-n-0", held(4711))]));
    harness.submit("a", slices(1)).unwrap();
    assert_eq!(harness.state("a"), StepState::Queued);
    let restore = harness.change("n", uncordon("MIG-1")).sent;
    let gpus = vec!["GPU-n-0".into()];
    assert_eq!(restore, [ToNode::RestoreGpus { gpus }]);
    harness.say("n", say(&[]));
    assert_eq!(harness.state("a"), StepState::Allocated);
}
