//! Defaults of the cluster: where steps go that name no pool.

use std::vec;
use std::vec::Vec;

use sluice_common::cluster::{ClusterTerms, DefaultPool, SubjectTerms};
use sluice_common::id::PoolName;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;

use super::rig::*;
use crate::market::Policy;
use crate::{Answer, Change, Input, Refusal, ReplyId, Wanted};

fn of(subject: &str, spec: StepSpec) -> StepSpec {
    StepSpec {
        subject: subject.parse().unwrap(),
        ..spec
    }
}

fn pool(name: &str) -> PoolName {
    name.parse().unwrap()
}

fn terms() -> ClusterTerms {
    let its = SubjectTerms { pool: pool("own") };
    ClusterTerms {
        default_pool: DefaultPool {
            cpu: Some(pool("cpus")),
            gpu: Some(pool("gpus")),
        },
        subjects: [("s".parse().unwrap(), its)].into(),
    }
}

fn cluster(terms: ClusterTerms) -> Wanted {
    Wanted::Cluster { terms }
}

/// Pools `cpus`, `gpus` and `own`, each with a host and a policy for whoever has none.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.start();
    let pools = ["cpus", "gpus", "own"];
    let wanted = pools.map(|pool| wanted_pool(pool, &[]));
    rig.apply(wanted.into_iter().chain([cluster(terms())]).collect());
    for name in pools {
        rig.put_policy(name, "default", Policy::default());
        let mut host = hello(&std::format!("n-{name}"), 2, 4);
        host.pool = pool(name);
        rig.hello(host);
    }
    rig
}

fn refusal(rig: &mut Rig, wanted: Vec<Wanted>) -> (Option<usize>, Refusal) {
    let changes = wanted.into_iter().map(|wanted| Change {
        wanted,
        version: None,
    });
    let fed = rig.feed(Input::Apply {
        reply: ReplyId(7),
        changes: changes.collect(),
        force: true,
        dry_run: false,
    });
    match fed.answers.into_iter().next() {
        Some(Answer::Applied(Err(refused))) => (refused.at, refused.refusal),
        other => panic!("it is refused: {other:?}"),
    }
}

#[test]
fn a_subject_without_a_policy_goes_where_its_kind_of_work_goes() {
    let mut rig = rig();
    rig.submit("c", of("x", spec(0, 1000))).unwrap();
    rig.submit("g", of("x", spec(1, 1000))).unwrap();
    assert_eq!(
        (rig.placed("c").0, rig.placed("g").0),
        ("n-cpus".into(), "n-gpus".into())
    );
    let held = rig.core.state().market().pool(&pool("cpus")).unwrap();
    assert_eq!(held.running_of(&"default".parse().unwrap()), 1);
    assert_eq!(rig.step("c").spec.subject.as_str(), "x", "it stays its own");
}

#[test]
fn its_own_policy_there_goes_before_the_one_for_all() {
    let mut rig = rig();
    rig.put_policy("own", "s", Policy::default());
    rig.submit("a", of("s", spec(0, 1000))).unwrap();
    let market = rig.core.state().market().pool(&pool("own")).unwrap();
    assert_eq!(market.running_of(&"s".parse().unwrap()), 1);
}

#[test]
fn a_subject_s_own_pool_goes_before_its_policies_and_a_named_pool_before_both() {
    let mut rig = rig();
    rig.put_policy("gpus", "s", Policy::default());
    rig.submit("a", of("s", spec(1, 1000))).unwrap();
    assert_eq!(rig.placed("a").0, "n-own");
    rig.submit("b", in_pool(of("s", spec(1, 1000)), "gpus"))
        .unwrap();
    assert_eq!(rig.placed("b").0, "n-gpus");
    rig.put_policy("gpus", "y", Policy::default());
    rig.submit("c", of("y", spec(0, 1000))).unwrap();
    assert_eq!(rig.placed("c").0, "n-gpus", "its policies choose");
}

#[test]
fn where_nobody_lends_a_policy_it_is_rejected_by_pool() {
    let mut rig = rig();
    rig.apply(vec![Wanted::NoPolicy {
        pool: pool("cpus"),
        subject: "default".parse().unwrap(),
    }]);
    rig.submit("a", of("x", spec(0, 1000))).unwrap();
    let reason = rig.reason("a");
    assert_eq!(
        (rig.state("a"), reason.code),
        (StepState::Rejected, ReasonCode::NoPolicy)
    );
    assert_eq!(reason.detail["pool"], "cpus".into());
    rig.apply(vec![cluster(ClusterTerms::default())]);
    rig.submit("b", of("x", spec(1, 1000))).unwrap();
    assert_eq!(
        rig.code("b"),
        ReasonCode::NoPolicy,
        "nothing sends it anywhere"
    );
}

#[test]
fn a_step_stays_where_it_was_sent_and_a_repeat_of_it_is_one() {
    let mut rig = rig();
    let wide = || of("x", spec(0, 4000));
    rig.submit("a", wide()).unwrap();
    rig.submit("b", wide()).unwrap();
    rig.apply(vec![cluster(ClusterTerms::default())]);
    rig.put_policy("gpus", "x", Policy::default());
    assert_eq!(rig.state("b"), StepState::Queued);
    assert!(!rig.submit("b", wide()).unwrap().created);
    rig.restart(0);
    assert_eq!(rig.step("b").home.pool, Some(pool("cpus")));
}

#[test]
fn terms_name_pools_that_are_there_and_keep_them_there() {
    let mut rig = rig();
    let mut wrong = terms();
    wrong.default_pool.gpu = Some(pool("nowhere"));
    let before = rig.core.state().clone();
    let expected = |name: &str, field| Refusal::ClusterNamesPool {
        pool: pool(name),
        field,
    };
    let (at, refused) = refusal(
        &mut rig,
        vec![wanted_pool("p", &[]), cluster(wrong.clone())],
    );
    assert_eq!(
        (at, refused),
        (Some(1), expected("nowhere", "default_pool.gpu"))
    );
    assert_eq!(rig.core.state(), &before, "none of them is made");
    rig.apply(vec![cluster(wrong), wanted_pool("nowhere", &[])]);
    let gone = Wanted::NoPool {
        pool: pool("nowhere"),
    };
    let (at, refused) = refusal(&mut rig, vec![gone]);
    assert_eq!(
        (at, refused),
        (Some(0), expected("nowhere", "default_pool.gpu"))
    );
}

#[test]
fn the_same_terms_again_are_no_change() {
    let mut rig = rig();
    let fed = rig.apply(vec![cluster(terms())]);
    assert!(fed.records.is_empty(), "{:?}", fed.records);
}
