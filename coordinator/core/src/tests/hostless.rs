//! Tests of pools without hosts: they count what they declare, and grant allocations alone.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::allocation::HolderState;
use sluice_common::credential::SecretHash;
use sluice_common::id::{PoolName, Subject};
use sluice_common::pool::{PolicySpec, PoolHosts};
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;

use super::harness::*;
use crate::{
    Answer, Desired, Input, NewJoinToken, NodeChange, RecoveryCause, Refusal, ReplyId, StepAction,
    TimerKey,
};

const LEASE: u64 = 60;

/// An allocation of so many licences in the pool `licences`.
fn licences(many: u64) -> StepSpec {
    let (key, many) = amount("licence", many);
    let mut spec = StepSpec {
        lease: Some(Span::from_secs(LEASE)),
        command: Vec::new(),
        on_preempt: OnPreempt::Fail,
        timeout: None,
        ..in_pool(spec(0, 0), "licences")
    };
    spec.request.set(key, many);
    spec
}

fn of_subject(spec: StepSpec, subject: &str) -> StepSpec {
    StepSpec {
        subject: Subject::new(subject).unwrap(),
        ..spec
    }
}

fn fixed(spec: StepSpec) -> StepSpec {
    StepSpec {
        preemptible: false,
        ..spec
    }
}

fn reserving(many: u64) -> PolicySpec {
    PolicySpec {
        reserved: [amount("licence", many)].into(),
        ..PolicySpec::default()
    }
}

/// A cluster without any host, and two licences that `s` and `t` share.
fn two_licences() -> Harness {
    let mut harness = Harness::new();
    harness.apply(vec![hostless_pool("licences", &[("licence", 2)])]);
    for subject in ["s", "t"] {
        harness.put_policy("licences", subject, PolicySpec::default());
    }
    harness
}

fn refusal(effects: &InputEffects) -> Refusal {
    match &effects.answers[..] {
        [Answer::Applied(Err(refused))] => refused.refusal.clone(),
        [Answer::Changed(Err(refusal))] => refusal.clone(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_allocation_is_had_at_once_and_released_by_a_word() {
    let mut harness = two_licences();
    harness.submit("a", licences(2)).unwrap();
    harness.submit("b", licences(1)).unwrap();
    assert_eq!(harness.state("a"), StepState::Running);
    assert!(harness.reason("a").message.contains("no hosts"));
    assert_eq!(harness.state("b"), StepState::Queued);
    assert_eq!(harness.code("b"), ReasonCode::WaitingForUnits);
    let message = harness.reason("b").message;
    assert!(!message.contains("no-host"), "{message}");
    harness
        .renew("a", None, Some(HolderState::Running))
        .unwrap();
    harness.cancel_within("a", Some(0));
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Cancelled, ReasonCode::Cancelled)
    );
    assert_eq!(harness.state("b"), StepState::Running);
}

#[test]
fn one_that_is_cancelled_by_another_has_its_grace() {
    let mut harness = two_licences();
    harness.submit("a", licences(2)).unwrap();
    harness.submit("b", licences(1)).unwrap();
    harness.cancel("a");
    assert_eq!(harness.state("a"), StepState::Stopping);
    harness.pass(GRACE.millis() / 1000 - 1);
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.pass(1);
    assert_eq!(harness.state("a"), StepState::Cancelled);
    assert_eq!(harness.state("b"), StepState::Running);
}

/// The timer may come late, or not at all before the next restart.
#[test]
fn one_whose_grace_is_over_ends_when_it_is_cancelled_again() {
    let mut harness = two_licences();
    harness.submit("a", licences(1)).unwrap();
    harness.cancel("a");
    harness.now = harness.now + GRACE;
    assert_eq!(harness.state("a"), StepState::Stopping);
    harness.cancel_within("a", Some(0));
    assert_eq!(harness.state("a"), StepState::Cancelled);
}

#[test]
fn it_ends_with_its_lease_and_with_its_timeout() {
    let mut harness = two_licences();
    harness.submit("a", licences(1)).unwrap();
    let short = StepSpec {
        timeout: Some(Span::from_secs(50)),
        grace: Span::ZERO,
        ..licences(1)
    };
    harness.submit("b", short).unwrap();
    harness.pass(49);
    harness.renew("b", None, None).unwrap();
    assert_eq!(harness.state("b"), StepState::Running);
    harness.pass(1);
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Failed, ReasonCode::TimedOut)
    );
    harness.pass(LEASE - 50);
    assert_eq!(
        (harness.state("a"), harness.code("a")),
        (StepState::Cancelled, ReasonCode::NotRenewed)
    );
}

