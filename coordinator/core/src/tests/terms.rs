//! Tests of changes of pools and policies: all of a call or none, what they take from whom, and what a dry run
//! reports.

use crate::record;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::amount::ResourceKey;
use sluice_common::id::{PoolName, Subject};
use sluice_common::pool::{PolicySpec, ResourceTable};
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec};
use sluice_common::supervision::Exit;
use sluice_common::time::Span;
use sluice_common::wire::StopReason;

use super::harness::*;
use crate::schedule::schedule;
use crate::{
    Answer, Applied, CurrentTerms, Desired, Input, Record, Refusal, Refused, ReplyId, TermsChange,
};

fn gpus(n: u64) -> ResourceTable {
    [amount("gpu", n)].into()
}

fn policy(reserved: u64, limit: Option<u64>) -> PolicySpec {
    PolicySpec {
        priority: 10,
        reserved: gpus(reserved),
        limit: limit.map(gpus).unwrap_or_default(),
        weight: None,
    }
}

fn of(subject: &str, mut spec: StepSpec) -> StepSpec {
    spec.subject = Subject::new(subject).unwrap();
    spec
}

fn no_policy(pool: &str, subject: &str) -> Desired {
    Desired::NoPolicy {
        pool: PoolName::new(pool).unwrap(),
        subject: Subject::new(subject).unwrap(),
    }
}

fn no_pool(pool: &str) -> Desired {
    let pool = PoolName::new(pool).unwrap();
    Desired::NoPool { pool }
}

struct ApplyMode {
    force: bool,
    dry_run: bool,
}

const COMMIT: ApplyMode = ApplyMode {
    force: false,
    dry_run: false,
};
const FORCED: ApplyMode = ApplyMode {
    force: true,
    dry_run: false,
};
const TRIAL: ApplyMode = ApplyMode {
    force: false,
    dry_run: true,
};

fn apply(
    harness: &mut Harness,
    how: ApplyMode,
    wanted: Vec<Desired>,
) -> (Result<Applied, Refused>, InputEffects) {
    let changes = wanted.into_iter().map(|wanted| TermsChange {
        desired: wanted,
        version: None,
    });
    apply_changes(harness, how, changes.collect())
}

fn apply_changes(
    harness: &mut Harness,
    how: ApplyMode,
    changes: Vec<TermsChange>,
) -> (Result<Applied, Refused>, InputEffects) {
    let ApplyMode { force, dry_run } = how;
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(9),
        changes,
        force,
        dry_run,
    });
    match &effects.answers[..] {
        [Answer::Applied(applied)] => (applied.clone(), effects),
        other => panic!("{other:?}"),
    }
}

fn refused(harness: &mut Harness, wanted: Vec<Desired>) -> (Option<usize>, String) {
    let before = harness.core.state().clone();
    let (applied, effects) = apply(harness, COMMIT, wanted);
    let Refused { at, refusal } = applied.unwrap_err();
    assert!(effects.records.is_empty(), "{effects:?}");
    assert_eq!(harness.core.state(), &before);
    (at, refusal.to_string())
}

#[test]
fn all_changes_of_a_call_are_made_or_none() {
    let mut harness = Harness::one_node(4, 4);
    let bad = wanted_policy("new", "b", policy(3, None));
    let wanted = vec![
        wanted_policy("new", "a", policy(2, None)),
        bad,
        wanted_pool("new", &[("gpu", 4)]),
    ];
    let (at, message) = refused(&mut harness, wanted.clone());
    assert_eq!(at, Some(1), "{message}");
    assert!(
        message.contains("reserved.gpu is 3, others have reserved 2"),
        "{message}"
    );
    assert!(
        harness
            .core
            .state()
            .pool(&PoolName::new("new").unwrap())
            .is_none()
    );
    let mended = vec![
        wanted[0].clone(),
        wanted_policy("new", "b", policy(2, None)),
        wanted[2].clone(),
    ];
    let (applied, effects) = apply(&mut harness, COMMIT, mended.clone());
    assert_eq!(
        effects.types(),
        ["pool_put", "policy_put", "policy_put"],
        "what others need comes first"
    );
    let outcomes = applied.unwrap().outcomes;
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.before.is_none() && outcome.is_change())
    );
    assert!(
        matches!(outcomes[2].after, Some(CurrentTerms::Pool(_))),
        "in the order of the call"
    );
    let (applied, effects) = apply(&mut harness, COMMIT, mended);
    assert!(
        effects.records.is_empty(),
        "what is so already is not recorded"
    );
    assert!(
        !applied
            .unwrap()
            .outcomes
            .iter()
            .any(|outcome| outcome.is_change())
    );
}

