//! Tests of queued steps that callers move to other pools.

use std::vec;
use std::vec::Vec;

use sluice_common::amount::{MCPU, MGPU, ResourceKey};
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::pool_rules::{Setting, StepDefaults, StepMaxima};
use sluice_common::reason::{Detail, ReasonCode};
use sluice_common::request::ResourceSettings;
use sluice_common::shared::Shared;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::time::Span;

use super::harness::*;
use crate::input::DesiredPool;
use crate::submit::as_written::as_written;
use crate::{Answer, Desired, Input, Record, Refusal, ReplyId, StepAction};

/// Two pools: one whose only host of 2 GPUs is busy, and one without a host.
fn two_pools() -> Harness {
    let mut harness = Harness::one_node(2, 8);
    harness.put_pool("other");
    harness.put_policy("other", "s", PolicySpec::default());
    harness
        .submit("busy", in_pool(spec(2, 0), "default"))
        .unwrap();
    harness.run("busy.1");
    harness
}

fn second_host(harness: &mut Harness) {
    let mut words = hello("m", 2, 8);
    words.pool = "other".parse().unwrap();
    harness.hello(words);
}

fn put_pool(harness: &mut Harness, pool: &str, rules: PoolSpec) {
    harness.apply(vec![Desired::Pool {
        pool: pool.parse().unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(rules)),
    }]);
}

/// Moves a step after a dry run, which must foresee what comes of it and leave nothing behind.
pub(super) fn move_foreseen(harness: &mut Harness, id: &str, pool: &str) -> Result<bool, Refusal> {
    let before = harness.core.state().clone();
    let effects = harness.feed(Input::MoveStep {
        reply: ReplyId(9),
        step: step(id),
        target: target(pool),
        dry_run: true,
    });
    assert_eq!(harness.core.state(), &before, "nothing is left of it");
    let foreseen = match effects.answers.into_iter().next() {
        Some(Answer::Moved(Err(refusal))) => Err(refusal),
        Some(Answer::Previewed(preview)) => preview.outcome,
        other => panic!("it is answered: {other:?}"),
    };
    let done = harness.move_step(id, pool);
    match (&done, foreseen) {
        (Err(refusal), Err(foreseen)) => {
            assert_eq!(*refusal, foreseen);
            assert_eq!(harness.core.state(), &before, "nothing of it is done");
        }
        (Ok(moves), Ok(foreseen)) => {
            let now = harness.step(id);
            assert_eq!(&foreseen.step, now);
            assert_eq!(foreseen.reason, harness.core.reason(now));
            assert!(
                *moves || harness.core.state() == &before,
                "it was so already"
            );
        }
        (done, foreseen) => panic!("{done:?} and not {foreseen:?}"),
    }
    done
}

#[test]
fn a_waiting_step_moves_in_its_old_place_and_starts_there() {
    let mut harness = two_pools();
    harness.submit("a", in_pool(spec(1, 0), "default")).unwrap();
    harness.submit("b", in_pool(spec(2, 0), "other")).unwrap();
    let place = harness.step("a").place;
    assert_eq!(move_foreseen(&mut harness, "a", "other"), Ok(true));
    let now = harness.step("a");
    assert_eq!(
        (now.place, now.moved_to().unwrap().as_str()),
        (place, "other")
    );
    let other = "other".parse().unwrap();
    let queued = harness.core.state().queued_in(&other);
    assert_eq!(queued.cloned().collect::<Vec<_>>(), [step("a"), step("b")]);
    second_host(&mut harness);
    assert_eq!(harness.state("a"), StepState::Allocated);
    assert_eq!(harness.step("a").latest().unwrap().pool, other);
    // A submit that is repeated is the same: nobody knows of the move.
    let again = harness.submit("a", in_pool(spec(1, 0), "default")).unwrap();
    assert!(!again.created);
}

#[test]
fn a_move_to_where_it_waits_changes_nothing() {
    let mut harness = two_pools();
    harness.submit("a", in_pool(spec(1, 0), "default")).unwrap();
    assert_eq!(move_foreseen(&mut harness, "a", "default"), Ok(false));
    assert_eq!(move_foreseen(&mut harness, "a", "other"), Ok(true));
    assert_eq!(move_foreseen(&mut harness, "a", "other"), Ok(false));
    assert_eq!(move_foreseen(&mut harness, "a", "default"), Ok(true));
    assert_eq!(harness.step("a").only_pool().unwrap().as_str(), "default");
    // One that may run in several pools may then run in one.
    harness.submit("b", spec(1, 0)).unwrap();
    assert_eq!(move_foreseen(&mut harness, "b", "default"), Ok(true));
    second_host(&mut harness);
    assert_eq!(harness.state("b"), StepState::Queued);
}

