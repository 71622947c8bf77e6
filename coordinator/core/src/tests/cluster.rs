//! Tests of the defaults of the cluster, which route steps that name no pool.

use std::vec;
use std::vec::Vec;

use sluice_common::cluster::{ClusterSpec, DefaultPool, SubjectSpec};
use sluice_common::id::PoolName;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;

use super::harness::*;
use crate::{Answer, Desired, Input, Refusal, ReplyId, TermsChange};

fn of(subject: &str, spec: StepSpec) -> StepSpec {
    StepSpec {
        subject: subject.parse().unwrap(),
        ..spec
    }
}

fn pool(name: &str) -> PoolName {
    name.parse().unwrap()
}

fn terms() -> ClusterSpec {
    let its = SubjectSpec {
        pool: Some(pool("own")),
        ..SubjectSpec::default()
    };
    ClusterSpec {
        default_pool: DefaultPool {
            cpu: Some(pool("cpus")),
            gpu: Some(pool("gpus")),
        },
        subjects: [("s".parse().unwrap(), its)].into(),
    }
}

fn cluster(terms: ClusterSpec) -> Desired {
    Desired::Cluster { terms }
}

/// Makes pools `cpus`, `gpus` and `own`, each with a host and a policy for `*`.
fn harness() -> Harness {
    let mut harness = Harness::new();
    harness.start();
    let pools = ["cpus", "gpus", "own"];
    let wanted = pools.map(|pool| wanted_pool(pool, &[]));
    harness.apply(wanted.into_iter().chain([cluster(terms())]).collect());
    for name in pools {
        harness.put_policy(name, "default", PolicySpec::default());
        let mut host = hello(&std::format!("n-{name}"), 2, 4);
        host.pool = pool(name);
        harness.hello(host);
    }
    harness
}

fn refusal(harness: &mut Harness, wanted: Vec<Desired>) -> (Option<usize>, Refusal) {
    let changes = wanted.into_iter().map(|wanted| TermsChange {
        desired: wanted,
        version: None,
    });
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(7),
        changes: changes.collect(),
        force: true,
        dry_run: false,
    });
    match effects.answers.into_iter().next() {
        Some(Answer::Applied(Err(refused))) => (refused.at, refused.refusal),
        other => panic!("it is refused: {other:?}"),
    }
}

#[test]
fn a_subject_without_a_policy_goes_where_its_kind_of_work_goes() {
    let mut harness = harness();
    harness.submit("c", of("x", spec(0, 1000))).unwrap();
    harness.submit("g", of("x", spec(1, 1000))).unwrap();
    assert_eq!(
        (harness.placed("c").0, harness.placed("g").0),
        ("n-cpus".into(), "n-gpus".into())
    );
    let held = harness
        .core
        .state()
        .scheduler()
        .pool(&pool("cpus"))
        .unwrap();
    assert_eq!(held.running_for(&"default".parse().unwrap()), 1);
    assert_eq!(
        harness.step("c").spec.subject.as_str(),
        "x",
        "it stays its own"
    );
}

#[test]
fn its_own_policy_there_goes_before_the_one_for_all() {
    let mut harness = harness();
    harness.put_policy("own", "s", PolicySpec::default());
    harness.submit("a", of("s", spec(0, 1000))).unwrap();
    let scheduler = harness.core.state().scheduler().pool(&pool("own")).unwrap();
    assert_eq!(scheduler.running_for(&"s".parse().unwrap()), 1);
}

#[test]
fn a_subject_s_own_pool_goes_before_its_policies_and_a_named_pool_before_both() {
    let mut harness = harness();
    harness.put_policy("gpus", "s", PolicySpec::default());
    harness.submit("a", of("s", spec(1, 1000))).unwrap();
    assert_eq!(harness.placed("a").0, "n-own");
    harness
        .submit("b", in_pool(of("s", spec(1, 1000)), "gpus"))
        .unwrap();
    assert_eq!(harness.placed("b").0, "n-gpus");
}

#[test]
fn the_default_pool_takes_those_of_subjects_that_have_a_policy_elsewhere_too() {
    let mut harness = harness();
    harness.put_policy("gpus", "y", PolicySpec::default());
    harness.submit("c", of("y", spec(0, 1000))).unwrap();
    harness.submit("g", of("y", spec(1, 1000))).unwrap();
    assert_eq!(
        (harness.placed("c").0, harness.placed("g").0),
        ("n-cpus".into(), "n-gpus".into())
    );
    // If no policy of the default pool admits the step, its own policies choose.
    harness.apply(vec![Desired::NoPolicy {
        pool: pool("cpus"),
        subject: "default".parse().unwrap(),
    }]);
    harness.submit("d", of("y", spec(0, 1000))).unwrap();
    assert_eq!(harness.placed("d").0, "n-gpus");
}

#[test]
fn a_subject_has_a_pool_for_each_kind_of_work() {
    let mut harness = harness();
    let its = SubjectSpec {
        cpu: Some(pool("own")),
        ..SubjectSpec::default()
    };
    let mut terms = terms();
    terms.subjects = [("x".parse().unwrap(), its)].into();
    harness.apply(vec![cluster(terms)]);
    harness.submit("c", of("x", spec(0, 1000))).unwrap();
    harness.submit("g", of("x", spec(1, 1000))).unwrap();
    assert_eq!(
        (harness.placed("c").0, harness.placed("g").0),
        ("n-own".into(), "n-gpus".into())
    );
}

