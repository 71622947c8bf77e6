//! Tests of hosts with whole GPUs and slices of GPUs: no step is granted both, or those that it did not ask for.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::ResourceKey;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, StopReason};

use super::harness::*;
use crate::StepAction;

/// A host with three whole H100, a slice of half of another, and two small slices.
fn mixed() -> Harness {
    let mut harness = Harness::new();
    add_mixed(&mut harness, "n");
    harness
}

fn add_mixed(harness: &mut Harness, name: &str) {
    let mut hello = hello(name, 6, 8);
    for gpu in &mut hello.inventory.gpus {
        gpu.platform = "h100".into();
        gpu.mig = match gpu.index {
            0..3 => None,
            3 => Some(slice_of("GPU-n", "3g.40gb")),
            _ => Some(slice_of("GPU-n", "1g.10gb")),
        };
    }
    harness.hello(hello);
}

fn slices(profile: &str, count: u64) -> StepSpec {
    of_slices(spec(0, 1000), profile, count)
}

fn on(platform: &str, spec: StepSpec) -> StepSpec {
    StepSpec {
        platform: Some(platform.into()),
        ..spec
    }
}

/// Rejects a step; returns the message.
fn rejection(spec: StepSpec) -> String {
    let mut harness = mixed();
    harness.submit("a", spec).unwrap();
    assert_eq!(harness.state("a"), StepState::Rejected);
    harness.reason("a").message
}

#[test]
fn whole_gpus_and_slices_are_never_granted_together() {
    let mut harness = mixed();
    harness.submit("three", spec(3, 1000)).unwrap();
    assert_eq!(harness.placed("three").1, ["GPU-n-0", "GPU-n-1", "GPU-n-2"]);
    harness.submit("half", slices("3g.40gb", 1)).unwrap();
    assert_eq!(harness.placed("half").1, ["GPU-n-3"]);
    harness.submit("small", slices("1g.10gb", 2)).unwrap();
    assert_eq!(harness.placed("small").1, ["GPU-n-4", "GPU-n-5"]);

    let mut harness = mixed();
    harness.submit("one", spec(1, 1000)).unwrap();
    harness.submit("more", spec(3, 1000)).unwrap();
    assert_eq!(harness.code("more"), ReasonCode::WaitingForUnits);
    harness.submit("slices", slices("1g.10gb", 1)).unwrap();
    assert_eq!(harness.placed("slices").1, ["GPU-n-4"], "behind the head");
    harness.submit("others", slices("1g.10gb", 2)).unwrap();
    assert_eq!(harness.code("others"), ReasonCode::WaitingForUnits);
    harness.run("one.1");
    harness.status("n", "one.1", released(Exit::Code(0)));
    assert_eq!(harness.placed("more").1, ["GPU-n-0", "GPU-n-1", "GPU-n-2"]);
}

#[test]
fn what_a_pool_has_no_gpu_for_is_rejected_with_what_there_is() {
    let six = rejection(spec(6, 1000));
    assert!(six.contains("asks for 6 gpu") && six.contains("3"), "{six}");
    let others = rejection(slices("2g.20gb", 1));
    assert_eq!(
        others,
        "pool `default` has no slice `2g.20gb`: it has 3 whole GPUs, 2 slices `1g.10gb`, 1 slice `3g.40gb`; ask for \
         whole ones with `--gpus 1`, or set `allow_pending: true` to wait"
    );
    let whole = rejection(on("h100-1g.10gb", spec(1, 1000)));
    assert_eq!(
        whole,
        "pool `default` has no whole GPU: it has 2 slices `1g.10gb`; ask for one with `--mig 1g.10gb`, or set \
         `allow_pending: true` to wait"
    );
}

#[test]
fn what_is_too_much_for_slices_is_told_by_their_number() {
    assert_eq!(
        rejection(slices("1g.10gb", 3)),
        "it asks for 3 slices `1g.10gb` (0.426 gpu), and pool `default` has 2"
    );
    let mut harness = mixed();
    add_mixed(&mut harness, "m");
    harness.submit("one-host", slices("1g.10gb", 3)).unwrap();
    assert_eq!(
        harness.reason("one-host").message,
        "no host of pool `default` could hold it even when empty: it asks for 3 slices `1g.10gb` (0.426 gpu), and `m`, \
         which comes closest, has 2"
    );
    let limit = [(ResourceKey::new("mgpu").unwrap(), 300)].into();
    let policy = PolicySpec {
        limit,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "s", policy);
    harness.submit("limited", slices("1g.10gb", 3)).unwrap();
    assert_eq!(
        harness.reason("limited").message,
        "it asks for 3 slices `1g.10gb` (0.426 gpu), and the limit of `s` in pool `default` is 0.3 gpu, enough for 2"
    );
    let firm = StepSpec {
        preemptible: false,
        ..slices("1g.10gb", 2)
    };
    harness.submit("firm", firm).unwrap();
    assert_eq!(
        harness.reason("firm").message,
        "it is not preemptible and asks for 2 slices `1g.10gb` (0.284 gpu), and `s` has 0 gpu reserved in pool \
         `default`, enough for none: ask for less, or make it preemptible"
    );
}

#[test]
fn slices_are_a_platform_by_themselves_and_their_model_means_them() {
    for platform in ["h100", "h100-3g.40gb", "any", "a100, h100"] {
        let mut harness = mixed();
        let spec = on(platform, slices("3g.40gb", 1));
        harness.submit("a", spec).unwrap();
        assert_eq!(harness.placed("a").1, ["GPU-n-3"], "{platform}");
        let node = harness.core.state().node(&node("n")).unwrap();
        let platforms = |gpu| harness.core.state().platforms_of(node, Some(gpu));
        let names =
            |gpu| -> Vec<&str> { platforms(gpu).into_iter().map(|it| it.as_str()).collect() };
        assert_eq!(names("GPU-n-0"), ["h100"]);
        assert_eq!(names("GPU-n-3"), ["h100-3g.40gb"]);
    }
}

