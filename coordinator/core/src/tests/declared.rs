//! Tests of platforms that pools declare: which GPUs belong to each, what steps get, and what is refused or waits.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use sluice_common::pool::PoolSpec;

use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::platform::spec::{PlatformSpec, UnmatchedPlatform};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::wire::FromNode;

use super::harness::*;
use crate::input::DesiredPool;
use crate::input::{Desired, NodeChange};
use crate::output::{Answer, Applied, Refusal, Refused};

/// Makes a host with two A100 of 40 GB before two of 80 GB and an L4.
fn mixed() -> Harness {
    let mut harness = Harness::new();
    let mut hello = hello("n", 5, 8);
    for gpu in &mut hello.inventory.gpus {
        let (platform, gib) = match gpu.index {
            0 | 1 => ("a100", 40),
            2 | 3 => ("a100", 80),
            _ => ("l4", 24),
        };
        gpu.platform = platform.into();
        gpu.memory_bytes = gib << 30;
    }
    harness.hello(hello);
    harness
}

fn platform(name: &str, selector: &str) -> Desired {
    let terms = PlatformSpec {
        selector: serde_json::from_str(selector).unwrap(),
        ..PlatformSpec::default()
    };
    Desired::Platform {
        pool: "default".parse().unwrap(),
        platform: name.parse().unwrap(),
        terms: terms.into(),
    }
}

fn no_platform(name: &str) -> Desired {
    Desired::NoPlatform {
        pool: "default".parse().unwrap(),
        platform: name.parse().unwrap(),
    }
}

