//! Tests of the amounts that a pool gives to steps which leave them out.

use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use sluice_common::amount::{MCPU, MEMORY_MB, ResourceKey};
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::pool_rules::StepDefaults;
use sluice_common::request::StepRequest;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;

use super::harness::*;
use crate::input::DesiredPool;
use crate::{Desired, uncounted};

/// A step of these resources, as a caller writes them.
fn asks(resources: &str) -> StepSpec {
    let body = std::format!(r#"{{"command":["true"],"subject":"s","resources":{{{resources}}}}}"#);
    serde_json::from_str::<StepRequest>(&body)
        .unwrap()
        .check()
        .unwrap()
}

fn pool(name: &str, spec: PoolSpec) -> Desired {
    Desired::Pool {
        pool: name.parse().unwrap(),
        terms: alloc::boxed::Box::new(DesiredPool::from(spec)),
    }
}

fn limited(key: &str, limit: u64) -> PolicySpec {
    PolicySpec {
        limit: [(ResourceKey::new(key).unwrap(), limit)].into(),
        ..PolicySpec::default()
    }
}

/// A host of four cores, 4 GB of memory and this many GPUs, in the pool that is there from the start.
fn cluster(gpus: u32) -> Harness {
    let mut harness = Harness::one_node(gpus, 4);
    harness.put_policy("default", "s", PolicySpec::default());
    harness
}

fn held(harness: &Harness, id: &str) -> (u64, u64) {
    let request = &harness.step(id).spec.request;
    (request.get(MCPU), request.get(MEMORY_MB))
}

fn told(harness: &Harness, id: &str) -> Vec<String> {
    let uncounted = uncounted(harness.step(id)).into_iter();
    uncounted.map(|it| it.to_string()).collect()
}

#[test]
fn steps_that_say_nothing_do_not_all_run_at_once() {
    let mut harness = cluster(0);
    let cores_only = StepDefaults {
        memory: 0,
        ..StepDefaults::of_new_pool()
    };
    let defaults = PoolSpec {
        defaults: cores_only,
        ..PoolSpec::default()
    };
    harness.apply(vec![pool("default", defaults)]);
    for n in 0..25 {
        harness.submit(&std::format!("x{n}"), asks("")).unwrap();
    }
    let steps = harness.core.state().steps().values();
    let waiting = steps.filter(|step| step.state == StepState::Queued);
    assert_eq!(waiting.count(), 21);
    let default = "default".parse().unwrap();
    let free = harness
        .core
        .state()
        .scheduler()
        .pool(&default)
        .unwrap()
        .free();
    assert_eq!(free.get(MCPU), 0);
    let why = harness.reason("x24").message;
    assert!(
        why.contains("it asks for 1 core (default of pool `default`), and `n`"),
        "{why}"
    );
}

#[test]
fn each_amount_is_of_the_first_that_states_it() {
    let mut harness = cluster(1);
    for (id, resources, amounts) in [
        ("nothing", "", (1000, 2148)),
        ("cores", r#""cpu_count":2"#, (2000, 2148)),
        ("memory", r#""memory":"1GB""#, (1000, 1000)),
        ("custom", r#""pool_resources":{"cpu":3}"#, (3000, 2148)),
        ("zero", r#""cpu_count":0,"memory":"0B""#, (0, 0)),
        ("gpus", r#""gpu_count":1"#, (0, 0)),
    ] {
        harness.submit(id, asks(resources)).unwrap();
        assert_eq!(held(&harness, id), amounts, "{id}");
    }
    let merged = harness.core.merged(harness.step("cores"), None);
    let origin = |field: &str| merged.origins[field].to_string();
    assert_eq!(origin("resources.cpu_count"), "step");
    assert_eq!(origin("resources.memory"), "pool default, defaults");
    let resources = &merged.template.resources;
    assert_eq!(resources.memory.as_deref(), Some("2GiB"));
    assert_eq!(told(&harness, "nothing"), Vec::<String>::new());
    assert_eq!(told(&harness, "gpus"), Vec::<String>::new());
    assert_eq!(
        told(&harness, "zero"),
        ["cpu", "memory"].map(|key| std::format!(
            "it asks for 0 {key}: what it uses is not counted, and others start beside it as if it used none"
        ))
    );
}

#[test]
fn a_default_makes_no_step_impossible() {
    let firm = || StepSpec {
        preemptible: false,
        ..asks("")
    };
    // A limit below the default.
    let mut harness = cluster(0);
    harness.put_policy("default", "s", limited(MCPU, 500));
    harness.submit("limited", asks("")).unwrap();
    assert_eq!(held(&harness, "limited"), (0, 2148));
    // Nothing is reserved of a key that counts, and the step may hold nothing else.
    harness.submit("firm", firm()).unwrap();
    assert_eq!(held(&harness, "firm"), (0, 0));
    let reserved = PolicySpec {
        reserved: [(ResourceKey::new(MCPU).unwrap(), 2000)].into(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", "s", reserved);
    harness.submit("reserved", firm()).unwrap();
    assert_eq!(held(&harness, "reserved"), (1000, 0));
    // The host is smaller.
    let mut harness = Harness::one_node(0, 1);
    harness.put_policy("default", "s", PolicySpec::default());
    harness.submit("small", asks("")).unwrap();
    assert_eq!(held(&harness, "small"), (1000, 0));
    assert_eq!(harness.state("small"), StepState::Allocated);
    assert_eq!(
        told(&harness, "small"),
        [
            "it could never start with the default memory of pool `default`, and so it has none: what it uses is not \
          counted, and others start beside it as if it used none"
        ]
    );
    // What it asks for itself is still refused.
    harness.submit("large", asks(r#""cpu_count":2"#)).unwrap();
    assert_eq!(harness.state("large"), StepState::Rejected);
}

#[test]
fn a_pool_is_without_defaults_if_it_was_before_or_says_so() {
    let mut harness = cluster(0);
    harness.apply(vec![pool("default", PoolSpec::default())]);
    harness.submit("x", asks("")).unwrap();
    assert_eq!(held(&harness, "x"), (0, 0));
    // Documents of new pools have the defaults, whatever they leave out.
    for (document, defaults) in [
        ("{}", (1000, 2148)),
        (r#"{"defaults":{"timeout":"1h"}}"#, (1000, 2148)),
        (r#"{"defaults":{"cpu":0.5,"memory":0}}"#, (500, 0)),
        (r#"{"defaults":{"cpu":0}}"#, (0, 2148)),
    ] {
        let spec: PoolSpec = serde_json::from_str(document).unwrap();
        assert_eq!((spec.defaults.cpu, spec.defaults.memory), defaults);
        let again = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<PoolSpec>(&again).unwrap(), spec);
    }
    let refused = serde_json::from_str::<PoolSpec>(r#"{"defaults":{"memory":2}}"#).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("2 has no unit: write such as `2GiB`")
    );
}

#[test]
fn what_a_stored_step_holds_outlives_its_pools_defaults() {
    let mut harness = cluster(0);
    harness.submit("before", asks("")).unwrap();
    harness.apply(vec![pool("default", PoolSpec::default())]);
    harness.submit("after", asks("")).unwrap();
    harness.restart(0);
    assert_eq!(held(&harness, "before"), (1000, 2148));
    assert_eq!(held(&harness, "after"), (0, 0));
    // The same submit again is the same step.
    let again = harness.submit("before", asks("")).unwrap();
    assert!(!again.created);
}