#[test]
fn a_default_pool_that_is_named_lets_in_as_if_it_were_not() {
    let mut harness = harness();
    harness
        .submit("a", in_pool(of("x", spec(1, 1000)), "gpus"))
        .unwrap();
    assert_eq!(harness.placed("a").0, "n-gpus");
    let scheduler = harness
        .core
        .state()
        .scheduler()
        .pool(&pool("gpus"))
        .unwrap();
    assert_eq!(scheduler.running_for(&"default".parse().unwrap()), 1);
    harness
        .submit("b", in_pool(of("x", spec(1, 1000)), "own"))
        .unwrap();
    assert_eq!(
        harness.code("b"),
        ReasonCode::NoPolicy,
        "it is no default of its"
    );
    harness.restart(0);
    assert_eq!(harness.placed("a").0, "n-gpus");
}

fn at_most(gpus: u64) -> PolicySpec {
    PolicySpec {
        limit: [amount("gpu", gpus)].into(),
        ..PolicySpec::default()
    }
}

#[test]
fn the_policy_of_everyone_is_that_of_each_who_has_none() {
    let mut harness = Harness::one_node(4, 8);
    harness.put_policy("default", "*", at_most(1));
    for (id, subject) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "s"), ("e", "s")] {
        harness.submit(id, of(subject, spec(1, 1000))).unwrap();
    }
    assert_eq!(
        harness.state("b"),
        StepState::Queued,
        "x has a limit of its own"
    );
    for id in ["a", "c", "d", "e"] {
        assert_eq!(harness.state(id), StepState::Allocated, "{id}");
    }
    let firm = StepSpec {
        preemptible: false,
        ..of("y", spec(1, 1000))
    };
    harness.submit("f", firm).unwrap();
    assert_eq!(
        harness.code("f"),
        ReasonCode::ExceedsReserved,
        "it reserves nothing"
    );
    // The route survives a restart from a snapshot or the log, and a subject's own default takes precedence.
    for snapshot_at in [0, harness.log.len()] {
        harness.restart(snapshot_at);
        harness.hello(hello("n", 4, 8));
    }
    harness.put_policy("default", "x", at_most(2));
    assert_eq!(harness.state("b"), StepState::Queued, "no GPU is free");
    harness.run("c.1");
    harness.status(
        "n",
        "c.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    assert_eq!(harness.state("b"), StepState::Allocated);
    // Without the default, subjects without a policy wait for one.
    harness.submit("w", of("y", spec(1, 1000))).unwrap();
    harness.apply(vec![Desired::NoPolicy {
        pool: pool("default"),
        subject: "*".parse().unwrap(),
    }]);
    harness.submit("z", of("z", spec(1, 1000))).unwrap();
    assert_eq!(harness.code("z"), ReasonCode::NoPolicy);
    harness.restart(0);
}

#[test]
fn where_nobody_lends_a_policy_it_is_rejected_by_pool() {
    let mut harness = harness();
    harness.apply(vec![Desired::NoPolicy {
        pool: pool("cpus"),
        subject: "default".parse().unwrap(),
    }]);
    harness.submit("a", of("x", spec(0, 1000))).unwrap();
    let reason = harness.reason("a");
    assert_eq!(
        (harness.state("a"), reason.code),
        (StepState::Rejected, ReasonCode::NoPolicy)
    );
    assert_eq!(reason.detail["pool"], "cpus".into());
    harness.apply(vec![cluster(ClusterSpec::default())]);
    harness.submit("b", of("x", spec(1, 1000))).unwrap();
    assert_eq!(
        harness.code("b"),
        ReasonCode::NoPolicy,
        "nothing sends it anywhere"
    );
}

#[test]
fn a_step_stays_where_it_was_sent_and_a_repeat_of_it_is_one() {
    let mut harness = harness();
    let wide = || of("x", spec(0, 4000));
    harness.submit("a", wide()).unwrap();
    harness.submit("b", wide()).unwrap();
    harness.apply(vec![cluster(ClusterSpec::default())]);
    harness.put_policy("gpus", "x", PolicySpec::default());
    assert_eq!(harness.state("b"), StepState::Queued);
    assert!(!harness.submit("b", wide()).unwrap().created);
    harness.restart(0);
    assert_eq!(harness.step("b").route.pool, Some(pool("cpus")));
}

#[test]
fn terms_name_pools_that_are_there_and_keep_them_there() {
    let mut harness = harness();
    let mut wrong = terms();
    wrong.default_pool.gpu = Some(pool("nowhere"));
    let before = harness.core.state().clone();
    let expected = |name: &str, field| Refusal::ClusterNamesPool {
        pool: pool(name),
        field,
    };
    let (at, refused) = refusal(
        &mut harness,
        vec![wanted_pool("p", &[]), cluster(wrong.clone())],
    );
    assert_eq!(
        (at, refused),
        (Some(1), expected("nowhere", "default_pool.gpu"))
    );
    assert_eq!(harness.core.state(), &before, "none of them is made");
    harness.apply(vec![cluster(wrong), wanted_pool("nowhere", &[])]);
    let gone = Desired::NoPool {
        pool: pool("nowhere"),
    };
    let (at, refused) = refusal(&mut harness, vec![gone]);
    assert_eq!(
        (at, refused),
        (Some(0), expected("nowhere", "default_pool.gpu"))
    );
}

#[test]
fn the_same_terms_again_are_no_change() {
    let mut harness = harness();
    let effects = harness.apply(vec![cluster(terms())]);
    assert!(effects.records.is_empty(), "{:?}", effects.records);
}