fn large() -> Desired {
    platform("a100-80", r#"{"gpu_model":"a100","gpu_memory":">=80GB"}"#)
}

fn pool(default: Option<&str>, unmatched_platform: UnmatchedPlatform) -> Desired {
    let rules = PoolSpec {
        default_platform: default.map(|name| name.parse().unwrap()),
        unmatched_platform,
        ..PoolSpec::default()
    };
    Desired::Pool {
        pool: "default".parse().unwrap(),
        terms: Box::new(DesiredPool::from(rules)),
    }
}

fn on(gpus: u64, platform: &str) -> StepSpec {
    StepSpec {
        platform: Some(platform.into()),
        ..spec(gpus, 0)
    }
}

fn apply(harness: &mut Harness, wanted: Vec<Desired>) -> Result<Applied, Refused> {
    match &harness.apply(wanted).answers[..] {
        [Answer::Applied(applied)] => applied.clone(),
        other => panic!("{other:?}"),
    }
}

fn label(harness: &mut Harness, value: Option<&str>) {
    let key = LabelKey::new("disk").unwrap();
    let value = value.map(|value| LabelValue::new(value).unwrap());
    harness.change("n", NodeChange::Label([(key, value)].into()));
}

fn refusal(harness: &mut Harness, desired: Desired) -> Refusal {
    apply(harness, vec![desired]).unwrap_err().refusal
}

#[test]
fn who_takes_a_wide_platform_leaves_to_others_what_only_they_can_use() {
    let mut harness = mixed();
    apply(&mut harness, vec![large()]).unwrap();
    harness.submit("wide", on(1, "a100")).unwrap();
    assert_eq!(
        harness.placed("wide").1,
        ["GPU-n-0"],
        "the plain ones go first"
    );
    harness.submit("narrow", on(1, "a100-80")).unwrap();
    assert_eq!(harness.placed("narrow").1, ["GPU-n-2"]);
    harness.submit("two", on(2, "a100")).unwrap();
    assert_eq!(
        harness.placed("two").1,
        ["GPU-n-1", "GPU-n-3"],
        "of both kinds"
    );
    harness.submit("more", on(1, "a100-80")).unwrap();
    assert_eq!(harness.state("more"), StepState::Queued);
    harness.submit("any", on(1, "any")).unwrap();
    assert_eq!(harness.placed("any").1, ["GPU-n-4"]);
}

#[test]
fn what_is_promised_of_a_narrow_platform_is_not_given_to_who_asks_for_a_wide_one() {
    let mut harness = mixed();
    apply(&mut harness, vec![large()]).unwrap();
    let priority = 10;
    let policy = PolicySpec {
        priority,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", policy);
    harness.submit("holds", on(1, "a100-80")).unwrap();
    harness.run("holds.1");
    assert_eq!(harness.placed("holds").1, ["GPU-n-2"]);
    let vip = StepSpec {
        subject: "vip".parse().unwrap(),
        ..on(2, "a100-80")
    };
    harness.submit("vip", vip).unwrap();
    assert_eq!(harness.state("holds"), StepState::Stopping);
    // Three of a100 are free, and one of them is promised.
    harness.submit("three", on(3, "a100")).unwrap();
    assert_eq!(harness.state("three"), StepState::Queued);
    harness.submit("two", on(2, "a100")).unwrap();
    assert_eq!(harness.placed("two").1, ["GPU-n-0", "GPU-n-1"]);
    harness.status(
        "n",
        "holds.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    assert_eq!(harness.placed("vip").1, ["GPU-n-2", "GPU-n-3"]);
}

#[test]
fn a_change_of_a_selector_sorts_hosts_anew_and_touches_nothing_that_runs() {
    let mut harness = mixed();
    apply(&mut harness, vec![large()]).unwrap();
    harness.submit("runs", on(2, "a100-80")).unwrap();
    harness.run("runs.1");
    let pending = StepSpec {
        allow_pending: true,
        ..on(1, "a100-80")
    };
    harness.submit("pends", pending).unwrap();
    harness.submit("waits", on(1, "a100-80")).unwrap();
    assert_eq!(harness.state("waits"), StepState::Queued);
    // The platform now means the small GPUs.
    let small = platform("a100-80", r#"{"gpu_model":"a100","gpu_memory":"<80GB"}"#);
    apply(&mut harness, vec![small]).unwrap();
    assert_eq!(harness.placed("pends").1, ["GPU-n-0"]);
    assert_eq!(harness.placed("waits").1, ["GPU-n-1"]);
    assert_eq!(harness.state("runs"), StepState::Running);
    harness.submit("last", on(1, "a100-80")).unwrap();
    // The platform now means no GPU: a step queued for it is rejected, unless it may be pending.
    let none = platform("a100-80", r#"{"gpu_memory":">=999GB"}"#);
    let applied = apply(&mut harness, vec![none]).unwrap();
    assert_eq!(applied.rejected, [step("last")]);
    let reason = harness.reason("last");
    assert_eq!(reason.code, ReasonCode::NoHostFits);
    assert_eq!(
        reason.message,
        "no host of pool `default` is of platform `a100-80`, whose selector matches none of them: ask for `a100`, `l4` or \
         `any`, or set `allow_pending: true` to wait for one"
    );
    assert_eq!(harness.state("runs"), StepState::Running);
}

#[test]
fn labels_and_facts_sort_hosts_whenever_they_change() {
    let mut harness = mixed();
    apply(
        &mut harness,
        vec![
            platform("fast", r#"{"labels":"disk=nvme","gpu_model":"l4"}"#),
            pool(None, UnmatchedPlatform::Wait),
        ],
    )
    .unwrap();
    harness.submit("waits", on(1, "fast")).unwrap();
    assert_eq!(harness.state("waits"), StepState::Queued);
    label(&mut harness, Some("nvme"));
    assert_eq!(harness.placed("waits").1, ["GPU-n-4"]);
    label(&mut harness, None);
    harness.submit("again", on(1, "fast")).unwrap();
    assert_eq!(harness.state("again"), StepState::Queued);
    // A new driver comes with a new inventory.
    apply(
        &mut harness,
        vec![platform("fast", r#"{"driver":">=570"}"#)],
    )
    .unwrap();
    let mut inventory = harness
        .core
        .state()
        .node(&node("n"))
        .unwrap()
        .inventory
        .clone();
    inventory.driver = Some("580.65".into());
    harness.say("n", FromNode::Inventory(inventory.into()));
    assert_eq!(harness.placed("again").1, ["GPU-n-0"]);
}

#[test]
fn a_platform_that_nobody_matches_is_waited_for_or_refused_as_its_pool_says() {
    let mut harness = mixed();
    let none = || platform("h200", r#"{"gpu_model":"h200"}"#);
    apply(&mut harness, vec![none()]).unwrap();
    harness.submit("no", on(2, "h200")).unwrap();
    assert_eq!(harness.code("no"), ReasonCode::NoHostFits);
    apply(&mut harness, vec![pool(None, UnmatchedPlatform::Wait)]).unwrap();
    harness.submit("yes", on(2, "h200")).unwrap();
    assert_eq!(harness.state("yes"), StepState::Queued);
    let why = harness.reason("yes").message;
    assert!(
        why.contains("of platform `h200`, whose selector matches none"),
        "{why}"
    );
    // No pool declares this platform.
    harness.submit("typo", on(1, "h20")).unwrap();
    assert_eq!(harness.state("typo"), StepState::Rejected);
    let mut other = hello("h", 2, 8);
    other
        .inventory
        .gpus
        .iter_mut()
        .for_each(|gpu| gpu.platform = "h200".into());
    harness.hello(other);
    assert_eq!(harness.placed("yes").0, "h");
}

#[test]
fn who_names_no_platform_takes_the_default_of_its_pool() {
    let mut harness = mixed();
    let wait = UnmatchedPlatform::Reject;
    let refused = refusal(&mut harness, pool(Some("l40"), wait));
    assert_eq!(
        refused.to_string(),
        "pool `default` has no platform `l40`, which is to be its default: declare it with `kind: platform`, or name one \
         of `a100`, `l4`"
    );
    apply(&mut harness, vec![pool(Some("l4"), wait)]).unwrap();
    harness.submit("one", spec(1, 0)).unwrap();
    assert_eq!(harness.placed("one").1, ["GPU-n-4"]);
    harness.submit("waits", spec(1, 0)).unwrap();
    assert_eq!(harness.state("waits"), StepState::Queued);
    harness.submit("any", on(1, "any")).unwrap();
    assert_eq!(harness.placed("any").1, ["GPU-n-0"]);
    // A default may be set together with its platform, and the platform cannot be deleted under it.
    apply(&mut harness, vec![large(), pool(Some("a100-80"), wait)]).unwrap();
    assert_eq!(harness.placed("waits").1, ["GPU-n-2"]);
    let refused = refusal(&mut harness, no_platform("a100-80"));
    assert!(
        matches!(refused, Refusal::UnknownPlatform { named: true, .. }),
        "{refused}"
    );
    apply(
        &mut harness,
        vec![no_platform("a100-80"), pool(Some("any"), wait)],
    )
    .unwrap();
    harness.submit("free", spec(1, 0)).unwrap();
    assert_eq!(harness.state("free"), StepState::Allocated);
}

#[test]
fn a_pool_may_list_all_its_platforms_and_says_so_once() {
    let mut harness = mixed();
    let list = |names: &[&str]| {
        let Desired::Platform { terms, .. } = large() else {
            unreachable!()
        };
        let declared = names
            .iter()
            .map(|name| (name.parse().unwrap(), (*terms).clone()));
        Desired::Pool {
            pool: "default".parse().unwrap(),
            terms: Box::new(DesiredPool {
                platforms: Some(declared.collect()),
                ..DesiredPool::default()
            }),
        }
    };
    apply(&mut harness, vec![list(&["x", "y"])]).unwrap();
    let version = harness.core.state().seq();
    let again = apply(&mut harness, vec![list(&["x", "y"])]).unwrap();
    assert!(!again.outcomes[0].is_change());
    // A change without a list of platforms keeps them.
    let other = apply(&mut harness, vec![pool(None, UnmatchedPlatform::Reject)]).unwrap();
    assert!(!other.outcomes[0].is_change());
    assert_eq!(harness.core.state().seq(), version);
    let changed = apply(&mut harness, vec![list(&["x"])]).unwrap();
    assert!(changed.outcomes[0].is_change());
    let known = &harness.core.state().pools()[&"default".parse().unwrap()].platforms;
    assert_eq!(
        known.keys().map(ToString::to_string).collect::<Vec<_>>(),
        ["x"]
    );
    let twice = apply(&mut harness, vec![list(&["x"]), large()]).unwrap_err();
    assert!(
        matches!(twice.refusal, Refusal::Twice { first: 0, .. }),
        "{}",
        twice.refusal
    );
    let reserved = refusal(&mut harness, platform("any", "{}"));
    assert!(
        matches!(reserved, Refusal::ReservedPlatform { .. }),
        "{reserved}"
    );
    let unknown = refusal(&mut harness, no_platform("z"));
    assert_eq!(
        unknown.to_string(),
        "pool `default` has no platform `z`: it declares `x`"
    );
    harness.restart(3);
    assert_eq!(
        harness.core.state().index(),
        &harness.core.state().rebuilt_index()
    );
}
