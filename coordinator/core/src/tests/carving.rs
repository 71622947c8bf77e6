//! Tests of GPUs that platforms want to be cut into slices: when they are cut, and what follows.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use sluice_common::carving::{CarveFailure, CarveOutcome, MigLayout};
use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::inventory::{Gpu, Inventory, MigInstance};
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::PolicySpec;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{FromNode, Hello};

use super::harness::*;
use crate::input::NodeChange;
use crate::record::Record;
use crate::state::carving::CarveStatus;
use crate::{Answer, Desired, Input, ReplyId, TermsChange, TimerKey};

const HALVES: [&str; 2] = ["3g.40gb", "3g.40gb"];
const IN_HALVES: &str = "carve GPU-n-0 into 2 x 3g.40gb from a whole GPU";

/// The hello of a host with this many whole H100 that may be cut.
fn host(gpus: u32) -> Hello {
    let mut hello = hello("n", gpus, 8);
    hello.inventory.carves_gpus = true;
    for gpu in &mut hello.inventory.gpus {
        gpu.platform = "h100".into();
        let offered = [("1g.10gb", 7), ("2g.20gb", 3), ("3g.40gb", 2)];
        gpu.board.mig_profiles = offered.map(|(name, count)| (name.into(), count)).into();
    }
    hello
}

fn platform(name: &str, mig: &[&str]) -> Desired {
    let profiles = mig.iter().map(|profile| profile.parse().unwrap());
    asking_for(name, Some(profiles.collect::<Vec<_>>().try_into().unwrap()))
}

