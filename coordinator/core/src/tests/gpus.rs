//! Which GPUs are granted: those that their host calls fit and no admin has closed.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::{format, vec};

use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::id::Subject;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::wire::{FromNode, StopReason, ToNode};

use super::rig::*;
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

/// `low` runs on the only GPU of `n`; `vip`, which goes before it, has had it stopped.
fn preempted() -> Rig {
    let mut rig = Rig::one_node(1, 8);
    let policy = PolicySpec {
        priority: 10,
        ..PolicySpec::default()
    };
    rig.put_policy("default", "vip", policy);
    rig.submit("low", spec(1, 1000)).unwrap();
    rig.run("low.1");
    rig.submit("high", of("vip", spec(1, 1000))).unwrap();
    assert_eq!(rig.state("low"), StepState::Stopping);
    rig
}

#[test]
fn a_gpu_that_is_not_fit_is_granted_to_nobody_until_it_is() {
    let mut rig = Rig::one_node(2, 8);
    for fault in [
        held(4711),
        GpuFault::Foreign { pids: vec![7] },
        GpuFault::Lost,
    ] {
        let fed = rig.say("n", say(&[("GPU-n-0", fault.clone())]));
        assert_eq!(fed.types(), ["gpus_reported"]);
        assert_eq!(rig.say("n", say(&[("GPU-n-0", fault)])).types(), [""; 0]);
    }
    rig.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(rig.placed("a").1, ["GPU-n-1"]);
    rig.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(rig.code("b"), ReasonCode::WaitingForUnits);
    rig.say("n", say(&[]));
    assert_eq!(rig.placed("b").1, ["GPU-n-0"]);
}

#[test]
fn free_is_what_can_be_granted() {
    let mut rig = Rig::one_node(4, 8);
    let free = |rig: &Rig| {
        let pool = rig.core.state().pools().keys().next().unwrap();
        let market = rig.core.state().market().pool(pool).unwrap();
        (market.free().get("gpu"), market.free().get("mcpu"))
    };
    assert_eq!(free(&rig), (4, 8000));
    rig.say("n", say(&[("GPU-n-0", GpuFault::Lost)]));
    assert_eq!(free(&rig), (3, 8000), "one that is not fit is not free");
    rig.submit("a", spec(2, 1000)).unwrap();
    assert_eq!(free(&rig), (1, 7000));
    // One of those that it holds fails: the others stay as free as they were.
    rig.say("n", say(&[("GPU-n-1", GpuFault::Lost)]));
    assert_eq!(free(&rig), (2, 7000), "GPU-n-0 is fit again");
    rig.apply(vec![wanted_pool("default", &[("gpu", 3), ("seats", 2)])]);
    assert_eq!(free(&rig), (1, 7000), "so much is left of what is declared");
    rig.change("n", NodeChange::Cordon { reason: None });
    assert_eq!(free(&rig), (0, 0));
}

#[test]
fn what_a_pool_could_do_is_judged_with_all_gpus() {
    let mut rig = Rig::one_node(2, 8);
    rig.say("n", say(&[("GPU-n-0", GpuFault::Lost)]));
    rig.submit("a", spec(2, 1000)).unwrap();
    assert_eq!(rig.state("a"), StepState::Queued);
    rig.say("n", say(&[]));
    assert_eq!(rig.state("a"), StepState::Allocated);
}

#[test]
fn a_waiter_whose_gpu_did_not_come_free_loses_its_promise_and_keeps_its_place() {
    let mut rig = preempted();
    let fed = rig.say("n", say(&[("GPU-n-0", held(4711))]));
    assert_eq!(fed.types(), ["gpus_reported", "withdrawn"]);
    let fed = rig.status("n", "low.1", gone(Exit::Signal(15), StopReason::Preempted));
    assert!(
        !fed.types().contains(&"allocated".into()),
        "{:?}",
        fed.types()
    );
    assert_eq!(rig.state("high"), StepState::Queued);
    // Another host comes: the one that goes first is first there.
    rig.hello(hello("m", 1, 8));
    assert_eq!(rig.placed("high"), ("m".into(), vec!["GPU-m-0".into()]));
    assert_eq!(rig.state("low"), StepState::Queued);
    rig.say("n", say(&[]));
    assert_eq!(rig.placed("low"), ("n".into(), vec!["GPU-n-0".into()]));
}

