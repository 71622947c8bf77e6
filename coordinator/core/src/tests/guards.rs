//! Tests of hosts of several platforms: what one of them forbids is forbidden to every step there, whichever platform
//! it names.

use alloc::boxed::Box;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::supervision::Exit;
use sluice_common::wire::FromNode;

use super::harness::*;
use super::overrides::{applied, asks, named, platform, pool};
use crate::Desired;

const SHUT: &str = r#"{"selector":{"gpu_model":"a100"},"override":{"privileged_allowed":false}}"#;
const OPEN: &str = r#"{"selector":{"gpu_model":"l40s"},"override":{"privileged_allowed":true}}"#;
const OF_POOL: &str = r#"{"wrapper":["run","{{privileged}}","{{mounts}}"],"privileged_argument":"-p",
    "mount_argument":"-v={{source}}","allowed_mounts":[{"name":"data","source":"/data"}]"#;

/// Makes hosts by name, each with the models of its GPUs.
fn hosts(named: &[(&str, &[&str])]) -> Harness {
    let mut harness = Harness::new();
    harness.start();
    for (name, models) in named {
        harness.hello(host(name, models));
    }
    harness.put_policy("default", "s", PolicySpec::default());
    harness
}

fn host(name: &str, models: &[&str]) -> sluice_common::wire::Hello {
    let mut hello = hello(name, models.len() as u32, 64);
    for (gpu, model) in hello.inventory.gpus.iter_mut().zip(models) {
        gpu.platform = (*model).into();
    }
    hello
}

/// Sets the pool's template, with other fields beside its wrapper, and its platforms.
fn ruled(harness: &mut Harness, fields: &str, platforms: &[(&str, &str)]) {
    let template = Desired::Template {
        template: "base".parse().unwrap(),
        terms: Box::new(serde_json::from_str(&format!("{OF_POOL}{fields}}}")).unwrap()),
    };
    applied(harness, vec![template, pool(None, &[])]).unwrap();
    let platforms = platforms.iter().map(|(name, json)| platform(name, json));
    applied(harness, platforms.collect::<Vec<_>>()).unwrap();
}

const ALLOWED: &str = r#","privileged_allowed":true"#;

