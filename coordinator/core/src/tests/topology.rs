//! Tests of the topology: levels by labels, and gangs that run within a domain.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::step::StepSpec;
use sluice_common::supervision::Exit;
use sluice_common::topology::{DomainRequest, TopologyLevel, TopologySpec};

use super::harness::*;
use crate::{Answer, Desired, Input, NodeChange, ReplyId, TermsChange};

fn topology(levels: &[&str]) -> Desired {
    let levels = levels.iter().map(|name| TopologyLevel {
        name: name.parse().unwrap(),
        label: name.parse().unwrap(),
    });
    Desired::Topology {
        terms: TopologySpec {
            levels: levels.collect(),
        },
    }
}

/// Hosts `a` to `d` with one GPU each: `a` and `c` in rack 1, `b` and `d` in rack 2.
fn harness() -> Harness {
    let mut harness = Harness::new();
    harness.start();
    harness.apply(vec![topology(&["rack"])]);
    for (name, rack) in [("a", "1"), ("b", "2"), ("c", "1"), ("d", "2")] {
        let mut words = hello(name, 1, 4);
        words.labels = [(String::from("rack"), String::from(rack))].into();
        harness.hello(words);
    }
    harness
}

fn pair(level: &str, required: bool) -> StepSpec {
    StepSpec {
        nodes: 2,
        within: Some(DomainRequest {
            level: level.parse().unwrap(),
            required,
        }),
        ..spec(1, 1000)
    }
}

fn hosts(harness: &Harness, id: &str) -> Vec<String> {
    let parts = &harness.step(id).latest().unwrap().parts;
    parts.iter().map(|part| part.node.to_string()).collect()
}

#[test]
fn a_gang_runs_within_a_rack_and_waits_for_one() {
    let mut harness = harness();
    harness.submit("x", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("x").0, "a");
    harness.submit("g", pair("rack", true)).unwrap();
    assert_eq!(hosts(&harness, "g"), ["b", "d"]);
    harness.submit("h", pair("rack", true)).unwrap();
    assert_eq!(harness.state("h"), StepState::Queued);
    let reason = harness.reason("h");
    assert_eq!(reason.code, ReasonCode::WaitingForUnits);
    assert_eq!(
        reason.message,
        "it asks for 2 hosts within one `rack` of pool `default`: `1`, which comes closest, has 1 with room for it now"
    );
    harness.status("a", "x.1", released(Exit::Code(0)));
    assert_eq!(hosts(&harness, "h"), ["a", "c"]);
}

#[test]
fn a_gang_that_prefers_a_rack_starts_on_two() {
    let mut harness = harness();
    for host in ["a", "b"] {
        harness.change(host, NodeChange::Cordon { reason: None });
    }
    harness.submit("g", pair("rack", false)).unwrap();
    assert_eq!(hosts(&harness, "g"), ["c", "d"]);
}

#[test]
fn ranks_follow_the_topology() {
    let mut harness = harness();
    let all = StepSpec {
        nodes: 4,
        ..spec(1, 1000)
    };
    harness.submit("g", all).unwrap();
    assert_eq!(hosts(&harness, "g"), ["a", "c", "b", "d"]);
}

#[test]
fn what_no_domain_could_hold_is_rejected() {
    let mut harness = harness();
    let three = StepSpec {
        nodes: 3,
        ..pair("rack", true)
    };
    harness.submit("g", three).unwrap();
    assert_eq!(harness.state("g"), StepState::Rejected);
    assert_eq!(
        harness.reason("g").message,
        "it asks for 3 hosts within one `rack` of pool `default` that are large enough: `1`, which comes closest, has 2"
    );
    harness.submit("row", pair("row", true)).unwrap();
    assert_eq!(
        harness.reason("row").message,
        "it asks for hosts within one `row`, which is no level of the topology: write one of `rack`"
    );
    harness.apply(vec![topology(&[])]);
    harness.submit("none", pair("rack", true)).unwrap();
    assert_eq!(harness.code("none"), ReasonCode::NoHostFits);
}

#[test]
fn a_new_label_moves_a_host_into_another_rack() {
    let mut harness = harness();
    harness.submit("x", spec(1, 1000)).unwrap();
    harness.submit("y", spec(1, 1000)).unwrap();
    assert_eq!(harness.placed("y").0, "b");
    harness.submit("g", pair("rack", true)).unwrap();
    assert_eq!(
        harness.state("g"),
        StepState::Queued,
        "c and d are of two racks"
    );
    let set = [("rack".parse().unwrap(), Some("1".parse().unwrap()))];
    harness.change("d", NodeChange::Label(set.into()));
    assert_eq!(hosts(&harness, "g"), ["c", "d"]);
}

#[test]
fn a_dry_run_of_a_topology_changes_nothing() {
    let mut harness = harness();
    let before = harness.core.state().clone();
    let effects = harness.feed(Input::Apply {
        reply: ReplyId(7),
        changes: vec![TermsChange {
            desired: topology(&["zone"]),
            version: None,
        }],
        force: false,
        dry_run: true,
    });
    assert!(matches!(effects.answers[..], [Answer::Applied(Ok(_))]));
    assert_eq!(*harness.core.state(), before);
    harness.submit("g", pair("rack", true)).unwrap();
    assert_eq!(hosts(&harness, "g"), ["a", "c"]);
    harness.restart(0);
    assert_eq!(harness.core.state().topology(), before.topology());
}