#[test]
fn shares_may_move_from_one_to_another_in_one_call() {
    let mut harness = Harness::one_node(4, 4);
    harness.apply(vec![wanted_pool("default", &[("gpu", 4)])]);
    harness.apply(vec![
        wanted_policy("default", "a", policy(4, None)),
        wanted_policy("default", "b", policy(0, None)),
    ]);
    let moved = vec![
        wanted_policy("default", "b", policy(4, None)),
        wanted_policy("default", "a", policy(0, None)),
    ];
    apply(&mut harness, COMMIT, moved).0.unwrap();
}

#[test]
fn what_a_pool_could_not_keep_is_refused_with_the_change_that_is_to_blame() {
    let mut harness = Harness::one_node(4, 4);
    harness.apply(vec![wanted_pool("p", &[("gpu", 4), ("seats", 2)])]);
    harness.put_policy("p", "a", policy(3, None));
    let seats: ResourceTable = [(ResourceKey::new("seats").unwrap(), 1)].into();
    harness.put_policy(
        "p",
        "b",
        PolicySpec {
            reserved: seats,
            ..PolicySpec::default()
        },
    );
    for (wanted, at, words) in [
        (
            wanted_pool("p", &[("gpu", 2), ("seats", 2)]),
            0,
            "reserved.gpu is 3",
        ),
        (
            wanted_pool("p", &[("gpu", 4)]),
            0,
            "the pool has no `seats`",
        ),
        (
            wanted_policy("p", "c", policy(3, Some(2))),
            0,
            "limit.gpu is 2",
        ),
        (wanted_policy("q", "c", policy(0, None)), 0, "no pool `q`"),
        (no_policy("p", "nobody"), 0, "`nobody` has no policy"),
        (no_pool("q"), 0, "no pool `q`"),
        (no_pool("default"), 0, "cannot be deleted"),
    ] {
        let (found, message) = refused(&mut harness, vec![wanted]);
        assert_eq!(found, Some(at), "{message}");
        assert!(message.contains(words), "{message}");
    }
    let twice = vec![
        no_policy("p", "a"),
        wanted_policy("p", "a", policy(1, None)),
    ];
    let (at, message) = refused(&mut harness, twice);
    assert_eq!(at, Some(1));
    assert_eq!(
        message,
        "policy of `a` in pool `p` is listed twice: remove one"
    );
}

#[test]
fn a_change_of_what_was_changed_meanwhile_is_refused() {
    let mut harness = Harness::one_node(4, 4);
    harness.put_policy("default", "a", policy(1, None));
    let pool = harness
        .core
        .state()
        .pool(&PoolName::new("default").unwrap())
        .unwrap();
    let seen = pool.policies[&Subject::new("a").unwrap()].version;
    let change = |version, reserved| TermsChange {
        desired: wanted_policy("default", "a", policy(reserved, None)),
        version: Some(version),
    };
    apply_changes(&mut harness, COMMIT, vec![change(seen, 2)])
        .0
        .unwrap();
    let stale = apply_changes(&mut harness, FORCED, vec![change(seen, 3)])
        .0
        .unwrap_err();
    let message = stale.refusal.to_string();
    assert!(
        message.contains(&format!("expects that it is at version {seen}")),
        "{message}"
    );
    let new = apply_changes(&mut harness, COMMIT, vec![change(0, 3)])
        .0
        .unwrap_err();
    assert!(
        new.refusal
            .to_string()
            .contains("expects that it does not exist"),
        "{new:?}"
    );
}

