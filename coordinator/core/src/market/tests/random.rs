//! Random pools, policies and requests, and what must hold whatever they are. Victims wait again for free, so that two
//! requests that could take each other's units for ever would be seen to.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::scenario::Play;

#[derive(Clone, Debug)]
struct World {
    declared: Option<u64>,
    licences: u64,
    hosts: Vec<u64>,
    policies: Vec<(u64, u64, u64, u64)>,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
enum Event {
    Submit {
        subject: usize,
        gpus: u64,
        licences: u64,
        preemptible: bool,
        nodes: u64,
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
              prop_oneof![6 => Just(1u64), 1 => Just(2u64)], prop_oneof![4 => Just(0i64), 1 => -1i64..3])
            .prop_map(|(subject, gpus, licences, preemptible, nodes, priority)| Event::Submit {
                subject, gpus, licences, preemptible, nodes, priority,
            }),
        4 => (0usize..32).prop_map(|nth| Event::Finish { nth }),
        1 => (0usize..3).prop_map(|host| Event::Lose { host }),
        2 => (0usize..3).prop_map(|host| Event::Back { host }),
        1 => (0u64..100).prop_map(|seconds| Event::Advance { seconds }),
    ]
}

fn world() -> impl Strategy<Value = World> {
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

fn case(world: &World) -> Value {
    let mut capacity = json!({"lic": world.licences});
    if let Some(declared) = world.declared {
        capacity["gpu"] = json!(declared);
    }
    let nodes: Vec<Value> = (0..)
        .zip(&world.hosts)
        .map(|(n, gpus): (usize, _)| json!({"name": format!("n{n}"), "pool": "p", "gpus": gpus, "mcpu": 64000}))
        .collect();
    let policies: Vec<Value> = (0..)
        .zip(&world.policies)
        .map(|(n, (priority, reserved, above, licences)): (usize, _)| {
            let mut policy = json!({
                "pool": "p", "subject": format!("s{n}"), "priority": priority,
                "reserved": {"gpu": reserved, "lic": licences},
            });
            if *above > 0 {
                policy["limit"] = json!({"gpu": reserved + above});
            }
            policy
        })
        .collect();
    json!({"pools": [{"name": "p", "capacity": capacity}], "nodes": nodes, "policies": policies})
}

fn op(n: usize, event: &Event, world: &World) -> Value {
    let host = |host: usize| format!("n{}", host % world.hosts.len());
    match event {
        Event::Submit {
            subject,
            gpus,
            licences,
            preemptible,
            nodes,
            priority,
        } => json!({
            "op": "submit", "request": format!("r{n}"), "subject": format!("s{subject}"),
            "resources": {"gpu": gpus, "lic": licences, "mcpu": 1000}, "preemptible": preemptible, "nodes": nodes,
            "priority": priority, "retries": 1_000_000,
        }),
        Event::Finish { nth } => json!({"op": "finish", "nth": nth}),
        Event::Lose { host: h } => json!({"op": "node_lost", "node": host(*h)}),
        Event::Back { host: h } => json!({"op": "node_back", "node": host(*h)}),
        Event::Advance { seconds } => json!({"op": "advance", "seconds": seconds}),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    /// It settles after every event, over nobody's capacity, limit or reservation, and every victim's waiter starts.
    #[test]
    fn it_settles_and_keeps_its_promises(world in world()) {
        let mut play = Play::set_up(&case(&world));
        for (n, event) in world.events.iter().enumerate() {
            let mut event = op(n, event, &world);
            if let Some(nth) = event["nth"].as_u64() {
                let Some(running) = play.nth_running(nth) else { continue };
                event["request"] = json!(running.to_string());
            }
            play.play(&event);
            play.check_settled();
        }
    }
}

/// More by hand: `SLUICE_MARKET_CASES=100000`.
fn cases() -> u32 {
    std::env::var("SLUICE_MARKET_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(500)
}