#[test]
fn a_borrower_gives_way_until_its_deadline_or_its_release() {
    for released in [true, false] {
        let mut harness = two_licences();
        harness.put_policy("licences", "t", reserving(2));
        harness.submit("a", licences(1)).unwrap();
        harness.submit("b", licences(1)).unwrap();
        let claim = fixed(of_subject(licences(2), "t"));
        harness.submit("c", claim).unwrap();
        for id in ["a", "b"] {
            assert_eq!(
                (harness.state(id), harness.code(id)),
                (StepState::Stopping, ReasonCode::Preempted)
            );
        }
        // Its holder hears of it, and may still say what it does.
        harness.renew("a", None, Some(HolderState::Idle)).unwrap();
        match released {
            true => {
                harness.cancel_within("a", Some(0));
                assert_eq!(harness.state("a"), StepState::Preempted);
                assert_eq!(harness.state("c"), StepState::Queued);
                harness.cancel_within("b", Some(0));
            }
            false => {
                harness.pass(GRACE.millis() / 1000);
            }
        }
        assert_eq!(harness.state("a"), StepState::Preempted);
        assert_eq!(harness.state("b"), StepState::Preempted);
        assert_eq!(harness.state("c"), StepState::Running);
    }
}

#[test]
fn one_that_tolerates_any_reclaim_goes_at_once() {
    let mut harness = two_licences();
    harness.put_policy("licences", "t", reserving(2));
    let any = StepSpec {
        grace: Span::ZERO,
        ..licences(1)
    };
    harness.submit("a", any.clone()).unwrap();
    harness.submit("b", any).unwrap();
    let claim = fixed(of_subject(licences(2), "t"));
    harness.submit("c", claim).unwrap();
    let states = ["a", "b", "c"].map(|id| harness.state(id));
    assert_eq!(
        states,
        [
            StepState::Preempted,
            StepState::Preempted,
            StepState::Running
        ]
    );
}

#[test]
fn limits_and_reserved_shares_hold() {
    let mut harness = two_licences();
    let limited = PolicySpec {
        limit: [amount("licence", 1)].into(),
        ..PolicySpec::default()
    };
    harness.put_policy("licences", "s", limited);
    harness.submit("a", licences(1)).unwrap();
    harness.submit("b", licences(1)).unwrap();
    harness.submit("c", licences(2)).unwrap();
    harness.submit("d", fixed(licences(1))).unwrap();
    harness.submit("e", of_subject(licences(3), "t")).unwrap();
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(harness.code("b"), ReasonCode::WaitingForLimit);
    assert_eq!(harness.code("c"), ReasonCode::ExceedsLimit);
    assert_eq!(harness.code("d"), ReasonCode::ExceedsReserved);
    assert_eq!(harness.code("e"), ReasonCode::ExceedsPoolCapacity);
}

