//! Defaults of the cluster: where steps go that name no pool.

use std::vec;
use std::vec::Vec;

use sluice_common::cluster::{ClusterSpec, DefaultPool, SubjectSpec};
use sluice_common::id::PoolName;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;

use super::rig::*;
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

fn cluster(terms: ClusterSpec) -> Wanted {
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
        rig.put_policy(name, "default", PolicySpec::default());
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
    assert_eq!(held.running_for(&"default".parse().unwrap()), 1);
    assert_eq!(rig.step("c").spec.subject.as_str(), "x", "it stays its own");
}

#[test]
fn its_own_policy_there_goes_before_the_one_for_all() {
    let mut rig = rig();
    rig.put_policy("own", "s", PolicySpec::default());
    rig.submit("a", of("s", spec(0, 1000))).unwrap();
    let market = rig.core.state().market().pool(&pool("own")).unwrap();
    assert_eq!(market.running_for(&"s".parse().unwrap()), 1);
}

#[test]
fn a_subject_s_own_pool_goes_before_its_policies_and_a_named_pool_before_both() {
    let mut rig = rig();
    rig.put_policy("gpus", "s", PolicySpec::default());
    rig.submit("a", of("s", spec(1, 1000))).unwrap();
    assert_eq!(rig.placed("a").0, "n-own");
    rig.submit("b", in_pool(of("s", spec(1, 1000)), "gpus"))
        .unwrap();
    assert_eq!(rig.placed("b").0, "n-gpus");
}

#[test]
fn the_default_pool_takes_those_of_subjects_that_have_a_policy_elsewhere_too() {
    let mut rig = rig();
    rig.put_policy("gpus", "y", PolicySpec::default());
    rig.submit("c", of("y", spec(0, 1000))).unwrap();
    rig.submit("g", of("y", spec(1, 1000))).unwrap();
    assert_eq!(
        (rig.placed("c").0, rig.placed("g").0),
        ("n-cpus".into(), "n-gpus".into())
    );
    // Where the pool for all lets it in by no policy, its own choose.
    rig.apply(vec![Wanted::NoPolicy {
        pool: pool("cpus"),
        subject: "default".parse().unwrap(),
    }]);
    rig.submit("d", of("y", spec(0, 1000))).unwrap();
    assert_eq!(rig.placed("d").0, "n-gpus");
}

#[test]
fn a_subject_has_a_pool_for_each_kind_of_work() {
    let mut rig = rig();
    let its = SubjectSpec {
        cpu: Some(pool("own")),
        ..SubjectSpec::default()
    };
    let mut terms = terms();
    terms.subjects = [("x".parse().unwrap(), its)].into();
    rig.apply(vec![cluster(terms)]);
    rig.submit("c", of("x", spec(0, 1000))).unwrap();
    rig.submit("g", of("x", spec(1, 1000))).unwrap();
    assert_eq!(
        (rig.placed("c").0, rig.placed("g").0),
        ("n-own".into(), "n-gpus".into())
    );
}

#[test]
fn a_default_pool_that_is_named_lets_in_as_if_it_were_not() {
    let mut rig = rig();
    rig.submit("a", in_pool(of("x", spec(1, 1000)), "gpus"))
        .unwrap();
    assert_eq!(rig.placed("a").0, "n-gpus");
    let market = rig.core.state().market().pool(&pool("gpus")).unwrap();
    assert_eq!(market.running_for(&"default".parse().unwrap()), 1);
    rig.submit("b", in_pool(of("x", spec(1, 1000)), "own"))
        .unwrap();
    assert_eq!(
        rig.code("b"),
        ReasonCode::NoPolicy,
        "it is no default of its"
    );
    rig.restart(0);
    assert_eq!(rig.placed("a").0, "n-gpus");
}

fn at_most(gpus: u64) -> PolicySpec {
    PolicySpec {
        limit: [(
            sluice_common::amount::ResourceKey::new("gpu").unwrap(),
            gpus,
        )]
        .into(),
        ..PolicySpec::default()
    }
}

#[test]
fn the_policy_of_everyone_is_that_of_each_who_has_none() {
    let mut rig = Rig::one_node(4, 8);
    rig.put_policy("default", "*", at_most(1));
    for (id, subject) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "s"), ("e", "s")] {
        rig.submit(id, of(subject, spec(1, 1000))).unwrap();
    }
    assert_eq!(
        rig.state("b"),
        StepState::Queued,
        "x has a limit of its own"
    );
    for id in ["a", "c", "d", "e"] {
        assert_eq!(rig.state(id), StepState::Allocated, "{id}");
    }
    let firm = StepSpec {
        preemptible: false,
        ..of("y", spec(1, 1000))
    };
    rig.submit("f", firm).unwrap();
    assert_eq!(
        rig.code("f"),
        ReasonCode::ExceedsReserved,
        "it reserves nothing"
    );
    // It holds over a restart, by snapshot and by log, and one's own goes before.
    for snapshot_at in [0, rig.log.len()] {
        rig.restart(snapshot_at);
        rig.hello(hello("n", 4, 8));
    }
    rig.put_policy("default", "x", at_most(2));
    assert_eq!(rig.state("b"), StepState::Queued, "no GPU is free");
    rig.run("c.1");
    rig.status(
        "n",
        "c.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    assert_eq!(rig.state("b"), StepState::Allocated);
    // Without it those who have none wait for one.
    rig.submit("w", of("y", spec(1, 1000))).unwrap();
    rig.apply(vec![Wanted::NoPolicy {
        pool: pool("default"),
        subject: "*".parse().unwrap(),
    }]);
    rig.submit("z", of("z", spec(1, 1000))).unwrap();
    assert_eq!(rig.code("z"), ReasonCode::NoPolicy);
    rig.restart(0);
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
    rig.apply(vec![cluster(ClusterSpec::default())]);
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
    rig.apply(vec![cluster(ClusterSpec::default())]);
    rig.put_policy("gpus", "x", PolicySpec::default());
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