fn privileged(gpus: u64, platform: &str) -> String {
    format!(r#"{},"privileged":true"#, named(gpus, platform))
}

#[test]
fn a_step_that_names_one_platform_does_not_what_another_of_the_host_forbids() {
    let mut harness = hosts(&[("mixed", &["a100", "l40s"]), ("own", &["l40s"])]);
    ruled(&mut harness, ALLOWED, &[("a100", SHUT), ("l40s", OPEN)]);
    harness
        .submit("first", asks(&privileged(1, "l40s")))
        .unwrap();
    harness
        .submit("next", asks(&privileged(1, "l40s")))
        .unwrap();
    assert_eq!(harness.placed("first").0, "own");
    assert_eq!(harness.step("next").state, StepState::Queued);
    let reason = harness.reason("next");
    assert_eq!(reason.code, ReasonCode::WaitingForUnits);
    let expected = "`mixed` is large enough but does not admit it, because its platform `a100` does not allow `privileged`";
    assert!(reason.message.contains(expected), "{}", reason.message);
    harness.submit("plain", asks(&named(1, "l40s"))).unwrap();
    assert_eq!(harness.placed("plain").0, "mixed");
    harness.status("own", "first.1", released(Exit::Code(0)));
    assert_eq!(harness.placed("next").0, "own");
}

#[test]
fn nobody_is_stopped_on_a_host_that_does_not_let_the_waiter_in() {
    let mut harness = hosts(&[("mixed", &["a100", "l40s"]), ("own", &["l40s"])]);
    ruled(&mut harness, ALLOWED, &[("a100", SHUT), ("l40s", OPEN)]);
    let vip = PolicySpec {
        priority: 9,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", vip);
    let of_vip = |fields: String| {
        let mut spec = asks(&fields);
        spec.subject = "vip".parse().unwrap();
        spec
    };
    harness.submit("x", of_vip(privileged(1, "l40s"))).unwrap();
    harness.submit("y", asks(&named(1, "l40s"))).unwrap();
    harness.submit("z", of_vip(privileged(1, "l40s"))).unwrap();
    assert_eq!(harness.placed("y").0, "mixed");
    assert_eq!(harness.step("y").latest().unwrap().stopping, None);
    assert_eq!(harness.step("z").state, StepState::Queued);
}

#[test]
fn where_only_such_hosts_are_it_is_rejected_or_waits_until_one_lets_it() {
    let mut harness = hosts(&[("mixed", &["a100", "l40s"])]);
    ruled(&mut harness, ALLOWED, &[("a100", SHUT), ("l40s", OPEN)]);
    harness
        .submit("never", asks(&privileged(1, "l40s")))
        .unwrap();
    assert_eq!(harness.step("never").state, StepState::Rejected);
    let reason = harness.reason("never");
    assert_eq!(reason.code, ReasonCode::NoHostFits);
    let expected = "`mixed` is large enough but does not admit it, because its platform `a100` does not allow `privileged`";
    assert!(reason.message.contains(expected), "{}", reason.message);
    let pends = format!(r#"{},"allow_pending":true"#, privileged(1, "l40s"));
    harness.submit("pends", asks(&pends)).unwrap();
    assert_eq!(harness.step("pends").state, StepState::Queued);
    harness.restart(0);
    harness.hello(host("mixed", &["a100", "l40s"]));
    assert_eq!(harness.step("pends").state, StepState::Queued);
    // The step keeps the rules of its submit, and hosts are judged as they are.
    let inventory = host("mixed", &["l40s", "l40s"]).inventory;
    harness.say("mixed", FromNode::Inventory(Box::new(inventory)));
    assert_eq!(harness.placed("pends").0, "mixed");
}

#[test]
fn a_place_that_is_promised_is_given_up_if_its_host_comes_to_forbid_the_step() {
    let mut harness = hosts(&[("one", &["l40s"]), ("two", &["l40s"])]);
    ruled(&mut harness, ALLOWED, &[("a100", SHUT), ("l40s", OPEN)]);
    harness.put_policy("default", "low", PolicySpec::default());
    let other = |fields: String| {
        let mut spec = asks(&fields);
        spec.subject = "low".parse().unwrap();
        spec
    };
    let vip = PolicySpec {
        priority: 9,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "s", vip);
    harness.submit("x", other(named(1, "l40s"))).unwrap();
    harness.submit("y", other(named(1, "l40s"))).unwrap();
    harness
        .submit("waits", asks(&privileged(1, "l40s")))
        .unwrap();
    let scheduler = harness.core.state().scheduler();
    let promised = scheduler.nomination(&step("waits")).unwrap().hosts[0].clone();
    let name = String::from(promised.as_str());
    let mixed = host(&name, &["l40s", "a100"]).inventory;
    harness.say(&name, FromNode::Inventory(Box::new(mixed)));
    let scheduler = harness.core.state().scheduler();
    let now = scheduler.nomination(&step("waits")).unwrap().hosts[0].clone();
    assert_ne!(now, promised);
}

#[test]
fn a_gang_takes_only_hosts_that_let_each_part_be() {
    let mut harness = hosts(&[
        ("a", &["l40s", "a100"]),
        ("b", &["l40s"]),
        ("c", &["l40s", "a100"]),
        ("d", &["l40s"]),
    ]);
    ruled(&mut harness, "", &[("a100", SHUT), ("l40s", OPEN)]);
    let gang = |nodes| format!(r#"{},"nodes":{nodes}"#, privileged(1, "l40s"));
    harness.submit("two", asks(&gang(2))).unwrap();
    let parts = &harness.step("two").attempts[0].parts;
    let on: Vec<&str> = parts.iter().map(|part| part.node.as_str()).collect();
    assert_eq!(on, ["b", "d"]);
    harness.submit("three", asks(&gang(3))).unwrap();
    assert_eq!(harness.reason("three").code, ReasonCode::NoHostFits);
}

#[test]
fn a_gpu_that_is_of_two_platforms_is_held_to_both() {
    let large = r#"{"selector":{"gpu_model":"a100","gpu_memory":">=1GB"},"override":{"privileged_allowed":true}}"#;
    let mut harness = hosts(&[("a", &["a100"])]);
    ruled(&mut harness, "", &[("large", large)]);
    harness
        .submit("lets", asks(&privileged(1, "large")))
        .unwrap();
    assert_eq!(harness.placed("lets").0, "a");
    applied(&mut harness, vec![platform("a100", SHUT)]).unwrap();
    harness
        .submit("shut", asks(&privileged(1, "large")))
        .unwrap();
    assert_eq!(harness.reason("shut").code, ReasonCode::NoHostFits);
    // A platform whose override does not concern privileges has no effect on them.
    let other = r#"{"selector":{"gpu_model":"a100"},"override":{"env":{"A":"b"}}}"#;
    applied(&mut harness, vec![platform("a100", other)]).unwrap();
    harness
        .submit("again", asks(&privileged(1, "large")))
        .unwrap();
    assert_eq!(harness.step("again").state, StepState::Queued);
}

#[test]
fn what_the_pool_forbids_holds_for_hardware_of_which_no_platform_allows_it() {
    let mut harness = hosts(&[("mixed", &["a100", "l40s"]), ("own", &["l40s"])]);
    ruled(&mut harness, "", &[("l40s", OPEN)]);
    harness.submit("one", asks(&privileged(1, "l40s"))).unwrap();
    harness.submit("two", asks(&privileged(1, "l40s"))).unwrap();
    assert_eq!(harness.placed("one").0, "own");
    let reason = harness.reason("two");
    let expected = "`mixed` is large enough but does not admit it, because pool `default` does not allow `privileged` on its platform `a100`";
    assert!(reason.message.contains(expected), "{}", reason.message);
}

#[test]
fn mounts_are_judged_by_every_platform_of_the_host() {
    let none = r#"{"selector":{"gpu_model":"a100"},"override":{"allowed_mounts":[]}}"#;
    let mut harness = hosts(&[("mixed", &["a100", "l40s"]), ("own", &["l40s"])]);
    ruled(&mut harness, "", &[("a100", none)]);
    let mount = format!(r#"{},"mounts":[{{"source":"/data/x"}}]"#, named(1, "l40s"));
    harness.submit("one", asks(&mount)).unwrap();
    harness.submit("two", asks(&mount)).unwrap();
    assert_eq!(harness.placed("one").0, "own");
    let reason = harness.reason("two");
    assert!(reason.message.contains("`mounts[0]`"), "{}", reason.message);
}

#[test]
fn another_default_of_the_pool_lets_nothing_be_that_its_platform_forbids() {
    let mut harness = hosts(&[("l", &["l40s"]), ("a", &["a100"])]);
    ruled(&mut harness, ALLOWED, &[("a100", SHUT), ("l40s", OPEN)]);
    applied(&mut harness, vec![pool(Some("l40s"), &[])]).unwrap();
    let fields = r#","privileged":true,"resources":{"gpu_count":1}"#;
    harness.submit("first", asks(fields)).unwrap();
    harness.submit("second", asks(fields)).unwrap();
    applied(&mut harness, vec![pool(Some("a100"), &[])]).unwrap();
    assert_eq!(harness.step("second").state, StepState::Queued);
    assert_eq!(harness.placed("first").0, "l");
}

#[test]
fn a_tainted_platform_takes_only_steps_that_name_it() {
    let mut harness = hosts(&[("kept", &["a100"]), ("open", &["l40s"])]);
    let taint = r#"{"selector":{"gpu_model":"a100"},"taint":true}"#;
    applied(&mut harness, vec![platform("a100", taint)]).unwrap();
    for step in ["first", "second"] {
        harness.submit(step, asks(&named(1, "any"))).unwrap();
    }
    assert_eq!(harness.placed("first").0, "open");
    assert_eq!(harness.step("second").state, StepState::Queued);
    let expected = "`kept` is large enough but does not admit it, because its platform `a100` takes only steps that name it: write `platform: a100`";
    let reason = harness.reason("second");
    assert!(reason.message.contains(expected), "{}", reason.message);
    harness
        .submit("none", asks(r#","resources":{"cpu_count":60}"#))
        .unwrap();
    harness
        .submit("more", asks(r#","resources":{"cpu_count":60}"#))
        .unwrap();
    assert_eq!(harness.placed("none").0, "open");
    assert_eq!(
        harness.step("more").state,
        StepState::Queued,
        "without GPUs too"
    );
    harness.submit("named", asks(&named(1, "a100"))).unwrap();
    assert_eq!(harness.placed("named").0, "kept");
}

#[test]
fn a_step_that_only_a_tainted_platform_could_hold_is_rejected_with_its_name() {
    let mut harness = hosts(&[("kept", &["a100", "a100"]), ("open", &["l40s"])]);
    let taint = r#"{"selector":{"gpu_model":"a100"},"taint":true}"#;
    applied(&mut harness, vec![platform("a100", taint)]).unwrap();
    harness.submit("wide", asks(&named(2, "any"))).unwrap();
    assert_eq!(harness.step("wide").state, StepState::Rejected);
    let reason = harness.reason("wide");
    assert_eq!(reason.code, ReasonCode::NoHostFits);
    assert!(
        reason.message.contains("write `platform: a100`"),
        "{}",
        reason.message
    );
}