#[test]
fn gpus_elsewhere_are_counted_with_what_is_asked_beside_them() {
    let mut harness = Harness::new();
    harness.apply(vec![hostless_pool("cloud", &[("gpu", 8)])]);
    harness.put_policy("cloud", "s", PolicySpec::default());
    let of = |gpus| StepSpec {
        request: spec(gpus, 64_000).request,
        ..in_pool(licences(0), "cloud")
    };
    harness.submit("a", of(6)).unwrap();
    harness.submit("b", of(3)).unwrap();
    harness.submit("c", of(2)).unwrap();
    let states = ["a", "b", "c"].map(|id| harness.state(id));
    assert_eq!(
        states,
        [StepState::Running, StepState::Queued, StepState::Running]
    );
}

#[test]
fn what_only_hosts_have_is_rejected_with_the_field() {
    let mut harness = two_licences();
    let program = StepSpec {
        lease: None,
        command: vec!["train".into()],
        ..licences(1)
    };
    let two_hosts = StepSpec {
        nodes: 2,
        ..licences(1)
    };
    let of_platform = StepSpec {
        platform: Some("h100".into()),
        ..licences(1)
    };
    let nothing = in_pool(
        StepSpec {
            request: spec(0, 4000).request,
            ..licences(0)
        },
        "licences",
    );
    for (id, spec, field) in [
        ("a", program, "command"),
        ("b", two_hosts, "nodes"),
        ("c", of_platform, "platform"),
        ("d", nothing, "resources"),
    ] {
        harness.submit(id, spec).unwrap();
        let reason = harness.reason(id);
        assert_eq!(
            (harness.state(id), reason.code),
            (StepState::Rejected, ReasonCode::PoolWithoutHosts)
        );
        assert_eq!(reason.detail["field"], field.into(), "{reason:?}");
    }
}

#[test]
fn a_program_of_a_subject_with_both_kinds_of_pool_waits_for_hosts_alone() {
    let mut harness = Harness::new();
    let first = PolicySpec {
        priority: 9,
        ..PolicySpec::default()
    };
    harness.apply(vec![hostless_pool("cloud", &[("gpu", 8)])]);
    harness.put_policy("cloud", "s", first);
    let program = spec(1, 1000);
    harness.submit("a", program.clone()).unwrap();
    let holder = StepSpec {
        pool: None,
        ..licences(0)
    };
    let request = program.request;
    let holder = StepSpec { request, ..holder };
    harness.submit("b", holder).unwrap();
    assert_eq!(harness.state("a"), StepState::Queued);
    assert_eq!(harness.code("a"), ReasonCode::PoolEmpty);
    assert_eq!(harness.state("b"), StepState::Running);
    let moved = harness.move_step("a", "cloud");
    assert!(
        matches!(moved, Err(Refusal::MoveRejected { .. })),
        "{moved:?}"
    );
}

#[test]
fn no_host_comes_into_it() {
    let mut harness = two_licences();
    harness.hello(hello("n", 1, 4));
    let pool = || PoolName::new("licences").unwrap();
    let moves = NodeChange::Move {
        pool: pool(),
        reason: None,
        deadline: None,
    };
    let pool_refused = Refusal::PoolWithoutHosts { pool: pool() };
    assert_eq!(refusal(&harness.change("n", moves)), pool_refused);
    let mut words = hello("m", 1, 4);
    words.pool = pool();
    assert!(harness.hello(words).refusal().contains("hosts: none"));
    let named = hello("no-host.licences", 1, 4);
    assert!(
        harness
            .hello(named)
            .refusal()
            .contains("no name for a host")
    );
    let token = NewJoinToken {
        id: "t".parse().unwrap(),
        hash: SecretHash::new([7; 32]),
        pool: Some(pool()),
        node: None,
        labels: Default::default(),
        uses: 1,
        ttl: Span::from_secs(60),
    };
    let made = harness.feed(Input::MakeJoinToken {
        reply: ReplyId(9),
        token,
    });
    assert_eq!(refusal(&made), pool_refused);
}

