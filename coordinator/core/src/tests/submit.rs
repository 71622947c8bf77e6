//! Tests of accepted, rejected and refused submits.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;

use sluice_common::amount::ResourceKey;
use sluice_common::id::{PoolName, UserName};
use sluice_common::reason::{Detail, ReasonCode};
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::{FromNode, ToNode};

use super::harness::*;
use crate::{Input, Refusal, ReplyId, Submitted};

fn changed(change: impl FnOnce(&mut StepSpec)) -> StepSpec {
    let mut spec = spec(1, 1000);
    change(&mut spec);
    spec
}

#[test]
fn what_fits_starts_at_once_and_says_so() {
    let mut harness = Harness::one_node(1, 4);
    let submitted = harness.submit("a", spec(1, 1000)).unwrap();
    assert_eq!(
        submitted,
        Submitted {
            step: step("a"),
            created: true
        }
    );
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Allocated, ReasonCode::Allocated)
    );
}

#[test]
fn what_could_never_run_is_rejected_by_name_and_stored() {
    let unknown = |key: &str| {
        let key = ResourceKey::new(key).unwrap();
        changed(|spec| spec.request.set(key, 2))
    };
    let cases = [
        (
            in_pool(spec(0, 0), "defualt"),
            ReasonCode::UnknownPool,
            "did you mean `default`",
        ),
        (
            in_pool(spec(0, 0), "zebra"),
            ReasonCode::UnknownPool,
            "among `default`",
        ),
        (
            unknown("licence"),
            ReasonCode::UnknownResource,
            "`licence`, of which it asks for 2",
        ),
        (
            unknown("gpus"),
            ReasonCode::UnknownResource,
            "did you mean `gpu`?",
        ),
        (
            changed(|s| s.platform = Some("h100, a100".into())),
            ReasonCode::NoHostFits,
            "is of the platforms `h100`, `a100`: ask for `gpu` or `any`",
        ),
        (
            changed(|s| s.nodes = 2),
            ReasonCode::NoHostFits,
            "2 hosts at once, and 1 of pool `default`",
        ),
        (
            spec(3, 1000),
            ReasonCode::ExceedsPoolCapacity,
            "3 gpu, and pool `default` has 2",
        ),
        (
            with_memory(spec(1, 0), 4001),
            ReasonCode::NoHostFits,
            "3.726GiB of memory, and `n`",
        ),
    ];
    for (spec, code, expected) in cases {
        let mut harness = Harness::one_node(2, 4);
        assert!(harness.submit("a", spec).unwrap().created);
        let reason = harness.reason("a");
        assert_eq!(
            (harness.state("a"), reason.code),
            (StepState::Rejected, code),
            "{reason:?}"
        );
        assert!(reason.message.contains(expected), "{reason:?}");
        assert!(harness.step("a").finished.is_some());
    }
}

#[test]
fn the_nearest_miss_is_the_host_that_lacks_least() {
    let mut harness = Harness::new();
    harness.hello(hello("small", 1, 64));
    harness.hello(hello("large", 4, 2));
    harness.submit("a", spec(5, 1000)).unwrap();
    let detail = harness.reason("a").detail;
    assert_eq!(detail["node"], Detail::from("large"));
    assert_eq!(
        (&detail["asked"], &detail["available"]),
        (&Detail::from(5), &Detail::from(4))
    );
    assert_eq!(detail["key"], Detail::from("gpu"));
}

#[test]
fn a_pool_that_never_had_a_node_queues() {
    let mut harness = Harness::new();
    harness.submit("a", spec(8, 1000)).unwrap();
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Queued, ReasonCode::PoolEmpty)
    );
}

