//! Tests of rules of pools for submitted steps: maintenance, defaults, maxima and modes of preemption.

use crate::record;
use sluice_common::pool::PoolSpec;
use std::string::String;
use std::vec;
use std::vec::Vec;

use sluice_common::id::PoolName;
use sluice_common::pool::PolicySpec;
use sluice_common::pool_rules::{Setting, StepDefaults, StepMaxima};
use sluice_common::processors::CpuMode;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::{OnPreempt, StepSpec, WorkKind};
use sluice_common::time::Span;

use super::harness::*;
use crate::input::DesiredPool;
use crate::{Answer, Desired, Input, NewStep, Refusal, ReplyId};

fn secs(secs: u64) -> Option<Span> {
    Some(Span::from_secs(secs))
}

/// Makes a step that leaves out all settings that pools may set.
fn silent() -> StepSpec {
    StepSpec {
        timeout: None,
        unset: Setting::ALL.into(),
        ..spec(0, 1000)
    }
}

/// Makes the same step with one setting.
fn saying(setting: Setting, change: impl FnOnce(&mut StepSpec)) -> StepSpec {
    let mut spec = silent();
    spec.unset.remove(&setting);
    change(&mut spec);
    spec
}

fn ruled(pool: &str, rules: PoolSpec) -> Desired {
    Desired::Pool {
        pool: pool.parse().unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(rules)),
    }
}

fn closed() -> PoolSpec {
    PoolSpec {
        maintenance: Some("new racks until noon".into()),
        ..PoolSpec::default()
    }
}

fn strict() -> PoolSpec {
    PoolSpec {
        defaults: StepDefaults {
            timeout: secs(600),
            queue_timeout: secs(60),
            grace_period: secs(5),
            retries: Some(2),
            on_preempt: Some(OnPreempt::Fail),
            cpu_mode: Some(CpuMode::Weight),
            ..StepDefaults::default()
        },
        max: StepMaxima {
            timeout: secs(3600),
            queue_timeout: secs(300),
            grace_period: secs(10),
            retries: Some(3),
        },
        on_preempt_allowed: [OnPreempt::Fail, OnPreempt::Suspend].into(),
        ..PoolSpec::default()
    }
}

/// Makes pools `best`, which subject `s` prefers, and `rest`, both with rules.
fn two(best: PoolSpec, rest: PoolSpec) -> Harness {
    let mut harness = Harness::new();
    harness.start();
    let nowhere_else = Desired::NoPolicy {
        pool: "default".parse().unwrap(),
        subject: "s".parse().unwrap(),
    };
    harness.apply(vec![ruled("best", best), ruled("rest", rest), nowhere_else]);
    for (pool, priority) in [("best", 2), ("rest", 1)] {
        let policy = PolicySpec {
            priority,
            ..PolicySpec::default()
        };
        harness.put_policy(pool, "s", policy);
    }
    for (name, pool) in [("n-best", "best"), ("n-rest", "rest")] {
        let mut host = hello(name, 0, 4);
        host.pool = pool.parse().unwrap();
        harness.hello(host);
    }
    harness
}

fn in_maintenance(pool: &str, named: bool) -> Refusal {
    Refusal::PoolInMaintenance {
        pool: pool.parse().unwrap(),
        message: "new racks until noon".into(),
        named,
    }
}