#[test]
fn its_kind_is_fixed_and_it_is_deleted_when_nothing_is_held() {
    let mut harness = two_licences();
    harness.submit("a", licences(1)).unwrap();
    harness.submit("b", licences(2)).unwrap();
    let pool = PoolName::new("licences").unwrap();
    let with_hosts = harness.apply(vec![wanted_pool("licences", &[("licence", 2)])]);
    assert_eq!(
        refusal(&with_hosts),
        Refusal::PoolHostsFixed { pool: pool.clone() }
    );
    let without = harness.apply(vec![hostless_pool("default", &[("licence", 2)])]);
    assert!(matches!(refusal(&without), Refusal::PoolHostsFixed { .. }));
    let deletes = || vec![Desired::NoPool { pool: pool.clone() }];
    let held = harness.apply(deletes());
    assert!(
        refusal(&held).to_string().contains("sluice release a"),
        "{held:?}"
    );
    harness.cancel_within("a", Some(0));
    harness.cancel_within("b", Some(0));
    let deleted = harness.apply(deletes());
    assert!(matches!(&deleted.answers[..], [Answer::Applied(Ok(_))]));
    harness.submit("c", licences(1)).unwrap();
    assert_eq!(harness.code("c"), ReasonCode::UnknownPool);
}

#[test]
fn less_capacity_takes_nothing_and_grants_nothing_new() {
    let mut harness = two_licences();
    harness.submit("a", licences(1)).unwrap();
    harness.submit("b", licences(1)).unwrap();
    harness.submit("c", licences(1)).unwrap();
    harness.submit("d", licences(2)).unwrap();
    harness.apply(vec![hostless_pool("licences", &[("licence", 1)])]);
    let states = ["a", "b", "c", "d"].map(|id| harness.state(id));
    let (has, waits, over) = (StepState::Running, StepState::Queued, StepState::Rejected);
    assert_eq!(states, [has, has, waits, over]);
    harness.cancel_within("a", Some(0));
    assert_eq!(harness.state("c"), StepState::Queued);
    harness.cancel_within("b", Some(0));
    assert_eq!(harness.state("c"), StepState::Running);
    // GPUs that it no longer counts are waited for by nobody.
    let gpus = |n| StepSpec {
        request: spec(n, 0).request,
        allow_pending: true,
        ..licences(0)
    };
    harness.apply(vec![hostless_pool(
        "licences",
        &[("licence", 1), ("gpu", 1)],
    )]);
    harness.submit("e", gpus(1)).unwrap();
    harness.submit("f", gpus(1)).unwrap();
    assert_eq!(harness.state("f"), StepState::Queued);
    harness.apply(vec![hostless_pool("licences", &[("licence", 1)])]);
    assert_eq!(harness.code("f"), ReasonCode::ExceedsPoolCapacity);
    assert_eq!(harness.state("e"), StepState::Running);
}

#[test]
fn a_restart_gives_holders_their_lease_and_their_grace_again() {
    let mut harness = two_licences();
    harness.put_policy("licences", "t", reserving(1));
    harness.submit("a", licences(1)).unwrap();
    harness.submit("b", licences(1)).unwrap();
    let claim = fixed(of_subject(licences(1), "t"));
    harness.submit("c", claim).unwrap();
    let gives_way = ["a", "b"]
        .into_iter()
        .find(|id| harness.state(id) == StepState::Stopping);
    let (gives_way, stays) = match gives_way {
        Some("a") => ("a", "b"),
        _ => ("b", "a"),
    };
    harness.now = harness.now + Span::from_secs(3600);
    harness.restart(0);
    assert_eq!(harness.state(gives_way), StepState::Stopping);
    assert_eq!(harness.state(stays), StepState::Running);
    harness.pass(GRACE.millis() / 1000);
    assert_eq!(harness.state(gives_way), StepState::Preempted);
    assert_eq!(harness.state("c"), StepState::Running);
    harness.pass(LEASE - GRACE.millis() / 1000 - 1);
    assert_eq!(harness.state(stays), StepState::Running);
    harness.pass(1);
    assert_eq!(harness.code(stays), ReasonCode::NotRenewed);
}