#[test]
fn only_a_run_on_slices_is_preempted_for_slices() {
    let mut harness = mixed();
    let policy = PolicySpec {
        priority: 10,
        ..Default::default()
    };
    harness.put_policy("default", "vip", policy);
    harness.submit("whole", spec(3, 1000)).unwrap();
    harness.run("whole.1");
    harness.submit("small", slices("1g.10gb", 2)).unwrap();
    harness.run("small.1");
    let vip = StepSpec {
        subject: "vip".parse().unwrap(),
        ..slices("1g.10gb", 1)
    };
    harness.submit("vip", vip).unwrap();
    assert_eq!(harness.state("small"), StepState::Stopping);
    assert_eq!(harness.state("whole"), StepState::Running);
    harness.status("n", "small.1", gone(Exit::Code(143), StopReason::Preempted));
    assert_eq!(harness.placed("vip").1, ["GPU-n-4"]);
}

#[test]
fn a_frozen_step_resumes_on_its_own_slice() {
    let mut harness = mixed();
    let frozen = StepSpec {
        on_preempt: OnPreempt::Suspend,
        ..slices("1g.10gb", 1)
    };
    harness.submit("f", frozen).unwrap();
    assert_eq!(harness.placed("f").1, ["GPU-n-4"]);
    harness.run("f.1");
    harness.action("f", StepAction::Suspend);
    let suspended = AttemptPhase::Suspended {
        started: process(),
        moved_mb: 0,
    };
    harness.status("n", "f.1", suspended);
    harness.submit("other", slices("1g.10gb", 1)).unwrap();
    assert_eq!(
        harness.placed("other").1,
        ["GPU-n-5"],
        "the awaited one last"
    );
    harness.submit("whole", spec(3, 1000)).unwrap();
    harness.action("f", StepAction::Resume);
    assert_eq!(harness.state("f"), StepState::Resuming);
}

#[test]
fn a_slice_counts_as_its_part_of_a_gpu() {
    let mut harness = mixed();
    let pool = "default".parse().unwrap();
    let amounts = |harness: &Harness| {
        let state = harness.core.state();
        let known = state.scheduler().pool(&pool).unwrap();
        (
            known.detected("mgpu"),
            known.free().get("mgpu"),
            known.used().get("mgpu"),
        )
    };
    assert_eq!(
        amounts(&harness),
        (Some(3712), 3712, 0),
        "3 + 0.428 + 2 * 0.142"
    );
    harness.submit("half", slices("3g.40gb", 1)).unwrap();
    assert_eq!(amounts(&harness), (Some(3712), 3284, 428));
    harness.submit("small", slices("1g.10gb", 2)).unwrap();
    harness.submit("whole", spec(2, 1000)).unwrap();
    assert_eq!(amounts(&harness), (Some(3712), 1000, 2712));
    assert_eq!(harness.step("small").spec.gpu_count(), 2);
}

#[test]
fn shares_and_limits_hold_for_gpus_and_slices_together() {
    let mut harness = mixed();
    let half_of_three = |limit| PolicySpec {
        reserved: [(ResourceKey::new("mgpu").unwrap(), 1500)].into(),
        limit: [(ResourceKey::new("mgpu").unwrap(), limit)].into(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "s", half_of_three(1500));
    let whole = |gpus| StepSpec {
        preemptible: false,
        ..spec(gpus, 1000)
    };
    let firm = |profile: &str| StepSpec {
        preemptible: false,
        ..of_slices(spec(0, 100), profile, 1)
    };
    harness.submit("whole", whole(1)).unwrap();
    harness.submit("half", firm("3g.40gb")).unwrap();
    assert_eq!(harness.placed("half").1, ["GPU-n-3"]);
    // 1.428 of 1.5 are used.
    harness.submit("small", firm("1g.10gb")).unwrap();
    assert_eq!(harness.code("small"), ReasonCode::WaitingForLimit);
    harness.submit("two", whole(2)).unwrap();
    assert_eq!(harness.code("two"), ReasonCode::ExceedsLimit);
    let said = harness.reason("two").message;
    assert!(said.contains("2 gpu") && said.contains("1.5"), "{said}");
    harness.put_policy("default", "s", half_of_three(1570));
    assert_eq!(harness.code("small"), ReasonCode::WaitingForReserved);
    harness.submit("lent", slices("1g.10gb", 1)).unwrap();
    assert_eq!(harness.placed("lent").1, ["GPU-n-4"], "borrowed");
}

#[test]
fn slices_carry_their_part_of_what_their_gpu_carries() {
    // Four GPUs (three whole, one cut) of 8 cores: each carries two, the slice of three sevenths 0.856.
    let mut harness = mixed();
    let asks = |mcpu| StepSpec {
        preemptible: false,
        ..of_slices(spec(0, mcpu), "3g.40gb", 1)
    };
    harness.put_policy(
        "default",
        "s",
        PolicySpec {
            reserved: [amount("gpu", 3)].into(),
            ..PolicySpec::default()
        },
    );
    harness.submit("more", asks(1100)).unwrap();
    assert_eq!(harness.code("more"), ReasonCode::ExceedsEntitlement);
    harness.submit("part", asks(856)).unwrap();
    assert_eq!(harness.placed("part").1, ["GPU-n-3"]);
}
