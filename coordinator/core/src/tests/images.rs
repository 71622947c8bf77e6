//! Tests of steps in images: only hosts with a container runtime for the image are chosen.

use alloc::borrow::ToOwned;
use std::format;
use std::string::String;
use std::vec;

use sluice_common::container::ContainerMount;
use sluice_common::image::{ContainerRuntime, ContainerRuntimes};
use sluice_common::inventory::Inventory;
use sluice_common::pool::PolicySpec;
use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;
use sluice_common::wire::{FromNode, Hello, ToNode};

use super::harness::*;
use super::overrides::{applied, asks, pool};
use crate::Desired;
use crate::input::{Input, NewStep, ReplyId};

const OF_REGISTRY: &str = r#","image":"docker.io/library/python:3.12""#;
const OF_FILE: &str = r#","image":"/images/train.sif""#;

fn runtimes(names: &[ContainerRuntime]) -> ContainerRuntimes {
    names.iter().map(|it| (*it, "1.0".to_owned())).collect()
}

fn with(name: &str, names: &[ContainerRuntime]) -> Inventory {
    Inventory {
        container_runtimes: runtimes(names),
        ..inventory(name, 0, 64)
    }
}

/// Hosts without GPUs, each with its runtimes.
fn hosts(named: &[(&str, &[ContainerRuntime])]) -> Harness {
    let mut harness = Harness::new();
    harness.start();
    for (name, names) in named {
        harness.hello(Hello {
            inventory: with(name, names),
            ..hello(name, 0, 64)
        });
    }
    harness.put_policy("default", "s", PolicySpec::default());
    harness
}