#[test]
fn what_is_in_use_is_not_taken_away_but_by_force_and_then_nothing_is_stopped() {
    let mut harness = Harness::one_node(4, 8);
    harness.apply(vec![wanted_pool("default", &[("gpu", 4)])]);
    harness.put_policy("default", "a", policy(2, Some(4)));
    let firm = StepSpec {
        preemptible: false,
        ..of("a", spec(2, 1000))
    };
    harness.submit("firm", firm).unwrap();
    harness.submit("soft", of("a", spec(2, 1000))).unwrap();
    for (wanted, words) in [
        (
            wanted_policy("default", "a", policy(2, Some(3))),
            "limit.gpu would be 3, and `a` uses 4 (`firm`, `soft`)",
        ),
        (
            wanted_policy("default", "a", policy(1, Some(4))),
            "reserved.gpu would be 1, and steps of `a` that are not",
        ),
        (
            no_policy("default", "a"),
            "steps of `a` run in it (`firm`, `soft`)",
        ),
        (
            wanted_pool("default", &[("gpu", 3)]),
            "capacity.gpu would be 3, and 4 are in use (`firm`, `soft`)",
        ),
    ] {
        let (_, message) = refused(&mut harness, vec![wanted.clone()]);
        assert!(message.contains(words), "{message}");
        let mut forced = rig_like(&harness);
        let (applied, effects) = apply(&mut forced, FORCED, vec![wanted]);
        assert_eq!(applied.unwrap().uses.len(), 1);
        assert!(
            effects.orders.is_empty(),
            "nothing is stopped by it: {effects:?}"
        );
    }
    // A larger reservation takes nothing away.
    apply(
        &mut harness,
        COMMIT,
        vec![wanted_policy("default", "a", policy(3, None))],
    )
    .0
    .unwrap();
}

/// Restores the same cluster from its log, with the same node.
fn rig_like(harness: &Harness) -> Harness {
    let mut copy = Harness::new();
    copy.apply(vec![wanted_pool("default", &[("gpu", 4)])]);
    copy.put_policy("default", "a", policy(2, Some(4)));
    copy.hello(hello("n", 4, 8));
    for id in ["firm", "soft"] {
        let spec = Arc::unwrap_or_clone(harness.step(id).spec.clone());
        copy.submit(id, spec).unwrap();
    }
    copy
}

#[test]
fn a_trial_run_says_who_would_be_exposed_preempted_and_rejected_and_changes_nothing() {
    let mut harness = Harness::one_node(4, 8);
    harness.put_policy("default", "a", policy(4, None));
    harness.put_policy("default", "b", policy(0, Some(4)));
    harness.submit("run", of("a", spec(4, 1000))).unwrap();
    harness.run("run.1");
    harness.submit("wants", of("b", spec(2, 1000))).unwrap();
    harness.submit("large", of("b", spec(4, 1000))).unwrap();
    let wanted = vec![
        wanted_policy("default", "a", policy(2, None)),
        wanted_policy("default", "b", policy(2, Some(3))),
    ];
    let before = harness.core.state().clone();
    let (trial, effects) = apply(&mut harness, TRIAL, wanted.clone());
    let trial = trial.unwrap();
    assert!(effects.records.is_empty() && effects.orders.is_empty());
    assert_eq!(harness.core.state(), &before);
    assert_eq!(trial.exposed, [step("run")]);
    assert_eq!(trial.preempted, [(step("run"), step("wants"))]);
    assert_eq!(trial.rejected, [step("large")]);
    let (_, message) = refused(&mut harness, wanted.clone());
    assert!(message.contains("would be rejected (`large`)"), "{message}");
    let (applied, effects) = apply(&mut harness, FORCED, wanted);
    assert_eq!(applied.unwrap(), trial, "what was said is what happens");
    assert_eq!(effects.orders, ["stop run.1 Preempted 7s"]);
    assert_eq!(
        (harness.state("large"), harness.code("large")),
        (StepState::Rejected, ReasonCode::ExceedsLimit)
    );
    harness.status("n", "run.1", gone(Exit::Signal(15), StopReason::Preempted));
    assert_eq!(harness.state("wants"), StepState::Allocated);
}