#[test]
fn a_request_for_gpus_waits_for_the_driver_of_a_host_that_does_not_know_its_own() {
    let mut harness = Harness::new();
    harness.hello(hello("small", 1, 4));
    let mut silent = hello("silent", 0, 8);
    silent.inventory.gpus_unknown = true;
    harness.hello(silent);
    harness.submit("many", spec(8, 1000)).unwrap();
    let mut of_platform = spec(1, 1000);
    of_platform.platform = Some("l40s".to_string());
    harness.submit("other", of_platform).unwrap();
    for id in ["many", "other"] {
        assert_eq!(
            (harness.state(id), harness.code(id)),
            (StepState::Queued, ReasonCode::GpusUnknown)
        );
        assert_eq!(harness.reason(id).detail["node"], Detail::from("silent"));
    }
    // What the host could not hold with any number of GPUs is known already.
    harness.submit("vast", spec(8, 100_000)).unwrap();
    assert_eq!(harness.state("vast"), StepState::Rejected);
    // Other requests go on, there too.
    harness.submit("one", spec(1, 1000)).unwrap();
    harness.submit("plain", spec(0, 6000)).unwrap();
    assert_eq!(harness.placed("one").0, "small");
    assert_eq!(harness.placed("plain").0, "silent");
    let answer = FromNode::Inventory(Box::new(inventory("silent", 8, 8)));
    harness.say("silent", answer);
    assert_eq!(harness.placed("many").0, "silent");
    assert_eq!(harness.code("other"), ReasonCode::NoHostFits);
}

#[test]
fn a_lost_host_still_counts_for_what_is_possible() {
    let mut harness = Harness::one_node(2, 4);
    harness.gone("n");
    harness.pass(400);
    harness.submit("a", spec(2, 1000)).unwrap();
    harness.submit("b", spec(3, 1000)).unwrap();
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Queued, ReasonCode::NoLiveHost)
    );
    assert!(
        harness.reason("a").message.contains("`n` is lost"),
        "{:?}",
        harness.reason("a")
    );
    assert_eq!(harness.state("b"), StepState::Rejected);
}

#[test]
fn one_that_may_pend_waits_for_a_larger_host_and_holds_nobody_up() {
    let mut harness = Harness::one_node(1, 4);
    harness
        .submit("big", changed(|s| s.allow_pending = true))
        .unwrap();
    harness
        .submit(
            "bigger",
            StepSpec {
                allow_pending: true,
                ..spec(4, 1000)
            },
        )
        .unwrap();
    harness.submit("small", spec(0, 1000)).unwrap();
    assert_eq!(
        (harness.state("bigger"), harness.code("bigger")),
        (StepState::Queued, ReasonCode::ExceedsPoolCapacity)
    );
    assert_eq!(harness.state("small"), StepState::Allocated);
    harness.hello(hello("m", 4, 4));
    assert_eq!(harness.placed("bigger").0, "m");
}

#[test]
fn a_repeat_is_harmless_and_another_body_is_refused_by_field() {
    let mut harness = Harness::one_node(1, 4);
    let first = changed(|spec| spec.resources.cpu_count = Some(1.0));
    harness.submit("a", first.clone()).unwrap();
    let mut respelt = first.clone();
    respelt.resources.cpu_count = Some(0.999_999_999_9);
    for repeat in [first.clone(), respelt] {
        let again = harness.submit("a", repeat).unwrap();
        assert!(!again.created);
    }
    let user = |name| UserName::new(name).ok();
    let other: [(StepSpec, &str); 11] = [
        (changed(|s| s.submitted_by = user("bob")), "submitted_by"),
        (changed(|s| s.name = "x".into()), "name"),
        (changed(|s| s.pool = PoolName::new("x").ok()), "pool"),
        (changed(|s| s.command = vec!["x".into()]), "command"),
        (changed(|s| s.env.clear()), "env"),
        (changed(|s| s.workdir = Some("/".into())), "workdir"),
        (spec(1, 2000), "resources"),
        (changed(|s| s.retries = 1), "retries"),
        (changed(|s| s.grace = Span::ZERO), "grace_period"),
        (changed(|s| s.allow_pending = true), "allow_pending"),
        (changed(|s| s.free_preemptions = false), "free_preemptions"),
    ];
    for (mut spec, field) in other {
        spec.resources.cpu_count = Some(1.0);
        let refusal = harness.submit("a", spec).unwrap_err();
        let differs = String::from(field);
        assert_eq!(
            refusal,
            Refusal::IdInUse {
                step: step("a"),
                differs
            }
        );
        assert!(refusal.to_string().contains(field));
    }
}