#[test]
fn a_clock_that_is_set_ahead_takes_no_time_from_holders() {
    let mut harness = two_licences();
    let limited = StepSpec {
        timeout: Some(Span::from_secs(50)),
        grace: Span::ZERO,
        ..licences(1)
    };
    harness.submit("a", limited).unwrap();
    harness.submit("b", licences(1)).unwrap();
    harness.cancel("b");
    harness.pass(1);
    let ahead = Span::from_secs(7200);
    harness.restart_ahead(ahead);
    // A timer of before the jump comes too early.
    harness.feed(Input::Timer(TimerKey::Hostless(step("a"))));
    harness.feed(Input::Timer(TimerKey::Hostless(step("b"))));
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(harness.state("b"), StepState::Stopping);
    harness.pass(GRACE.millis() / 1000);
    assert_eq!(harness.state("b"), StepState::Cancelled);
    harness.pass(50);
    assert_eq!(harness.code("a"), ReasonCode::TimedOut);
}

#[test]
fn what_an_older_backup_does_not_know_is_forgotten_and_nothing_is_granted_meanwhile() {
    let mut harness = two_licences();
    harness.submit("a", licences(1)).unwrap();
    let backup = harness.log.len();
    harness.submit("b", licences(1)).unwrap();
    harness.restore(backup, RecoveryCause::Restored);
    assert_eq!(harness.state("a"), StepState::Running);
    let unknown = harness.renew("b", None, None);
    assert!(matches!(unknown, Err(Refusal::UnknownStep { .. })));
    // Its holder has had time to hear that before another gets what it had.
    harness.submit("c", licences(1)).unwrap();
    assert_eq!(harness.code("c"), ReasonCode::Recovering);
    harness.feed(Input::EndRecovery { reply: ReplyId(6) });
    assert_eq!(harness.state("c"), StepState::Running);
}

#[test]
fn no_host_can_speak_for_it_and_no_user_can_freeze_it() {
    let mut harness = two_licences();
    harness.submit("a", licences(1)).unwrap();
    harness.hello(holding(hello("n", 1, 4), vec![status("a.1", running())]));
    harness.status("n", "a.1", gone(Exit::Signal(9), StopReason::Cancelled));
    harness.status("no-host.licences", "a.1", released(Exit::Unknown));
    for action in [StepAction::Suspend, StepAction::Requeue] {
        harness.action("a", action);
    }
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(
        harness
            .core
            .state()
            .pool(&PoolName::new("licences").unwrap())
            .unwrap()
            .spec
            .hosts,
        PoolHosts::None
    );
}

#[test]
fn explanations_name_no_host() {
    let mut harness = Harness::new();
    harness.apply(vec![hostless_pool("cloud", &[("gpu", 2), ("licence", 1)])]);
    harness.put_policy("cloud", "s", PolicySpec::default());
    let of = |gpus| {
        let mut of = in_pool(licences(1), "cloud");
        of.request.add(&spec(gpus, 0).request);
        of
    };
    harness.submit("a", of(2)).unwrap();
    harness.submit("b", of(2)).unwrap();
    assert_eq!(harness.state("b"), StepState::Queued);
    let explained = harness.core.explain(&step("b")).unwrap();
    let request = explained.pools[0].request;
    let pool = PoolName::new("cloud").unwrap();
    let remedies = explained.pools[0].remedy_search().unwrap().in_pool(&pool);
    let remedies: Vec<_> = remedies
        .iter()
        .map(|it| sluice_reasons::messages::explanation::remedy(request, &pool, it))
        .collect();
    assert!(!remedies.is_empty());
    let text = alloc::format!("{remedies:?} {}", explained.reason.to_reason().message);
    assert!(!text.contains("no-host"), "{text}");
}