#[test]
fn a_trial_run_names_what_would_be_frozen_too() {
    let mut harness = Harness::one_node(4, 8);
    harness.put_policy("default", "a", policy(4, None));
    harness.put_policy("default", "b", policy(0, None));
    let freezes = StepSpec {
        on_preempt: OnPreempt::Suspend,
        ..of("a", with_memory(spec(4, 1000), 100))
    };
    harness.submit("run", freezes).unwrap();
    harness.run("run.1");
    harness
        .submit("wants", of("b", with_memory(spec(2, 1000), 100)))
        .unwrap();
    let wanted = vec![
        wanted_policy("default", "a", policy(2, None)),
        wanted_policy("default", "b", policy(2, None)),
    ];
    let trial = apply(&mut harness, TRIAL, wanted.clone()).0.unwrap();
    assert_eq!(trial.preempted, [(step("run"), step("wants"))]);
    let (applied, effects) = apply(&mut harness, COMMIT, wanted);
    assert_eq!(applied.unwrap(), trial);
    assert!(
        effects.orders[0].starts_with("suspend run.1"),
        "{effects:?}"
    );
}

#[test]
fn a_key_that_one_policy_names_binds_the_steps_of_all_who_wait() {
    let mut harness = Harness::one_node(0, 4);
    harness.put_policy("default", "a", policy(0, None));
    harness.put_policy("default", "b", policy(0, None));
    harness.submit("runs", of("b", spec(0, 4000))).unwrap();
    let firm = StepSpec {
        preemptible: false,
        ..of("a", spec(0, 1000))
    };
    harness.submit("waits", firm).unwrap();
    assert_eq!(harness.state("waits"), StepState::Queued);
    let cores: ResourceTable = [(ResourceKey::new("mcpu").unwrap(), 1000)].into();
    let names = PolicySpec {
        reserved: cores,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "b", names);
    assert_eq!(
        (harness.state("waits"), harness.code("waits")),
        (StepState::Rejected, ReasonCode::ExceedsReserved)
    );
}

#[test]
fn who_could_be_taken_by_whom_is_told_where_a_change_makes_it_so() {
    let mut harness = Harness::one_node(4, 8);
    harness.put_policy("default", "a", policy(0, None));
    harness.put_policy("default", "b", policy(0, None));
    harness.submit("run", of("a", spec(2, 1000))).unwrap();
    harness.run("run.1");
    let with_priority = |priority, reserved| PolicySpec {
        priority,
        ..policy(reserved, None)
    };
    let mut exposed = |subject: &str, policy: PolicySpec| {
        let wanted = wanted_policy("default", subject, policy);
        apply(&mut harness, TRIAL, vec![wanted]).0.unwrap().exposed
    };
    // No other subject has a higher priority, or a share to reclaim with.
    assert_eq!(exposed("b", with_priority(10, 1)), [step("run")]);
    assert_eq!(exposed("b", with_priority(11, 0)), [step("run")]);
    assert_eq!(exposed("c", with_priority(11, 0)), [step("run")]);
    assert_eq!(exposed("a", with_priority(9, 0)), [step("run")]);
    assert_eq!(exposed("a", with_priority(9, 2)), [], "inside its share");
    assert_eq!(exposed("b", with_priority(9, 0)), []);
    assert_eq!(exposed("c", with_priority(10, 0)), []);
}