fn asking_for(name: &str, mig: Option<MigLayout>) -> Desired {
    let terms = PlatformSpec {
        selector: serde_json::from_str(r#"{"gpu_model":"h100"}"#).unwrap(),
        mig,
        ..PlatformSpec::default()
    };
    Desired::Platform {
        pool: "default".parse().unwrap(),
        platform: name.parse().unwrap(),
        terms: terms.into(),
    }
}

fn cluster_of(gpus: u32) -> Harness {
    let mut harness = Harness::new();
    harness.hello(host(gpus));
    harness
}

/// The inventory of that host with a GPU cut into these slices.
fn cut(inventory: &Inventory, index: usize, profiles: &[&str]) -> Inventory {
    let mut inventory = inventory.clone();
    let whole = inventory.gpus.remove(index).as_whole();
    let slices = profiles.iter().enumerate().map(|(place, profile)| Gpu {
        uuid: format!("MIG-{}-{place}", whole.uuid),
        mig: Some(MigInstance {
            profile: (*profile).into(),
            parent: whole.uuid.clone(),
        }),
        ..whole.clone()
    });
    inventory.gpus.extend(slices);
    if profiles.is_empty() {
        inventory.empty_gpus.push(whole);
    }
    inventory
}

fn seen(inventory: Inventory) -> FromNode {
    FromNode::Inventory(inventory.into())
}

fn outcome(gpu: &str, outcome: CarveOutcome) -> FromNode {
    FromNode::Carved {
        gpu: gpu.into(),
        outcome,
    }
}

fn failed(why: CarveFailure, is_restored: bool) -> FromNode {
    outcome("GPU-n-0", CarveOutcome::Failed { why, is_restored })
}

fn standings(harness: &Harness) -> Vec<CarveStatus> {
    let node = harness.core.state().node(&node("n")).unwrap();
    let states = harness.core.carvings(node).into_iter();
    states.map(|state| state.standing).collect()
}

#[test]
fn an_idle_gpu_is_cut_and_its_slices_are_granted_as_soon_as_they_are_seen() {
    let mut harness = cluster_of(1);
    let effects = harness.apply(vec![platform("h100", &HALVES)]);
    assert_eq!(effects.orders, [IN_HALVES]);
    assert!(effects.types().contains(&"gpu_carving".into()));
    // Nothing of it is granted, whole or cut, until the host has told the result.
    harness.submit("whole", spec(1, 1000)).unwrap();
    harness
        .submit("slice", of_slices(spec(0, 1000), "3g.40gb", 1))
        .unwrap();
    assert_ne!(harness.state("whole"), StepState::Allocated);
    let halves = cut(&host(1).inventory, 0, &HALVES);
    harness.say("n", seen(cut(&host(1).inventory, 0, &[])));
    harness.say("n", seen(halves));
    let mut pending = of_slices(spec(0, 1000), "3g.40gb", 1);
    pending.allow_pending = true;
    harness.submit("early", pending).unwrap();
    assert_eq!(
        harness.state("early"),
        StepState::Queued,
        "seen, and not told"
    );
    let effects = harness.say("n", outcome("GPU-n-0", CarveOutcome::Done));
    assert_eq!(effects.types()[0], "gpu_carved");
    assert_eq!(harness.placed("early").1, ["MIG-GPU-n-0-0"]);
    assert!(
        standings(&harness).is_empty(),
        "it is as the platform wants"
    );
    let again = harness.apply(vec![platform("h100", &HALVES)]);
    assert!(again.orders.is_empty(), "no order for what is there");
}

#[test]
fn a_gpu_in_use_is_cut_when_its_step_has_ended_and_no_other_gets_it() {
    let mut harness = cluster_of(2);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.apply(vec![platform("h100", &HALVES)]);
    assert_eq!(
        effects.orders,
        ["carve GPU-n-1 into 2 x 3g.40gb from a whole GPU"]
    );
    let in_use = CarveStatus::InUse(step("a"));
    assert_eq!(standings(&harness), [in_use, CarveStatus::Carving]);
    let effects = harness.status("n", "a.1", released(Exit::Code(0)));
    assert!(
        effects.orders.contains(&IN_HALVES.into()),
        "{:?}",
        effects.orders
    );
}

#[test]
fn a_gpu_that_a_step_waits_for_is_not_cut() {
    let mut harness = cluster_of(2);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let policy = PolicySpec {
        priority: 10,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", policy);
    let both = StepSpec {
        subject: "vip".parse().unwrap(),
        ..spec(2, 1000)
    };
    harness.submit("both", both).unwrap();
    assert_eq!(harness.state("a"), StepState::Stopping);
    let effects = harness.apply(vec![platform("h100", &HALVES)]);
    assert!(effects.orders.is_empty(), "{:?}", effects.orders);
    assert_eq!(standings(&harness)[1], CarveStatus::Promised(step("both")));
    let effects = harness.cancel("both");
    assert!(
        effects
            .orders
            .iter()
            .any(|it| it.starts_with("carve GPU-n-1"))
    );
}

#[test]
fn a_host_that_does_not_allow_it_a_fault_and_what_is_not_offered_keep_a_gpu_as_it_is() {
    let mut harness = Harness::new();
    let mut closed = host(1);
    closed.inventory.carves_gpus = false;
    harness.hello(closed);
    let effects = harness.apply(vec![platform("h100", &HALVES)]);
    assert!(effects.orders.is_empty());
    assert_eq!(standings(&harness), [CarveStatus::NotAllowed]);
    let said = CarveStatus::NotAllowed.to_string();
    assert!(
        said.contains("set carve_gpus = true in supervisor.toml"),
        "{said}"
    );
    let effects = harness.hello(host(1));
    assert_eq!(effects.orders, [IN_HALVES], "allowed since");

    let mut harness = cluster_of(1);
    let faults = [("GPU-n-0".into(), GpuFault::Foreign { pids: vec![7] })];
    let states = GpuStates {
        faults: faults.into(),
        drain: None,
    };
    harness.say("n", FromNode::GpuStates(states.into()));
    harness.apply(vec![platform("h100", &HALVES)]);
    assert_eq!(standings(&harness), [CarveStatus::Unfit]);
    harness.apply(vec![platform("h100", &["4g.40gb"])]);
    let offered = "only 1g.10gb, 2g.20gb, 3g.40gb".into();
    assert_eq!(standings(&harness), [CarveStatus::NotOffered(offered)]);
    harness.apply(vec![asking_for("h100", None)]);
    assert!(standings(&harness).is_empty(), "GPUs stay as they are");
}

#[test]
fn two_platforms_that_want_different_slices_get_none() {
    let mut harness = cluster_of(1);
    let both = vec![platform("h100", &HALVES), platform("small", &["1g.10gb"])];
    let effects = harness.apply(both);
    assert!(effects.orders.is_empty());
    let said = standings(&harness)[0].to_string();
    assert!(
        said.contains("`h100` and `small` ask for different slices"),
        "{said}"
    );
}

#[test]
fn an_order_is_repeated_after_a_restart_in_the_middle_and_nothing_is_granted_meanwhile() {
    let mut harness = cluster_of(1);
    harness.apply(vec![platform("h100", &HALVES)]);
    harness.restart(harness.log.len());
    let effects = harness.hello(host(1));
    assert_eq!(effects.orders, [IN_HALVES]);
    harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(harness.state("a"), StepState::Queued);
    harness.gone("n");
    let mut cut_host = host(1);
    cut_host.inventory = cut(&cut_host.inventory, 0, &HALVES);
    let effects = harness.hello(cut_host);
    assert_eq!(effects.orders, [IN_HALVES], "only its result ends it");
    harness.say("n", outcome("GPU-n-0", CarveOutcome::Done));
    let stale = harness.say("n", failed(CarveFailure::TimedOut, true));
    assert!(stale.records.is_empty(), "nobody waits for it");
}

#[test]
fn a_failure_is_told_and_tried_again_after_pauses_that_double() {
    let mut harness = cluster_of(1);
    harness
        .submit("a", of_slices(spec(0, 1), "3g.40gb", 1))
        .unwrap();
    harness.apply(vec![platform("h100", &HALVES)]);
    for minutes in [10, 20, 40] {
        let effects = harness.say("n", failed(CarveFailure::NoRoom, true));
        assert_eq!(effects.types(), ["gpu_not_carved"]);
        let retry_at = harness.now + Span::from_secs(minutes * 60);
        let timer = (TimerKey::Carving("default".parse().unwrap()), retry_at);
        assert!(effects.timers.contains(&timer), "{:?}", effects.timers);
        let said = standings(&harness)[0].to_string();
        assert!(said.contains("do not fit on one GPU together"), "{said}");
        // The GPU is granted again meanwhile.
        let id = format!("step-{minutes}");
        harness.submit(&id, spec(1, 1)).unwrap();
        assert_eq!(harness.placed(&id).1, ["GPU-n-0"]);
        harness.run(&format!("{id}.1"));
        harness.status("n", &format!("{id}.1"), released(Exit::Code(0)));
        assert!(!standings(&harness).contains(&CarveStatus::Carving));
        harness.pass(minutes * 60);
        let effects = harness.hello(host(1));
        assert_eq!(effects.orders, [IN_HALVES], "after {minutes} minutes");
    }
    harness.say("n", failed(CarveFailure::NoRoom, true));
    let effects = harness.apply(vec![platform("h100", &["3g.40gb"])]);
    assert_eq!(
        effects.orders,
        ["carve GPU-n-0 into 1 x 3g.40gb from a whole GPU"],
        "another layout"
    );
    harness.say("n", failed(CarveFailure::NeedsReset, true));
    let gpu = String::from("0");
    let effects = harness.change("n", NodeChange::UncordonGpu { gpu });
    assert!(
        effects.orders[0].starts_with("carve GPU-n-0"),
        "an admin asks for it"
    );
}

#[test]
fn a_result_that_the_driver_does_not_show_is_a_failure() {
    let mut harness = cluster_of(1);
    harness.apply(vec![platform("h100", &HALVES)]);
    harness.say("n", seen(cut(&host(1).inventory, 0, &["3g.40gb"])));
    let effects = harness.say("n", outcome("GPU-n-0", CarveOutcome::Done));
    assert_eq!(effects.types(), ["gpu_not_carved"]);
    let said = standings(&harness)[0].to_string();
    assert!(
        said.contains("the driver shows 1 x 3g.40gb afterwards"),
        "{said}"
    );
}

#[test]
fn a_cut_gpu_is_recut_for_another_layout_when_all_its_slices_are_idle() {
    let mut harness = Harness::new();
    let mut by_hand = host(1);
    by_hand.inventory = cut(&by_hand.inventory, 0, &["2g.20gb", "3g.40gb"]);
    harness.hello(by_hand.clone());
    harness
        .submit("a", of_slices(spec(0, 1000), "2g.20gb", 1))
        .unwrap();
    harness.run("a.1");
    let effects = harness.apply(vec![platform("h100", &["3g.40gb", "2g.20gb"])]);
    assert!(
        effects.orders.is_empty(),
        "the same slices in another order"
    );
    assert!(standings(&harness).is_empty());
    harness.apply(vec![platform("h100", &HALVES)]);
    assert_eq!(standings(&harness), [CarveStatus::InUse(step("a"))]);
    let effects = harness.status("n", "a.1", released(Exit::Code(0)));
    let order = "carve GPU-n-0 into 2 x 3g.40gb from 1 x 2g.20gb + 1 x 3g.40gb";
    assert!(
        effects.orders.contains(&order.into()),
        "{:?}",
        effects.orders
    );

    let mut harness = Harness::new();
    by_hand.inventory.carves_gpus = true;
    harness.hello(by_hand);
    harness.apply(vec![asking_for("h100", None)]);
    let effects = harness.apply(vec![platform("h100", &[])]);
    let order = "carve GPU-n-0 into a whole GPU from 1 x 2g.20gb + 1 x 3g.40gb";
    assert_eq!(effects.orders, [order]);

    let mut empty = host(1);
    empty.inventory = cut(&empty.inventory, 0, &[]);
    let mut harness = Harness::new();
    harness.apply(vec![platform("h100", &HALVES)]);
    let effects = harness.hello(empty);
    assert_eq!(
        effects.orders,
        ["carve GPU-n-0 into 2 x 3g.40gb from no slices"]
    );
}

#[test]
fn a_dry_run_tells_what_will_be_cut_and_cuts_nothing() {
    let mut harness = cluster_of(3);
    harness.submit("a", spec(1, 1000)).unwrap();
    harness.run("a.1");
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(3),
        changes: vec![TermsChange {
            desired: platform("h100", &HALVES),
            version: None,
        }],
        force: false,
        dry_run: true,
    });
    assert!(effects.orders.is_empty() && effects.records.is_empty());
    let [Answer::Applied(Ok(applied))] = &effects.answers[..] else {
        panic!("{:?}", effects.answers)
    };
    let plans = applied.carvings.iter();
    let plans: Vec<&str> = plans.map(|plan| plan.message.as_str()).collect();
    assert_eq!(
        plans,
        [
            "2 of 3 GPUs are idle and will be cut into 2 x 3g.40gb; 1 of 3 GPUs is in use and will be cut when their steps \
          have ended"
        ]
    );
    assert!(standings(&harness).is_empty());
}

#[test]
fn a_log_of_a_carving_is_read_as_it_is_written() {
    let text = r#"{"type":"gpu_carving","node":"n","gpu":"GPU-n-0","layout":{"slices":["3g.40gb"]},"before":"whole"}"#;
    let record: Record = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&record).unwrap(), text);
    let text = r#"{"type":"gpu_not_carved","node":"n","gpu":"GPU-n-0","why":"no_room","is_restored":true,"retry_at":7}"#;
    let record: Record = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&record).unwrap(), text);
}