fn small(image: &str) -> String {
    format!(r#"{image},"resources":{{"cpu_count":1}}"#)
}

#[test]
fn a_step_goes_to_a_host_that_runs_its_form_of_image() {
    use ContainerRuntime::{Apptainer, Bubblewrap, Podman};
    let mut harness = hosts(&[
        ("a", &[]),
        ("b", &[Bubblewrap]),
        ("c", &[Podman]),
        ("d", &[Apptainer]),
    ]);
    for (id, image, at) in [
        ("of-file", OF_FILE, &["d"][..]),
        ("of-directory", r#","image":"/images/root""#, &["b", "d"]),
        ("of-registry", OF_REGISTRY, &["c", "d"]),
        ("of-host", "", &["a", "b", "c", "d"]),
    ] {
        harness.submit(id, asks(&small(image))).unwrap();
        let placed = harness.placed(id).0;
        assert!(at.contains(&placed.as_str()), "{id} is on {placed}");
    }
    // More of one class than its hosts hold leave the others to those who can use them.
    for n in 0..64 {
        let id = format!("file-{n}");
        harness.submit(&id, asks(&small(OF_FILE))).unwrap();
        if harness.state(&id) == StepState::Queued {
            assert_eq!(harness.reason(&id).code, ReasonCode::WaitingForUnits);
        } else {
            assert_eq!(harness.placed(&id).0, "d");
        }
    }
}

#[test]
fn where_no_host_has_a_runtime_a_step_is_rejected_or_waits_for_one() {
    let mut harness = hosts(&[("a", &[]), ("b", &[ContainerRuntime::Podman])]);
    harness.submit("never", asks(&small(OF_FILE))).unwrap();
    assert_eq!(harness.state("never"), StepState::Rejected);
    let reason = harness.reason("never");
    assert_eq!(reason.code, ReasonCode::NoHostFits);
    let expected = "`a` is large enough but has no container runtime that runs a `.sif` image: \
                    install apptainer or singularity there; one more host does not admit it either";
    assert!(reason.message.contains(expected), "{}", reason.message);
    let pends = format!(r#"{},"allow_pending":true"#, small(OF_FILE));
    harness.submit("pends", asks(&pends)).unwrap();
    assert_eq!(harness.state("pends"), StepState::Queued);
    harness.restart(0);
    harness.hello(hello("a", 0, 64));
    let message = harness.reason("pends").message;
    assert!(message.contains("install apptainer"), "{message}");
    let installed = with("a", &[ContainerRuntime::Singularity]);
    let effects = harness.say("a", FromNode::Inventory(installed.into()));
    assert_eq!(effects.orders, ["assign pends.1"]);
}

#[test]
fn a_gang_needs_a_runtime_on_each_of_its_hosts() {
    let podman: &[ContainerRuntime] = &[ContainerRuntime::Podman];
    let mut harness = hosts(&[("a", podman), ("b", &[]), ("c", podman)]);
    let gang = |hosts| format!(r#"{},"nodes":{hosts}"#, small(OF_REGISTRY));
    harness.submit("two", asks(&gang(2))).unwrap();
    assert_eq!(harness.state("two"), StepState::Allocated);
    harness.submit("three", asks(&gang(3))).unwrap();
    assert_eq!(harness.state("three"), StepState::Rejected);
    let message = harness.reason("three").message;
    assert!(
        message.contains("`b` is large enough but has no"),
        "{message}"
    );
}

#[test]
fn nobody_is_stopped_on_a_host_that_cannot_run_the_image() {
    let podman: &[ContainerRuntime] = &[ContainerRuntime::Podman];
    let mut harness = hosts(&[("a", &[]), ("b", podman)]);
    let vip = PolicySpec {
        priority: 9,
        ..PolicySpec::default()
    };
    harness.put_policy("default", "vip", vip);
    let whole = r#","resources":{"cpu_count":64}"#;
    let of_vip = |fields: String| {
        let mut spec = asks(&fields);
        spec.subject = "vip".parse().unwrap();
        spec
    };
    let image = format!("{OF_REGISTRY}{whole}");
    harness.submit("x", of_vip(image.clone())).unwrap();
    harness.submit("y", asks(whole)).unwrap();
    harness.submit("z", of_vip(image)).unwrap();
    assert_eq!(harness.placed("x").0, "b");
    assert_eq!(harness.placed("y").0, "a");
    assert_eq!(harness.step("y").latest().unwrap().stopping, None);
    assert_eq!(harness.state("z"), StepState::Queued);
}

#[test]
fn a_host_gets_the_image_and_what_the_container_shows() {
    let mut harness = hosts(&[("a", &[ContainerRuntime::Podman])]);
    let template = r#"{"mounts":[{"name":"work","source":"{{workdir}}","target":"/work"}],
        "allowed_mounts":[{"name":"sets","source":"/data","read_only":true}]}"#;
    let template = Desired::Template {
        template: "base".parse().unwrap(),
        terms: alloc::boxed::Box::new(serde_json::from_str(template).unwrap()),
    };
    applied(&mut harness, vec![template, pool(None, &[])]).unwrap();
    let fields = format!(
        r#"{},"mounts":[{{"name":"sets","source":"/data/sets","read_only":true}}]"#,
        small(OF_REGISTRY)
    );
    let effects = harness.feed(Input::Submit {
        reply: ReplyId(7),
        steps: vec![NewStep::new(step("a"), asks(&fields))],
    });
    let [ToNode::Assign(assignment)] = &effects.sent[..] else {
        panic!("{:?}", effects.sent)
    };
    let container = assignment.container.as_ref().unwrap();
    assert_eq!(container.image.as_str(), "docker.io/library/python:3.12");
    assert_eq!(container.runtime, None, "the host chooses");
    let mount = |source: &str, target: &str, read_only| ContainerMount {
        source: source.into(),
        target: target.into(),
        read_only,
    };
    let expected = [
        mount("{{workdir}}", "/work", false),
        mount("/data/sets", "/data/sets", true),
    ];
    assert_eq!(container.mounts, expected);
    let without = fields.replace(OF_REGISTRY, "");
    harness.submit("b", asks(&without)).unwrap();
    let message = harness.reason("b").message;
    assert!(
        message.contains("it has no image and no wrapper"),
        "{message}"
    );
}