#[test]
fn what_does_not_wait_is_not_moved() {
    let mut harness = two_pools();
    let refused = |harness: &mut Harness, id: &str, state: StepState| {
        let step = step(id);
        let refusal = Refusal::CannotMove { step, state };
        assert_eq!(move_foreseen(harness, id, "other"), Err(refusal));
    };
    refused(&mut harness, "busy", StepState::Running);
    harness.action("busy", StepAction::Requeue);
    refused(&mut harness, "busy", StepState::Stopping);
    harness.cancel("busy");
    harness.status("n", "busy.1", released(Exit::Code(0)));
    let over = move_foreseen(&mut harness, "busy", "other").unwrap_err();
    assert!(matches!(over, Refusal::StepOver { .. }), "{over}");
    harness.submit("starts", spec(1, 0)).unwrap();
    refused(&mut harness, "starts", StepState::Allocated);
    let unknown = move_foreseen(&mut harness, "none", "other").unwrap_err();
    assert!(matches!(unknown, Refusal::UnknownStep { .. }), "{unknown}");
    harness.submit("waits", spec(2, 0)).unwrap();
    let unknown = move_foreseen(&mut harness, "waits", "nowhere").unwrap_err();
    assert!(matches!(unknown, Refusal::UnknownPool { .. }), "{unknown}");
}

#[test]
fn a_pool_that_would_reject_it_leaves_it_where_it_is_and_says_the_numbers() {
    let mut harness = two_pools();
    put_pool(
        &mut harness,
        "other",
        PoolSpec {
            max: StepMaxima {
                timeout: Some(Span::from_secs(30)),
                ..StepMaxima::default()
            },
            ..PoolSpec::default()
        },
    );
    harness.apply(vec![wanted_pool("closed", &[])]);
    let limit = [(ResourceKey::new(MGPU).unwrap(), 1_000)].into();
    harness.put_pool("small");
    let few = PolicySpec {
        limit,
        ..PolicySpec::default()
    };
    harness.put_policy("small", "s", few);
    harness.submit("a", in_pool(spec(2, 0), "default")).unwrap();
    for (pool, code) in [
        ("other", ReasonCode::ExceedsMaximum),
        ("closed", ReasonCode::NoPolicy),
        ("small", ReasonCode::ExceedsLimit),
    ] {
        let refused = move_foreseen(&mut harness, "a", pool).expect_err(pool);
        let Refusal::MoveRejected { reason, .. } = refused else {
            panic!("{refused}");
        };
        let reason = reason.to_reason();
        assert_eq!(reason.code, code, "{}", reason.message);
        // As for a submit.
        let submitted = harness.submit(pool, in_pool(spec(2, 0), pool)).unwrap();
        assert!(submitted.created);
        assert_eq!(harness.reason(pool), reason);
        if code == ReasonCode::ExceedsLimit {
            assert_eq!(reason.detail["limit"], Detail::Number(1), "{reason:?}");
        }
    }
    let maintenance = PoolSpec {
        maintenance: Some("fans".into()),
        ..PoolSpec::default()
    };
    put_pool(&mut harness, "other", maintenance);
    let refused = move_foreseen(&mut harness, "a", "other").unwrap_err();
    assert!(
        matches!(refused, Refusal::PoolInMaintenance { .. }),
        "{refused}"
    );
    let mut past = target("other");
    past.past_maintenance = true;
    harness.feed(Input::MoveStep {
        reply: ReplyId(5),
        step: step("a"),
        target: past,
        dry_run: false,
    });
    assert_eq!(harness.step("a").moved_to().unwrap().as_str(), "other");
}