#[test]
fn what_spares_runs_no_longer_is_told_of_them() {
    let mut harness = Harness::one_node(4, 8);
    let spare = |secs| {
        let wanted = wanted_pool("default", &[]);
        let Desired::Pool { pool, mut terms } = wanted else {
            panic!("{wanted:?}")
        };
        terms.spec.min_runtime = Span::from_secs(secs);
        Desired::Pool { pool, terms }
    };
    harness.apply(vec![spare(600)]);
    harness.put_policy("default", "a", policy(0, None));
    harness.put_policy("default", "b", policy(1, None));
    harness.submit("run", of("a", spec(2, 1000))).unwrap();
    harness.run("run.1");
    for (secs, is_exposed) in [(700, false), (60, true), (0, true)] {
        let exposed = apply(&mut harness, TRIAL, vec![spare(secs)])
            .0
            .unwrap()
            .exposed;
        assert_eq!(!exposed.is_empty(), is_exposed, "{secs}: {exposed:?}");
    }
}

#[test]
fn a_trial_keeps_what_it_changes_and_nothing_else() {
    let mut harness = Harness::one_node(4, 8);
    for subject in ["a", "b"] {
        harness.put_policy("default", subject, policy(0, None));
        for n in 0..8 {
            let id = format!("{subject}{n}");
            harness.submit(&id, of(subject, spec(2, 1000))).unwrap();
        }
    }
    let before = harness.core.state().clone();
    let trial = harness.core.context_mut().begin_dry_run();
    harness
        .core
        .context_mut()
        .record(Record::PolicyPut(record::PolicyPut {
            pool: PoolName::new("default").unwrap(),
            subject: Subject::new("a").unwrap(),
            policy: policy(4, None),
        }));
    schedule(harness.core.context_mut());
    let (pools, steps) = harness.core.context().noted();
    assert_eq!(pools, 1);
    assert!(steps <= 4, "{steps} of 16 steps were looked after");
    harness.core.context_mut().take_back(trial);
    assert_eq!(harness.core.state(), &before);
}

#[test]
fn a_pool_is_deleted_once_no_node_is_in_it() {
    let mut harness = Harness::new();
    harness.put_pool("p");
    let mut words = hello("n", 1, 4);
    words.pool = PoolName::new("p").unwrap();
    harness.hello(words.clone());
    let (_, message) = refused(&mut harness, vec![no_pool("p")]);
    assert!(message.starts_with("node `n` is in pool `p`"), "{message}");
    let (applied, _) = apply(&mut harness, FORCED, vec![no_pool("p")]);
    assert!(
        matches!(applied.unwrap_err().refusal, Refusal::PoolHasNodes { .. }),
        "force moves no host"
    );
    harness.submit("a", in_pool(spec(1, 1000), "p")).unwrap();
    harness.submit("b", in_pool(spec(1, 1000), "p")).unwrap();
    // A config moved a host in earlier releases; its running steps still belong to this pool.
    harness.moved_by_config(&words, "default");
    harness.hello(holding(words, vec![status("a.1", running())]));
    let (_, message) = refused(&mut harness, vec![no_pool("p")]);
    assert!(message.contains("steps run in it (`a`)"), "{message}");
    apply(&mut harness, FORCED, vec![no_pool("p")]).0.unwrap();
    assert_eq!(harness.state("a"), StepState::Running);
    assert_eq!(
        (harness.state("b"), harness.code("b")),
        (StepState::Rejected, ReasonCode::UnknownPool)
    );
    harness.put_pool("p");
    assert_eq!(
        harness
            .core
            .state()
            .running_in(&PoolName::new("p").unwrap()),
        1
    );
    harness.status("n", "a.1", released(Exit::Code(0)));
    assert_eq!(harness.state("a"), StepState::Succeeded);
}

#[test]
fn ten_thousand_policies_are_one_call() {
    let mut harness = Harness::one_node(4, 8);
    let all = (0..10_000).map(|n| wanted_policy("default", &format!("s{n}"), policy(0, None)));
    let (applied, effects) = apply(&mut harness, COMMIT, all.collect());
    assert_eq!(
        (applied.unwrap().outcomes.len(), effects.records.len()),
        (10_000, 10_000)
    );
}