#[test]
fn nobody_is_stopped_for_a_gpu_that_is_not_given_back() {
    let mut rig = Rig::one_node(2, 8);
    let policy = PolicySpec {
        priority: 10,
        ..PolicySpec::default()
    };
    rig.put_policy("default", "vip", policy);
    rig.submit("a", spec(1, 1000)).unwrap();
    rig.run("a.1");
    rig.submit("b", spec(1, 1000)).unwrap();
    rig.run("b.1");
    // The younger would go first; what it holds would help nobody.
    rig.change("n", cordon("GPU-n-1", None));
    rig.submit("high", of("vip", spec(1, 1000))).unwrap();
    assert_eq!(rig.state("b"), StepState::Running);
    assert_eq!(rig.state("a"), StepState::Stopping);
}

#[test]
fn a_hello_tells_of_gpus_before_anything_is_granted() {
    let mut rig = Rig::new();
    rig.submit("a", spec(1, 1000)).unwrap();
    let mut words = hello("n", 1, 8);
    words.gpu_states = states(&[("GPU-n-0", held(4711))]);
    rig.hello(words);
    assert_eq!(rig.state("a"), StepState::Queued);
    let mut words = holding(hello("n", 1, 8), vec![]);
    words.gpu_states = GpuStates::default();
    rig.hello(words);
    assert_eq!(rig.state("a"), StepState::Allocated);
}

#[test]
fn an_admin_closes_gpus_and_what_runs_there_goes_on() {
    let mut rig = Rig::one_node(2, 8);
    rig.submit("a", spec(1, 1000)).unwrap();
    rig.run("a.1");
    let fed = rig.change("n", cordon("0", Some("fans")));
    assert_eq!(fed.types(), ["gpus_cordoned"]);
    assert_eq!(rig.change("n", cordon("GPU-n-0", None)).types(), [""; 0]);
    assert_eq!(rig.state("a"), StepState::Running);
    rig.restart(0);
    rig.hello(holding(hello("n", 2, 8), vec![status("a.1", running())]));
    rig.status("n", "a.1", released(Exit::Code(0)));
    rig.submit("b", spec(1, 1000)).unwrap();
    assert_eq!(rig.placed("b").1, ["GPU-n-1"]);
    let why = rig.core.state().node(&node("n")).unwrap().unfit_gpus();
    assert_eq!(
        why,
        BTreeMap::from([((0, "GPU-n-0"), "cordoned: fans".into())])
    );
    rig.submit("c", spec(1, 1000)).unwrap();
    assert_eq!(rig.state("c"), StepState::Queued);
    assert_eq!(rig.change("n", uncordon("1")).types(), [""; 0]);
    rig.change("n", uncordon("0"));
    assert_eq!(rig.placed("c").1, ["GPU-n-0"]);
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
    let mut rig = Rig::one_node(1, 8);
    let fed = rig.change("n", cordon("7", None));
    let [Answer::Changed(Err(refusal @ Refusal::UnknownGpu { .. }))] = &fed.answers[..] else {
        panic!("{fed:?}");
    };
    assert_eq!(
        format!("{refusal}"),
        "node `n` has no GPU `7`: name one by its index or by UUID, such as `GPU-n-0`"
    );
    // One that is closed and fell off can be opened.
    rig.change("n", cordon("0", None));
    rig.say("n", FromNode::Inventory(Box::new(inventory("n", 0, 8))));
    assert_eq!(
        rig.change("n", uncordon("GPU-n-0")).types(),
        ["gpus_uncordoned"]
    );
}