#[test]
fn the_new_pool_fills_in_what_the_step_leaves_out_and_nothing_of_the_old_one_is_left() {
    let mut harness = two_pools();
    let defaults = |timeout: u64, queue_timeout: Option<u64>| PoolSpec {
        defaults: StepDefaults {
            timeout: Some(Span::from_secs(timeout)),
            queue_timeout: queue_timeout.map(Span::from_secs),
            ..StepDefaults::default()
        },
        ..PoolSpec::default()
    };
    harness.apply(vec![Desired::Template {
        template: "cores".parse().unwrap(),
        terms: alloc::boxed::Box::new(
            serde_json::from_str(r#"{"resources":{"cpu_count":3},"env":{"FROM":"{{pool}}"}}"#)
                .unwrap(),
        ),
    }]);
    let mut with_template = defaults(600, Some(50));
    with_template.templates = vec!["cores".parse().unwrap()];
    put_pool(&mut harness, "default", with_template);
    put_pool(&mut harness, "other", defaults(700, None));
    let written = StepSpec {
        timeout: None,
        unset: [Setting::Timeout, Setting::QueueTimeout].into(),
        resources: Shared::from(ResourceSettings {
            gpu_count: Some(1),
            ..ResourceSettings::default()
        }),
        ..in_pool(spec(1, 0), "default")
    };
    harness.submit("a", written.clone()).unwrap();
    let spec = &harness.step("a").spec;
    assert_eq!(
        (spec.timeout, spec.request.get(MCPU)),
        (Some(Span::from_secs(600)), 3000)
    );
    assert_eq!(as_written(harness.step("a")), written);
    assert_eq!(move_foreseen(&mut harness, "a", "other"), Ok(true));
    let now = harness.step("a");
    assert_eq!(
        (now.spec.timeout, now.spec.queue_timeout),
        (Some(Span::from_secs(700)), None)
    );
    assert_eq!(
        (now.spec.request.get(MCPU), now.spec.request.get(MGPU)),
        (0, 1_000)
    );
    assert_eq!(as_written(now), written);
    assert!(
        now.provenance
            .at(&"default".parse().unwrap(), &[])
            .is_none()
    );
    assert_eq!(move_foreseen(&mut harness, "a", "default"), Ok(true));
    assert_eq!(harness.step("a").spec.request.get(MCPU), 3000);
    // Variables stay, over a restart too.
    harness.restart(0);
    assert_eq!(harness.step("a").spec.env.len(), 1);
}

#[test]
fn the_queue_timeout_begins_anew_in_the_new_pool() {
    let mut harness = two_pools();
    let mut spec = in_pool(spec(1, 0), "default");
    spec.queue_timeout = Some(Span::from_secs(100));
    harness.submit("a", spec).unwrap();
    harness.pass(60);
    assert_eq!(move_foreseen(&mut harness, "a", "other"), Ok(true));
    harness.pass(60);
    assert_eq!(harness.state("a"), StepState::Queued);
    harness.pass(60);
    assert_eq!(harness.code("a"), ReasonCode::QueueTimeout);
}

#[test]
fn what_was_promised_to_it_goes_to_whoever_waits_behind_it() {
    let mut harness = two_pools();
    let reserved = [(ResourceKey::new(MGPU).unwrap(), 2_000)].into();
    let owner = PolicySpec {
        reserved,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "t", owner);
    harness.put_policy("other", "t", PolicySpec::default());
    let head = StepSpec {
        subject: "t".parse().unwrap(),
        ..in_pool(spec(2, 0), "default")
    };
    harness.submit("head", head).unwrap();
    assert_eq!(harness.state("busy"), StepState::Stopping);
    let promised = |harness: &Harness| {
        let scheduler = harness.core.state().scheduler();
        scheduler.nomination(&step("head")).is_some()
    };
    assert!(promised(&harness));
    assert_eq!(move_foreseen(&mut harness, "head", "other"), Ok(true));
    assert!(!promised(&harness));
    harness.status("n", "busy.1", released(Exit::Code(143)));
    assert_eq!(
        harness.state("busy"),
        StepState::Allocated,
        "it has its place again"
    );
    assert_eq!(harness.state("head"), StepState::Queued);
}

#[test]
fn a_pool_that_was_made_later_is_open_to_a_step_that_is_moved_there() {
    let mut harness = two_pools();
    harness.submit("a", in_pool(spec(1, 0), "default")).unwrap();
    harness.put_pool("later");
    harness.put_policy("later", "s", PolicySpec::default());
    assert_eq!(move_foreseen(&mut harness, "a", "later"), Ok(true));
    let mut words = hello("m", 2, 8);
    words.pool = "later".parse().unwrap();
    harness.hello(words);
    assert_eq!(harness.state("a"), StepState::Allocated);
}

#[test]
fn a_step_that_is_held_moves_and_stays_held() {
    let mut harness = two_pools();
    second_host(&mut harness);
    harness.submit("a", in_pool(spec(1, 0), "default")).unwrap();
    harness.action("a", StepAction::Suspend);
    assert_eq!(move_foreseen(&mut harness, "a", "other"), Ok(true));
    assert_eq!(harness.state("a"), StepState::Queued);
    assert!(harness.step("a").held);
    harness.action("a", StepAction::Resume);
    assert_eq!(harness.state("a"), StepState::Allocated);
}

#[test]
fn a_log_keeps_the_move_without_the_values_of_variables() {
    let mut harness = two_pools();
    harness.submit("a", in_pool(spec(1, 0), "default")).unwrap();
    let effects = harness.feed(Input::MoveStep {
        reply: ReplyId(5),
        step: step("a"),
        target: target("other"),
        dry_run: false,
    });
    let [Record::StepMoved(moved)] = &effects.records[..] else {
        panic!("{:?}", effects.records);
    };
    let text = serde_json::to_string(moved).unwrap();
    assert!(
        text.contains(r#""pool":"other""#) && !text.contains(r#""A":"b""#),
        "{text}"
    );
}

#[test]
fn a_step_whose_last_attempt_still_holds_resources_is_moved_once_they_are_free() {
    let mut harness = two_pools();
    harness.cancel("busy");
    harness.status("n", "busy.1", released(Exit::Code(0)));
    harness
        .submit("again", with_retries(spec(2, 1000), 1))
        .unwrap();
    harness.run("again.1");
    harness.status("n", "again.1", ended(Exit::Code(1)));
    assert_eq!(harness.state("again"), StepState::Queued);
    let refused = move_foreseen(&mut harness, "again", "other");
    let holds = Refusal::CannotMoveYet {
        step: step("again"),
        node: node("n"),
    };
    assert_eq!(refused, Err(holds));
    harness.change("n", crate::NodeChange::Cordon { reason: None });
    harness.status("n", "again.1", released(Exit::Code(1)));
    assert_eq!(move_foreseen(&mut harness, "again", "other"), Ok(true));
}
