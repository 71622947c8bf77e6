//! Platforms that pools declare: which GPUs are of which, whom a step is given, what is refused and what waits.

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

use super::rig::*;
use crate::input::WantedPool;
use crate::input::{NodeChange, Wanted};
use crate::output::{Answer, Applied, Refusal, Refused};

/// A host with two A100 of 40 GB before two of 80 GB and an L4.
fn mixed() -> Rig {
    let mut rig = Rig::new();
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
    rig.hello(hello);
    rig
}

fn platform(name: &str, selector: &str) -> Wanted {
    let terms = PlatformSpec {
        selector: serde_json::from_str(selector).unwrap(),
        ..PlatformSpec::default()
    };
    Wanted::Platform {
        pool: "default".parse().unwrap(),
        platform: name.parse().unwrap(),
        terms: terms.into(),
    }
}

fn no_platform(name: &str) -> Wanted {
    Wanted::NoPlatform {
        pool: "default".parse().unwrap(),
        platform: name.parse().unwrap(),
    }
}

fn large() -> Wanted {
    platform("a100-80", r#"{"gpu_model":"a100","gpu_memory":">=80GB"}"#)
}

fn pool(default: Option<&str>, unmatched_platform: UnmatchedPlatform) -> Wanted {
    let rules = PoolSpec {
        default_platform: default.map(|name| name.parse().unwrap()),
        unmatched_platform,
        ..PoolSpec::default()
    };
    Wanted::Pool {
        pool: "default".parse().unwrap(),
        terms: Box::new(WantedPool::from(rules)),
    }
}

fn on(gpus: u64, platform: &str) -> StepSpec {
    StepSpec {
        platform: Some(platform.into()),
        ..spec(gpus, 0)
    }
}

fn apply(rig: &mut Rig, wanted: Vec<Wanted>) -> Result<Applied, Refused> {
    match &rig.apply(wanted).answers[..] {
        [Answer::Applied(applied)] => applied.clone(),
        other => panic!("{other:?}"),
    }
}

fn label(rig: &mut Rig, value: Option<&str>) {
    let key = LabelKey::new("disk").unwrap();
    let value = value.map(|value| LabelValue::new(value).unwrap());
    rig.change("n", NodeChange::Label([(key, value)].into()));
}

fn refusal(rig: &mut Rig, wanted: Wanted) -> Refusal {
    apply(rig, vec![wanted]).unwrap_err().refusal
}

#[test]
fn who_takes_a_wide_platform_leaves_to_others_what_only_they_can_use() {
    let mut rig = mixed();
    apply(&mut rig, vec![large()]).unwrap();
    rig.submit("wide", on(1, "a100")).unwrap();
    assert_eq!(rig.placed("wide").1, ["GPU-n-0"], "the plain ones go first");
    rig.submit("narrow", on(1, "a100-80")).unwrap();
    assert_eq!(rig.placed("narrow").1, ["GPU-n-2"]);
    rig.submit("two", on(2, "a100")).unwrap();
    assert_eq!(rig.placed("two").1, ["GPU-n-1", "GPU-n-3"], "of both kinds");
    rig.submit("more", on(1, "a100-80")).unwrap();
    assert_eq!(rig.state("more"), StepState::Queued);
    rig.submit("any", on(1, "any")).unwrap();
    assert_eq!(rig.placed("any").1, ["GPU-n-4"]);
}

#[test]
fn what_is_promised_of_a_narrow_platform_is_not_given_to_who_asks_for_a_wide_one() {
    let mut rig = mixed();
    apply(&mut rig, vec![large()]).unwrap();
    let priority = 10;
    let policy = PolicySpec {
        priority,
        ..PolicySpec::default()
    };
    rig.put_policy("default", "vip", policy);
    rig.submit("holds", on(1, "a100-80")).unwrap();
    rig.run("holds.1");
    assert_eq!(rig.placed("holds").1, ["GPU-n-2"]);
    let vip = StepSpec {
        subject: "vip".parse().unwrap(),
        ..on(2, "a100-80")
    };
    rig.submit("vip", vip).unwrap();
    assert_eq!(rig.state("holds"), StepState::Stopping);
    // Of a100 three are free, and one of them is promised.
    rig.submit("three", on(3, "a100")).unwrap();
    assert_eq!(rig.state("three"), StepState::Queued);
    rig.submit("two", on(2, "a100")).unwrap();
    assert_eq!(rig.placed("two").1, ["GPU-n-0", "GPU-n-1"]);
    rig.status(
        "n",
        "holds.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    assert_eq!(rig.placed("vip").1, ["GPU-n-2", "GPU-n-3"]);
}

#[test]
fn a_change_of_a_selector_sorts_hosts_anew_and_touches_nothing_that_runs() {
    let mut rig = mixed();
    apply(&mut rig, vec![large()]).unwrap();
    rig.submit("runs", on(2, "a100-80")).unwrap();
    rig.run("runs.1");
    let pending = StepSpec {
        allow_pending: true,
        ..on(1, "a100-80")
    };
    rig.submit("pends", pending).unwrap();
    rig.submit("waits", on(1, "a100-80")).unwrap();
    assert_eq!(rig.state("waits"), StepState::Queued);
    // It means the small ones now.
    let small = platform("a100-80", r#"{"gpu_model":"a100","gpu_memory":"<80GB"}"#);
    apply(&mut rig, vec![small]).unwrap();
    assert_eq!(rig.placed("pends").1, ["GPU-n-0"]);
    assert_eq!(rig.placed("waits").1, ["GPU-n-1"]);
    assert_eq!(rig.state("runs"), StepState::Running);
    rig.submit("last", on(1, "a100-80")).unwrap();
    // It means nothing now: what waits for it is rejected, unless it may pend.
    let none = platform("a100-80", r#"{"gpu_memory":">=999GB"}"#);
    let applied = apply(&mut rig, vec![none]).unwrap();
    assert_eq!(applied.rejected, [step("last")]);
    let reason = rig.reason("last");
    assert_eq!(reason.code, ReasonCode::NoHostFits);
    assert_eq!(
        reason.message,
        "no host of pool `default` is of platform `a100-80`, whose selector means none of them: ask for `a100`, `l4` or \
         `any`, or say `allow_pending: true` to wait for one"
    );
    assert_eq!(rig.state("runs"), StepState::Running);
}

#[test]
fn labels_and_facts_sort_hosts_whenever_they_change() {
    let mut rig = mixed();
    apply(
        &mut rig,
        vec![
            platform("fast", r#"{"labels":"disk=nvme","gpu_model":"l4"}"#),
            pool(None, UnmatchedPlatform::Wait),
        ],
    )
    .unwrap();
    rig.submit("waits", on(1, "fast")).unwrap();
    assert_eq!(rig.state("waits"), StepState::Queued);
    label(&mut rig, Some("nvme"));
    assert_eq!(rig.placed("waits").1, ["GPU-n-4"]);
    label(&mut rig, None);
    rig.submit("again", on(1, "fast")).unwrap();
    assert_eq!(rig.state("again"), StepState::Queued);
    // A new driver comes with a new inventory.
    apply(&mut rig, vec![platform("fast", r#"{"driver":">=570"}"#)]).unwrap();
    let mut inventory = rig.core.state().node(&node("n")).unwrap().inventory.clone();
    inventory.driver = Some("580.65".into());
    rig.say("n", FromNode::Inventory(inventory.into()));
    assert_eq!(rig.placed("again").1, ["GPU-n-0"]);
}

#[test]
fn a_platform_that_nobody_matches_is_waited_for_or_refused_as_its_pool_says() {
    let mut rig = mixed();
    let none = || platform("h200", r#"{"gpu_model":"h200"}"#);
    apply(&mut rig, vec![none()]).unwrap();
    rig.submit("no", on(2, "h200")).unwrap();
    assert_eq!(rig.code("no"), ReasonCode::NoHostFits);
    apply(&mut rig, vec![pool(None, UnmatchedPlatform::Wait)]).unwrap();
    rig.submit("yes", on(2, "h200")).unwrap();
    assert_eq!(rig.state("yes"), StepState::Queued);
    let why = rig.reason("yes").message;
    assert!(
        why.contains("of platform `h200`, whose selector means none"),
        "{why}"
    );
    // Nobody declares this one.
    rig.submit("typo", on(1, "h20")).unwrap();
    assert_eq!(rig.state("typo"), StepState::Rejected);
    let mut other = hello("h", 2, 8);
    other
        .inventory
        .gpus
        .iter_mut()
        .for_each(|gpu| gpu.platform = "h200".into());
    rig.hello(other);
    assert_eq!(rig.placed("yes").0, "h");
}

#[test]
fn who_names_no_platform_takes_the_default_of_its_pool() {
    let mut rig = mixed();
    let wait = UnmatchedPlatform::Reject;
    let refused = refusal(&mut rig, pool(Some("l40"), wait));
    assert_eq!(
        refused.to_string(),
        "pool `default` has no platform `l40`, which is to be its default: declare it with `kind: platform`, or name one \
         of `a100`, `l4`"
    );
    apply(&mut rig, vec![pool(Some("l4"), wait)]).unwrap();
    rig.submit("one", spec(1, 0)).unwrap();
    assert_eq!(rig.placed("one").1, ["GPU-n-4"]);
    rig.submit("waits", spec(1, 0)).unwrap();
    assert_eq!(rig.state("waits"), StepState::Queued);
    rig.submit("any", on(1, "any")).unwrap();
    assert_eq!(rig.placed("any").1, ["GPU-n-0"]);
    // Together with the platform it may be named at once, and it is not taken away from under it.
    apply(&mut rig, vec![large(), pool(Some("a100-80"), wait)]).unwrap();
    assert_eq!(rig.placed("waits").1, ["GPU-n-2"]);
    let refused = refusal(&mut rig, no_platform("a100-80"));
    assert!(
        matches!(refused, Refusal::UnknownPlatform { named: true, .. }),
        "{refused}"
    );
    apply(
        &mut rig,
        vec![no_platform("a100-80"), pool(Some("any"), wait)],
    )
    .unwrap();
    rig.submit("free", spec(1, 0)).unwrap();
    assert_eq!(rig.state("free"), StepState::Allocated);
}

#[test]
fn a_pool_may_list_all_its_platforms_and_says_so_once() {
    let mut rig = mixed();
    let list = |names: &[&str]| {
        let Wanted::Platform { terms, .. } = large() else {
            unreachable!()
        };
        let declared = names
            .iter()
            .map(|name| (name.parse().unwrap(), (*terms).clone()));
        Wanted::Pool {
            pool: "default".parse().unwrap(),
            terms: Box::new(WantedPool {
                platforms: Some(declared.collect()),
                ..WantedPool::default()
            }),
        }
    };
    apply(&mut rig, vec![list(&["x", "y"])]).unwrap();
    let version = rig.core.state().seq();
    let again = apply(&mut rig, vec![list(&["x", "y"])]).unwrap();
    assert!(!again.outcomes[0].is_change());
    // One that says nothing of them leaves them.
    let other = apply(&mut rig, vec![pool(None, UnmatchedPlatform::Reject)]).unwrap();
    assert!(!other.outcomes[0].is_change());
    assert_eq!(rig.core.state().seq(), version);
    let changed = apply(&mut rig, vec![list(&["x"])]).unwrap();
    assert!(changed.outcomes[0].is_change());
    let known = &rig.core.state().pools()[&"default".parse().unwrap()].platforms;
    assert_eq!(
        known.keys().map(ToString::to_string).collect::<Vec<_>>(),
        ["x"]
    );
    let twice = apply(&mut rig, vec![list(&["x"]), large()]).unwrap_err();
    assert!(
        matches!(twice.refusal, Refusal::Twice { first: 0, .. }),
        "{}",
        twice.refusal
    );
    let reserved = refusal(&mut rig, platform("any", "{}"));
    assert!(
        matches!(reserved, Refusal::ReservedPlatform { .. }),
        "{reserved}"
    );
    let unknown = refusal(&mut rig, no_platform("z"));
    assert_eq!(
        unknown.to_string(),
        "pool `default` has no platform `z`: it declares `x`"
    );
    rig.restart(3);
    assert_eq!(rig.core.state().index(), &rig.core.state().rebuilt_index());
}