#[test]
fn a_gpu_that_failed_is_looked_at_when_an_admin_opens_it() {
    let mut rig = Rig::one_node(2, 8);
    rig.say("n", say(&[("GPU-n-0", held(4711))]));
    rig.change("n", cordon("0", None));
    let fed = rig.change("n", uncordon("0"));
    assert_eq!(fed.types(), ["gpus_uncordoned"]);
    let restore = ToNode::RestoreGpus {
        gpus: vec!["GPU-n-0".into()],
    };
    assert_eq!(fed.sent, core::slice::from_ref(&restore));
    rig.submit("a", spec(2, 1000)).unwrap();
    assert_eq!(rig.state("a"), StepState::Queued, "it is not fit yet");
    // One that fell off is named by UUID, and said again it is looked at again.
    rig.say("n", FromNode::Inventory(Box::new(inventory("n", 1, 8))));
    assert_eq!(rig.change("n", uncordon("GPU-n-0")).sent, [restore]);
    rig.say("n", FromNode::Inventory(Box::new(inventory("n", 2, 8))));
    rig.say("n", say(&[]));
    assert_eq!(rig.state("a"), StepState::Allocated);
    assert_eq!(rig.change("n", uncordon("0")).types(), [""; 0]);
}

#[test]
fn a_gpu_that_failed_is_not_opened_while_nobody_can_look_at_it() {
    let mut rig = Rig::one_node(1, 8);
    rig.say("n", say(&[("GPU-n-0", held(4711))]));
    rig.gone("n");
    let fed = rig.change("n", uncordon("0"));
    let [Answer::Changed(Err(refusal @ Refusal::CannotLookAtGpu { .. }))] = &fed.answers[..] else {
        panic!("{fed:?}");
    };
    let words = format!("{refusal}");
    assert!(words.starts_with("node `n` is away"), "{words}");
    assert_eq!(fed.types(), [""; 0]);
}

#[test]
fn a_host_that_calls_itself_unfit_is_drained_once_for_each_cause() {
    let mut rig = Rig::one_node(1, 8);
    rig.submit("a", spec(1, 1000)).unwrap();
    rig.run("a.1");
    let unfit = |why: &str| {
        FromNode::GpuStates(Box::new(GpuStates {
            faults: BTreeMap::new(),
            drain: Some(why.into()),
        }))
    };
    let fed = rig.say("n", unfit("XID 79"));
    assert_eq!(fed.types(), ["gpus_reported", "node_draining", "stopping"]);
    rig.status("n", "a.1", gone(Exit::Signal(15), StopReason::Drained));
    rig.change("n", NodeChange::Uncordon);
    assert_eq!(rig.state("a"), StepState::Allocated, "the admin's word");
    assert_eq!(rig.say("n", unfit("XID 79")).types(), [""; 0]);
}

#[test]
fn a_step_whose_gpu_is_lost_fails_with_that_reason_unless_it_may_try_again() {
    for (retries, state, code) in [
        (0, StepState::Failed, ReasonCode::GpuLost),
        (1, StepState::Queued, ReasonCode::Retry),
    ] {
        let mut rig = Rig::one_node(1, 8);
        rig.submit("a", with_retries(spec(1, 1000), retries))
            .unwrap();
        rig.run("a.1");
        rig.say("n", say(&[("GPU-n-0", GpuFault::Lost)]));
        rig.status("n", "a.1", stopping(StopReason::GpuLost));
        assert_eq!(
            (rig.state("a"), rig.code("a")),
            (StepState::Stopping, ReasonCode::GpuLost)
        );
        rig.status("n", "a.1", gone(Exit::Signal(9), StopReason::GpuLost));
        assert_eq!((rig.state("a"), rig.code("a")), (state, code));
    }
}