#[test]
fn a_step_that_waits_is_told_which_pools_keep_it_out_and_why() {
    let mut harness = two(closed(), PoolSpec::default());
    let filler = StepSpec {
        request: spec(0, 4000).request,
        ..silent()
    };
    harness.submit("filler", filler).unwrap();
    harness.submit("waits", silent()).unwrap();
    let kept_out = |harness: &Harness| excluded_by(harness, "waits");
    let best = |why: &str| vec![("best".into(), String::from(why))];
    assert_eq!(
        kept_out(&harness),
        best("pool `best` takes no new steps: new racks until noon")
    );
    harness.apply(vec![ruled("best", PoolSpec::default())]);
    assert_eq!(
        kept_out(&harness),
        best(
            "a rule of pool `best` rejected it when it was submitted: submit it again to use this pool"
        )
    );
    let longer = saying(Setting::Retries, |spec| spec.retries = 9);
    harness.apply(vec![ruled("best", strict())]);
    harness.submit("often", longer).unwrap();
    let often = excluded_by(&harness, "often");
    assert!(often[0].1.contains("pool `best` allows"), "{often:?}");
    harness.run("filler.1");
    harness.status(
        "n-rest",
        "filler.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    assert!(kept_out(&harness).is_empty(), "it waits no longer");
}

#[test]
fn a_pool_in_maintenance_takes_nothing_new_and_lets_the_rest_go_on() {
    let mut harness = two(PoolSpec::default(), closed());
    harness.apply(vec![ruled("best", closed())]);
    let refused = harness.submit("a", silent()).unwrap_err();
    assert_eq!(refused, in_maintenance("best", false));
    assert!(
        harness.core.state().step(&step("a")).is_none(),
        "it is not stored"
    );
    let refused = harness.submit("a", in_pool(silent(), "rest")).unwrap_err();
    assert_eq!(refused, in_maintenance("rest", true));
    harness.apply(vec![ruled("best", PoolSpec::default())]);
    harness.submit("a", silent()).unwrap();
    harness
        .submit(
            "b",
            StepSpec {
                request: spec(0, 4000).request,
                ..silent()
            },
        )
        .unwrap();
    harness.apply(vec![ruled("best", closed())]);
    assert_eq!(harness.state("b"), StepState::Queued);
    harness.run("a.1");
    harness.status(
        "n-best",
        "a.1",
        released(sluice_common::supervision::Exit::Code(0)),
    );
    assert_eq!(
        harness.state("b"),
        StepState::Allocated,
        "what waited goes on"
    );
    assert!(
        !harness
            .submit(
                "b",
                StepSpec {
                    request: spec(0, 4000).request,
                    ..silent()
                }
            )
            .unwrap()
            .created,
        "a repeat"
    );
}

#[test]
fn with_another_candidate_it_goes_there_and_nowhere_else() {
    let mut harness = two(closed(), PoolSpec::default());
    harness.submit("a", silent()).unwrap();
    assert_eq!(harness.placed("a").0, "n-rest");
    let large = || StepSpec {
        request: spec(0, 4000).request,
        ..silent()
    };
    harness.submit("b", large()).unwrap();
    harness.apply(vec![ruled("best", PoolSpec::default())]);
    assert_eq!(
        harness.state("b"),
        StepState::Queued,
        "it was let into `rest` alone"
    );
    harness.submit("c", large()).unwrap();
    assert_eq!(harness.placed("c").0, "n-best");
}

#[test]
fn maintenance_is_no_matter_to_whoever_could_end_it() {
    let mut harness = two(closed(), closed());
    for (id, spec) in [("named", in_pool(silent(), "rest")), ("free", silent())] {
        let steps = vec![NewStep {
            past_maintenance: true,
            ..NewStep::new(step(id), spec)
        }];
        let reply = ReplyId(5);
        let effects = harness.feed(Input::Submit { reply, steps });
        assert!(
            matches!(&effects.answers[..], [Answer::Submitted(it)] if it[0].is_ok()),
            "{effects:?}"
        );
        assert_eq!(harness.state(id), StepState::Allocated);
        assert!(harness.step(id).excluded_pools.is_empty());
    }
}

#[test]
fn one_that_no_pool_could_hold_is_rejected_though_there_is_maintenance() {
    let mut harness = two(closed(), closed());
    let huge = StepSpec {
        request: spec(0, 40_000).request,
        ..silent()
    };
    harness.submit("a", huge).unwrap();
    assert_eq!(harness.state("a"), StepState::Rejected);
    assert_eq!(harness.code("a"), ReasonCode::NoHostFits);
}

#[test]
fn what_a_step_does_not_say_is_the_pool_s_to_say() {
    let mut harness = two(strict(), PoolSpec::default());
    harness.submit("a", silent()).unwrap();
    let spec = harness.step("a").spec.clone();
    assert_eq!(
        (
            spec.timeout,
            spec.queue_timeout,
            Some(spec.grace),
            spec.retries,
            spec.on_preempt
        ),
        (secs(600), secs(60), secs(5), 2, OnPreempt::Fail)
    );
    assert_eq!(spec.cpu_mode, CpuMode::Weight);
    harness
        .submit("b", saying(Setting::Retries, |spec| spec.retries = 0))
        .unwrap();
    assert_eq!(harness.step("b").spec.retries, 0, "zero is a value");
    harness.apply(vec![ruled("best", PoolSpec::default())]);
    assert!(
        !harness.submit("a", silent()).unwrap().created,
        "a repeat, whatever the pool says now"
    );
    assert_eq!(harness.step("a").spec, spec, "as it was submitted");
}

#[test]
fn nothing_that_is_filled_in_is_more_than_the_pool_allows() {
    let max = StepMaxima {
        timeout: secs(50),
        queue_timeout: secs(40),
        grace_period: secs(1),
        retries: Some(1),
    };
    let rules = PoolSpec {
        max,
        on_preempt_allowed: [OnPreempt::Suspend].into(),
        ..PoolSpec::default()
    };
    let mut harness = two(rules, PoolSpec::default());
    let training = StepSpec {
        work: Some(WorkKind::Training),
        retries: 2,
        ..silent()
    };
    harness.submit("a", training).unwrap();
    let spec = harness.step("a").spec.clone();
    assert_eq!(
        (
            spec.timeout,
            spec.queue_timeout,
            Some(spec.grace),
            spec.retries,
            spec.on_preempt
        ),
        (secs(50), secs(40), secs(1), 1, OnPreempt::Suspend)
    );
}

#[test]
fn a_kind_of_work_goes_before_the_pool() {
    let mut harness = two(
        PoolSpec {
            max: StepMaxima::default(),
            ..strict()
        },
        PoolSpec::default(),
    );
    for work in [
        WorkKind::Inference,
        WorkKind::Notebook,
        WorkKind::Training,
        WorkKind::Compute,
    ] {
        let of = StepSpec {
            work: Some(work),
            retries: work.retries(),
            ..silent()
        };
        harness.submit(work.as_str(), of).unwrap();
        let found = harness.step(work.as_str()).spec.clone();
        let open = matches!(work, WorkKind::Inference | WorkKind::Notebook);
        assert_eq!(found.timeout, secs(600).filter(|_| !open), "{work}");
        assert_eq!(found.retries, work.retries(), "{work}");
    }
}

#[test]
fn what_is_said_and_is_too_much_removes_the_pool_and_is_told_where_none_is_left() {
    let too_much: Vec<(StepSpec, ReasonCode, &str, &str)> = vec![
        (
            saying(Setting::Timeout, |spec| spec.timeout = secs(7200)),
            ReasonCode::ExceedsMaximum,
            "timeout",
            "its `timeout` is 2h, and pool `best` allows 1h at most",
        ),
        (
            saying(Setting::QueueTimeout, |spec| spec.queue_timeout = secs(301)),
            ReasonCode::ExceedsMaximum,
            "queue_timeout",
            "its `queue_timeout` is 5m1s, and pool `best` allows 5m at most",
        ),
        (
            saying(Setting::GracePeriod, |spec| {
                spec.grace = Span::from_secs(11)
            }),
            ReasonCode::ExceedsMaximum,
            "grace_period",
            "its `grace_period` is 11s, and pool `best` allows 10s at most",
        ),
        (
            saying(Setting::Retries, |spec| spec.retries = 4),
            ReasonCode::ExceedsMaximum,
            "retries",
            "its `retries` is 4, and pool `best` allows 3 at most",
        ),
        (
            saying(Setting::OnPreempt, |spec| {
                spec.on_preempt = OnPreempt::Requeue
            }),
            ReasonCode::OnPreemptNotAllowed,
            "on_preempt",
            "its `on_preempt` is `requeue`, and pool `best` allows `suspend`, `fail`",
        ),
    ];
    for (spec, code, field, message) in too_much {
        let mut harness = two(strict(), PoolSpec::default());
        harness.submit("elsewhere", spec.clone()).unwrap();
        assert_eq!(harness.placed("elsewhere").0, "n-rest", "{field}");
        assert_eq!(
            harness.step("elsewhere").excluded_pools,
            ["best".parse::<PoolName>().unwrap()].into()
        );
        harness
            .submit("named", in_pool(spec.clone(), "best"))
            .unwrap();
        let reason = harness.reason("named");
        assert_eq!((reason.code, reason.message.as_str()), (code, message));
        assert_eq!(reason.detail["field"], field.into());
        assert_eq!(harness.state("named"), StepState::Rejected);
        harness.apply(vec![ruled("rest", strict())]);
        harness.submit("nowhere", spec).unwrap();
        let reason = harness.reason("nowhere");
        assert_eq!(reason.message, message, "the most preferred pool's");
        assert!(reason.detail.contains_key("in rest"), "{reason:?}");
    }
}

#[test]
fn what_the_preferred_pool_fills_in_bars_pools_that_would_not_have_it() {
    let short = PoolSpec {
        max: StepMaxima {
            timeout: secs(10),
            ..StepMaxima::default()
        },
        ..PoolSpec::default()
    };
    let mut harness = two(strict(), short);
    harness.submit("a", silent()).unwrap();
    assert_eq!(
        harness.step("a").excluded_pools,
        ["rest".parse::<PoolName>().unwrap()].into()
    );
    assert_eq!(harness.placed("a").0, "n-best");
}

#[test]
fn a_policy_that_comes_later_opens_no_pool_whose_rules_it_broke() {
    let mut harness = two(PoolSpec::default(), PoolSpec::default());
    harness.apply(vec![ruled("late", closed())]);
    let wide = || StepSpec {
        request: spec(0, 4000).request,
        ..silent()
    };
    for id in ["a", "b", "c"] {
        harness.submit(id, wide()).unwrap();
    }
    let mut host = hello("n-late", 0, 4);
    host.pool = "late".parse().unwrap();
    harness.hello(host);
    harness.put_policy("late", "s", PolicySpec::default());
    assert_eq!(harness.state("c"), StepState::Queued);
    let waits: Vec<String> = harness
        .core
        .state()
        .queued_in(&"late".parse().unwrap())
        .map(|step| step.as_str().into())
        .collect();
    assert_eq!(waits, Vec::<String>::new());
}

#[test]
fn records_of_before_there_were_rules_read_as_none() {
    let record: crate::Record =
        serde_json::from_str(r#"{"type":"pool_put","pool":"p","description":""}"#).unwrap();
    assert!(
        matches!(record, crate::Record::PoolPut(record::PoolPut { spec, .. }) if spec == PoolSpec::default())
    );
}

#[test]
fn a_pool_s_way_to_have_processors_is_for_those_that_can_have_them_so() {
    let pinning = PoolSpec {
        defaults: StepDefaults {
            cpu_mode: Some(CpuMode::Pinned),
            ..StepDefaults::default()
        },
        ..PoolSpec::default()
    };
    let mut harness = two(pinning, PoolSpec::default());
    let asking = |mcpu| StepSpec {
        request: spec(0, mcpu).request,
        ..silent()
    };
    let with_mode = |mode| {
        saying(Setting::CpuMode, |spec| {
            (spec.cpu_mode, spec.request) = (mode, asking(1000).request);
        })
    };
    for (id, step, mode) in [
        ("whole", asking(2000), CpuMode::Pinned),
        ("parts", asking(500), CpuMode::Limit),
        ("none", asking(0), CpuMode::Limit),
        ("said", with_mode(CpuMode::Limit), CpuMode::Limit),
    ] {
        harness.submit(id, step.clone()).unwrap();
        assert_eq!(harness.step(id).spec.cpu_mode, mode, "{id}");
        let again = harness.submit(id, step).unwrap();
        assert!(!again.created, "{id}: what neither says is the same");
    }
    let rest: PoolName = "rest".parse().unwrap();
    assert!(harness.step("whole").excluded_pools.contains(&rest));
}
