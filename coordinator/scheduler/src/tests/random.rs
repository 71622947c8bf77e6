//! Random pools, policies and requests, and properties that must always hold. Victims wait again, so two requests
//! that preempt each other forever would be noticed.

use alloc::format;
use alloc::vec::Vec;

use proptest::prelude::*;
use sluice_common::id::{NodeName, PoolName, Subject};

use super::check::{check, check_settled};
use super::harness::{PoolRules, SchedulerHarness, Submission};
use super::judge::{GPU, JudgedAmounts, JudgedClass, LIC, MCPU};

#[derive(Clone, Debug)]
pub(super) struct RandomScenario {
    declared: Option<u64>,
    licences: u64,
    hosts: Vec<u64>,
    policies: Vec<(u64, u64, u64, u64)>,
    pub(super) events: Vec<RandomEvent>,
}

#[derive(Clone, Debug)]
pub(super) enum RandomEvent {
    Submit {
        subject: usize,
        gpus: u64,
        licences: u64,
        preemptible: bool,
        nodes: u32,
        priority: i64,
    },
    Finish {
        nth: usize,
    },
    Lose {
        host: usize,
    },
    Back {
        host: usize,
    },
    Advance {
        seconds: u64,
    },
}

fn event() -> impl Strategy<Value = RandomEvent> {
    prop_oneof![
        8 => (0usize..3, 0u64..5, prop_oneof![4 => Just(0u64), 1 => 1u64..3], any::<bool>(),
              prop_oneof![6 => Just(1u32), 1 => Just(2u32)], prop_oneof![4 => Just(0i64), 1 => -1i64..3])
            .prop_map(|(subject, gpus, licences, preemptible, nodes, priority)| RandomEvent::Submit {
                subject, gpus, licences, preemptible, nodes, priority,
            }),
        4 => (0usize..32).prop_map(|nth| RandomEvent::Finish { nth }),
        1 => (0usize..3).prop_map(|host| RandomEvent::Lose { host }),
        2 => (0usize..3).prop_map(|host| RandomEvent::Back { host }),
        1 => (0u64..100).prop_map(|seconds| RandomEvent::Advance { seconds }),
    ]
}

pub(super) fn scenario() -> impl Strategy<Value = RandomScenario> {
    let policy = (0u64..3, 0u64..5, 0u64..5, 0u64..3);
    (
        proptest::option::of(1u64..13),
        0u64..4,
        proptest::collection::vec(1u64..6, 1..4),
        proptest::collection::vec(policy, 3),
        proptest::collection::vec(event(), 1..40),
    )
        .prop_map(
            |(declared, licences, hosts, policies, events)| RandomScenario {
                declared,
                licences,
                hosts,
                policies,
                events,
            },
        )
}

pub(super) fn pool() -> PoolName {
    PoolName::new("p").unwrap()
}

fn node(n: usize, scenario: &RandomScenario) -> NodeName {
    NodeName::new(format!("n{}", n % scenario.hosts.len())).unwrap()
}

fn subject(n: usize) -> Subject {
    Subject::new(format!("s{n}")).unwrap()
}

pub(super) fn set_up(scenario: &RandomScenario) -> SchedulerHarness {
    let mut harness = SchedulerHarness::new(false);
    let mut declared = Vec::from([(LIC, scenario.licences)]);
    declared.extend(scenario.declared.map(|gpus| (GPU, gpus)));
    harness.put_pool(&pool(), &declared, 0, PoolRules::default());
    for (n, gpus) in scenario.hosts.iter().enumerate() {
        let mut has = JudgedAmounts::default();
        (has[GPU], has[MCPU]) = (*gpus, 64_000);
        harness.put_host(&node(n, scenario), &pool(), has, true);
    }
    for (n, (priority, reserved, above, licences)) in scenario.policies.iter().enumerate() {
        let limit = (*above > 0).then(|| (GPU, reserved + above));
        let reserved = [(GPU, *reserved), (LIC, *licences)];
        // A rejected policy leaves its subject without one.
        harness.put_policy(&pool(), &subject(n), *priority, &reserved, limit.as_slice());
    }
    harness
}

pub(super) fn play(
    harness: &mut SchedulerHarness,
    n: usize,
    event: &RandomEvent,
    scenario: &RandomScenario,
) {
    match event {
        RandomEvent::Submit {
            subject,
            gpus,
            licences,
            preemptible,
            nodes,
            priority,
        } => {
            let mut each = JudgedAmounts::default();
            (each[GPU], each[MCPU], each[LIC]) = (*gpus, 1000, *licences);
            // A step that could never run does not matter here.
            let _ = harness.submit(&Submission {
                subject: self::subject(*subject),
                each,
                class: JudgedClass::Whole,
                nodes: *nodes,
                user: None,
                priority: *priority,
                preemptible: *preemptible,
                pool: None,
                suspends: n.is_multiple_of(3),
                platforms: Vec::new(),
                one_rack: None,
                time_limit: None,
            });
        }
        RandomEvent::Finish { nth } => {
            let running = harness.scheduler.runs().count();
            let nth = nth.checked_rem(running);
            let run = nth.and_then(|nth| harness.scheduler.runs().nth(nth));
            if let Some(id) = run.map(|(id, _)| id.clone()) {
                harness.finish(&id);
            }
        }
        RandomEvent::Lose { host } => harness.lose_host(&node(*host, scenario)),
        RandomEvent::Back { host } => harness.open(&node(*host, scenario), true),
        RandomEvent::Advance { seconds } => {
            let passed = harness.pass(seconds * 1000);
            assert!(passed.is_ok(), "{passed:?} of {}", harness.history);
        }
    }
}

pub(super) fn settle(harness: &mut SchedulerHarness) {
    check(&harness.scheduler);
    let settled = harness.settle_with(check);
    assert!(settled.is_ok(), "{settled:?} of {}", harness.history);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    /// The scheduler settles after every event, exceeds no capacity, limit or reserved share, and every preempting
    /// request starts.
    #[test]
    fn it_settles_and_keeps_its_promises(scenario in scenario()) {
        let mut harness = set_up(&scenario);
        for (n, event) in scenario.events.iter().enumerate() {
            play(&mut harness, n, event, &scenario);
            settle(&mut harness);
            check_settled(&harness.scheduler);
        }
    }
}

/// More by hand: `SLUICE_SCHEDULER_CASES=100000`.
pub(super) fn cases() -> u32 {
    std::env::var("SLUICE_SCHEDULER_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(500)
}
