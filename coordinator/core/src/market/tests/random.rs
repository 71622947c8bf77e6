//! Random pools, policies and requests, and what must hold whatever they are. Victims wait again for free, so that two
//! requests that could take each other's units for ever would be seen to.

use alloc::format;
use alloc::vec::Vec;

use proptest::prelude::*;
use sluice_common::amount::{Amounts, GPU, Key, MCPU};
use sluice_common::id::{NodeName, PoolName, StepId, Subject};
use sluice_common::step::OnPreempt;
use sluice_common::time::{Span, Time};

use super::check::{check, check_settled};
use crate::market::{Policy, PoolTerms, Table};
use crate::simulation::{HostSize, Job, Simulation};

/// No event of these needs as many.
const MOVES: usize = 10_000;

#[derive(Clone, Debug)]
pub(super) struct World {
    declared: Option<u64>,
    licences: u64,
    hosts: Vec<u64>,
    policies: Vec<(u64, u64, u64, u64)>,
    pub(super) events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
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

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0usize..3, 0u64..5, prop_oneof![4 => Just(0u64), 1 => 1u64..3], any::<bool>(),
              prop_oneof![6 => Just(1u32), 1 => Just(2u32)], prop_oneof![4 => Just(0i64), 1 => -1i64..3])
            .prop_map(|(subject, gpus, licences, preemptible, nodes, priority)| Event::Submit {
                subject, gpus, licences, preemptible, nodes, priority,
            }),
        4 => (0usize..32).prop_map(|nth| Event::Finish { nth }),
        1 => (0usize..3).prop_map(|host| Event::Lose { host }),
        2 => (0usize..3).prop_map(|host| Event::Back { host }),
        1 => (0u64..100).prop_map(|seconds| Event::Advance { seconds }),
    ]
}

pub(super) fn world() -> impl Strategy<Value = World> {
    let policy = (0u64..3, 0u64..5, 0u64..5, 0u64..3);
    (
        proptest::option::of(1u64..13),
        0u64..4,
        proptest::collection::vec(1u64..6, 1..4),
        proptest::collection::vec(policy, 3),
        proptest::collection::vec(event(), 1..40),
    )
        .prop_map(|(declared, licences, hosts, policies, events)| World {
            declared,
            licences,
            hosts,
            policies,
            events,
        })
}

fn table(pairs: &[(&str, u64)]) -> Table {
    let pairs = pairs.iter();
    pairs
        .map(|(key, n)| (Key::new(*key).unwrap(), *n))
        .collect()
}

pub(super) fn pool() -> PoolName {
    PoolName::new("p").unwrap()
}

fn node(n: usize, world: &World) -> NodeName {
    NodeName::new(format!("n{}", n % world.hosts.len())).unwrap()
}

fn subject(n: usize) -> Subject {
    Subject::new(format!("s{n}")).unwrap()
}

pub(super) fn set_up(world: &World) -> Simulation {
    let mut simulation = Simulation::new(Time::from_unix_millis(1_000_000_000));
    let mut declared = table(&[("lic", world.licences)]);
    declared.extend(world.declared.map(|gpus| (Key::new(GPU).unwrap(), gpus)));
    let terms = PoolTerms {
        declared,
        min_runtime: Span::ZERO,
        ..PoolTerms::default()
    };
    simulation.put_pool(&pool(), terms);
    for (n, gpus) in world.hosts.iter().enumerate() {
        let size = HostSize {
            gpus: *gpus,
            mcpu: Some(64_000),
            ..HostSize::default()
        };
        simulation.put_host(&node(n, world), &pool(), size).unwrap();
    }
    for (n, policy) in world.policies.iter().enumerate() {
        let put = simulation.put_policy(&pool(), &subject(n), self::policy(*policy));
        // One that the pool cannot keep leaves its subject without.
        let _ = put.unwrap();
    }
    simulation
}

fn policy((priority, reserved, above, licences): (u64, u64, u64, u64)) -> Policy {
    let limit = (above > 0).then(|| table(&[(GPU, reserved + above)]));
    Policy {
        priority,
        reserved: table(&[(GPU, reserved), ("lic", licences)]),
        limit: limit.unwrap_or_default(),
    }
}

pub(super) fn play(simulation: &mut Simulation, n: usize, event: &Event, world: &World) {
    match event {
        Event::Submit {
            subject,
            gpus,
            licences,
            preemptible,
            nodes,
            priority,
        } => {
            let resources = Amounts::new().with(GPU, *gpus).with(MCPU, 1000);
            let resources = resources.with("lic", *licences);
            let job = Job {
                step: StepId::new(format!("r{n}")).unwrap(),
                subject: self::subject(*subject),
                resources,
                nodes: *nodes,
                priority: *priority,
                preemptible: *preemptible,
                pool: None,
                platforms: Vec::new(),
                retries: 1_000_000,
                free_preemptions: false,
                on_preempt: if n.is_multiple_of(3) {
                    OnPreempt::Suspend
                } else {
                    OnPreempt::Requeue
                },
            };
            // One that could never run is no part of what follows.
            let _ = simulation.submit(job).unwrap();
        }
        Event::Finish { nth } => {
            let running = simulation.market().runs().count();
            let nth = nth.checked_rem(running);
            let run = nth.and_then(|nth| simulation.market().runs().nth(nth));
            if let Some(step) = run.map(|(id, _)| id.step.clone()) {
                simulation.finish(&step).unwrap();
            }
        }
        Event::Lose { host } => simulation.lose(&node(*host, world)).unwrap(),
        Event::Back { host } => simulation.open(&node(*host, world), true).unwrap(),
        Event::Advance { seconds } => {
            simulation.advance(simulation.now() + Span::from_secs(*seconds));
        }
    }
}

pub(super) fn settle(simulation: &mut Simulation) {
    check(simulation.market());
    for _ in 0..MOVES {
        if !simulation.make_next_move() {
            return;
        }
        check(simulation.market());
    }
    panic!("it thrashes");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    /// It settles after every event, over nobody's capacity, limit or reservation, and every victim's waiter starts.
    #[test]
    fn it_settles_and_keeps_its_promises(world in world()) {
        let mut simulation = set_up(&world);
        for (n, event) in world.events.iter().enumerate() {
            play(&mut simulation, n, event, &world);
            settle(&mut simulation);
            check_settled(simulation.market());
        }
    }
}

/// More by hand: `SLUICE_MARKET_CASES=100000`.
pub(super) fn cases() -> u32 {
    std::env::var("SLUICE_MARKET_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(500)
}