#[test]
fn every_attempt_is_sent_with_the_user_who_submitted_its_step() {
    let mut harness = Harness::one_node(1, 4);
    let alice = UserName::new("alice").unwrap();
    let mut of_alice = with_retries(spec(1, 1000), 3);
    of_alice.submitted_by = Some(alice.clone());
    let steps = vec![crate::NewStep::new(step("a"), of_alice)];
    let reply = ReplyId(900);
    let first = harness.feed(Input::Submit { reply, steps });
    let second = harness.status("n", "a.1", released(Exit::Code(1)));
    harness.restart(1);
    harness.hello(hello("n", 1, 4));
    let third = harness.status("n", "a.2", released(Exit::Code(1)));
    for effects in [first, second, third] {
        let assigned = effects.sent.iter().find_map(|it| {
            let ToNode::Assign(assignment) = it else {
                return None;
            };
            assignment.submitter.clone()
        });
        assert_eq!(
            assigned.map(|it| it.user).as_ref(),
            Some(&alice),
            "{effects:?}"
        );
    }
    let warrant = harness.core.state().warrant(&attempt("a.3")).unwrap();
    assert_eq!(warrant.spec.submitted_by, Some(alice));
}

#[test]
fn each_item_of_a_batch_is_judged_on_its_own() {
    let mut harness = Harness::one_node(1, 4);
    let results = harness.submit_all(vec![
        ("a", spec(1, 1000)),
        ("a", spec(1, 1000)),
        ("a", spec(0, 1000)),
        ("b", spec(9, 1000)),
        ("c", spec(1, 1000)),
    ]);
    let created: alloc::vec::Vec<_> = results
        .iter()
        .map(|r| r.as_ref().map(|s| s.created).ok())
        .collect();
    assert_eq!(
        created,
        [Some(true), Some(false), None, Some(true), Some(true)]
    );
    assert_eq!(harness.state("a"), StepState::Allocated);
    assert_eq!(harness.state("b"), StepState::Rejected);
    assert_eq!(harness.state("c"), StepState::Queued);
}

#[test]
fn steps_are_told_in_the_order_of_submission() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("z", spec(1, 1000)).unwrap();
    harness.submit("b", spec(1, 1000)).unwrap();
    // A rejected step has its place like any other.
    harness.submit("m", in_pool(spec(0, 0), "zebra")).unwrap();
    harness.submit("a", spec(0, 1000)).unwrap();
    let after = |harness: &Harness, place: u64| -> vec::Vec<String> {
        let steps = harness.core.state().steps_after(place);
        steps.map(|listed| listed.id().to_string()).collect()
    };
    assert_eq!(after(&harness, 0), ["z", "b", "m", "a"]);
    let place = harness.step("b").order();
    assert_eq!(after(&harness, place), ["m", "a"]);
    harness.restart(0);
    assert_eq!(after(&harness, place), ["m", "a"]);
}

#[test]
fn the_oldest_ends_are_forgotten_and_their_ids_are_free_again() {
    let mut harness = Harness::with(crate::Settings {
        bounds: crate::Bounds {
            keep_finished: 2,
            ..SETTINGS.bounds
        },
        ..SETTINGS
    });
    for id in ["a", "b", "c"] {
        harness.submit(id, in_pool(spec(0, 0), "nowhere")).unwrap();
    }
    assert!(harness.core.state().step(&step("a")).is_none());
    assert_eq!(harness.core.state().finished().count(), 2);
    assert!(
        harness
            .submit("a", in_pool(spec(9, 9), "nowhere"))
            .unwrap()
            .created
    );
    assert!(harness.core.state().step(&step("b")).is_none());
    let batch = ["d", "e", "f", "g"].map(|id| (id, in_pool(spec(0, 0), "nowhere")));
    harness.submit_all(batch.into());
    let left = harness.core.state().steps().keys();
    assert_eq!(
        left.collect::<alloc::vec::Vec<_>>(),
        [&step("f"), &step("g")]
    );
}
