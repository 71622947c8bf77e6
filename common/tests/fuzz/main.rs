//! Hostile bytes for everything that people write: names, amounts, selectors, assertions, and the documents of API and
//! CLI. Corpora and engine are those of `sluice-fuzz`.
#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fmt::Display;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_common::access::{BindingSpec, NamePattern, Resource, RoleSpec, Verb};
use sluice_common::amount::parse_memory;
use sluice_common::api::{
    ApiTokenRequest, ApplyRequest, BatchRequest, CordonRequest, DrainRequest, JoinTokenRequest,
    LabelsRequest, MoveRequest, UncordonRequest,
};
use sluice_common::cluster::ClusterSpec;
use sluice_common::credential::Fingerprint;
use sluice_common::exec::ExecRequest;
use sluice_common::id::{AttemptId, BootId, ClusterId, NodeName, StepId, Subject};
use sluice_common::inventory::{Capability, Inventory};
use sluice_common::label::{LabelChange, LabelKey, LabelValue};
use sluice_common::nearest::unknown_field;
use sluice_common::output::{mark, read_mark};
use sluice_common::platform::range::{Bytes, Range, Version};
use sluice_common::platform::spec::{NameList, PlatformSpec};
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::processors::CpuSet;
use sluice_common::request::StepRequest;
use sluice_common::selector::Selector;
use sluice_common::step::WorkKind;
use sluice_common::template::Template;
use sluice_common::template::variable::{fill, pieces};
use sluice_common::time::Span;
use sluice_common::validation::{Rule, RuleResult, StepFacts, ValidationSpec};
use sluice_fuzz::Fuzz;

/// A parsed value must print to a text that parses to the same value. Errors must be safe for a terminal.
fn comes_back<T: FromStr<Err: Display> + Display>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            let again = written.parse::<T>();
            let again = again.unwrap_or_else(|e| panic!("{text:?} was {written:?}: {e}"));
            assert_eq!(again.to_string(), written);
        }
        Err(error) => is_harmless(&error.to_string(), text.len()),
    }
}

/// Checks that a message is safe for a terminal and not many times as long as its input.
fn is_harmless(said: &str, about: usize) {
    assert!(!said.is_empty());
    let steers =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!said.chars().any(steers), "{said:?}");
    assert!(said.len() < 4000 + 16 * about, "{} bytes", said.len());
}

#[test]
fn words_and_amounts() {
    let words = [
        "in", "notin", "exists", "gpu", "KiB", "GB", "ms", "gpu-7", "rack=7", "rack-", "0-3,8-11",
    ];
    Fuzz::new("words")
        .words(&words)
        .max_bytes(600)
        .run(|input| {
            let Some((kind, text)) = kind_and_text(input) else {
                return;
            };
            match kind % 12 {
                0 => comes_back::<Selector>(text),
                1 => comes_back::<LabelChange>(text),
                2 => comes_back::<LabelKey>(text),
                3 => comes_back::<LabelValue>(text),
                4 => comes_back::<CpuSet>(text),
                5 => comes_back::<Span>(text),
                6 => comes_back::<WorkKind>(text),
                7 => comes_back::<AttemptId>(text),
                8 => comes_back::<Subject>(text),
                9 => comes_back::<Capability>(text),
                10 => comes_back::<NamePattern>(text),
                _ => amounts_and_names(text),
            }
        });
}

/// Platform specs, access rules, hashes, and marks of dropped output.
#[test]
fn terms_and_hashes() {
    let words = [
        ">=",
        "<",
        ",",
        "80GiB",
        "535.104",
        "get",
        "create",
        "steps",
        "nodes",
        "*",
        "a100, h100",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ];
    Fuzz::new("terms")
        .words(&words)
        .max_bytes(600)
        .run(|input| {
            if let Some(bytes) = input.first_chunk()
                && let Some(first_kept) = read_mark(*bytes)
            {
                assert_eq!(mark(first_kept), *bytes);
            }
            let Some((kind, text)) = kind_and_text(input) else {
                return;
            };
            match kind % 8 {
                0 => comes_back::<Range<Bytes>>(text),
                1 => comes_back::<Range<Version>>(text),
                2 => comes_back::<NameList>(text),
                3 => comes_back::<Verb>(text),
                4 => comes_back::<Resource>(text),
                5 => comes_back::<Fingerprint>(text),
                6 => comes_back::<ClusterId>(text),
                _ => comes_back::<BootId>(text),
            }
        });
}

fn kind_and_text(input: &[u8]) -> Option<(u8, &str)> {
    let (kind, text) = input.split_first()?;
    Some((*kind, std::str::from_utf8(text).ok()?))
}

fn amounts_and_names(text: &str) {
    if let Err(error) = parse_memory(text) {
        is_harmless(&error.to_string(), text.len());
    }
    if let Ok(name) = text.parse::<StepId>() {
        climbs_nowhere(name.as_str());
    }
    if let Ok(name) = text.parse::<NodeName>() {
        climbs_nowhere(name.as_str());
    }
}

/// Names become parts of paths, files and calls.
fn climbs_nowhere(name: &str) {
    let place = std::path::Path::new("/a").join(name);
    assert_eq!(place.parent(), Some(std::path::Path::new("/a")), "{name:?}");
    assert_eq!(place.file_name().and_then(|last| last.to_str()), Some(name));
    assert!(!name.contains(['?', '#', '%', ' ', '\\', '\0']), "{name:?}");
}

#[test]
fn assertions_of_validations() {
    let words = [
        "gpu_count",
        "cpu_count",
        "memory",
        "storage",
        "nodes",
        "node.memory",
        "node.labels[\"rack\"]",
        "work",
        "timeout",
        "preemptible",
        "subject",
        "labels.",
        "node.",
        "<=",
        ">=",
        "==",
        "!=",
        "<",
        ">",
        "+",
        "*",
        "/",
        "GiB",
        "90m",
        "\"notebook\"",
        "true",
        "0.9",
        "(",
        ")",
    ];
    let step: StepRequest =
        serde_json::from_str(r#"{"command":["a"],"resources":{"gpu_count":8,"memory":"1TB"}}"#)
            .unwrap();
    let spec = step.check().unwrap();
    // Rules have a length limit.
    Fuzz::new("assertions")
        .words(&words)
        .max_bytes(2000)
        .run(|input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            match Rule::parse(text) {
                Ok(rule) => {
                    if let RuleResult::Fails(failure) = rule.evaluate(&StepFacts(&spec)) {
                        is_harmless(&failure.values, text.len());
                    }
                }
                Err(error) => {
                    let said = error.to_string();
                    is_harmless(&said, text.len());
                    assert!(said.contains("column"), "it names a place: {said:?}");
                }
            }
        });
}

#[test]
fn variables_of_templates() {
    let words = [
        "{{",
        "}}",
        "{{subject}}",
        "{{mounts}}",
        "{{node}}",
        "{{ rank }}",
    ];
    Fuzz::new("variables").words(&words).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return;
        };
        match pieces(text) {
            // Unknown variables stay as written, except for blanks inside the braces.
            Ok(found) => {
                let filled = fill(text, |_| None);
                assert_eq!(pieces(&filled).unwrap(), found);
            }
            Err(error) => is_harmless(&error.to_string(), text.len()),
        }
    });
}

/// The first byte of an input selects the kind of document.
fn document<T: Serialize + DeserializeOwned>(json: &[u8]) -> Option<T> {
    match serde_json::from_slice::<T>(json) {
        Ok(value) => {
            let written = serde_json::to_string(&value).unwrap();
            let again = serde_json::from_str::<T>(&written);
            let again = again.unwrap_or_else(|e| panic!("it was written as {written}: {e}"));
            assert_eq!(serde_json::to_string(&again).unwrap(), written);
            Some(value)
        }
        Err(error) => {
            // The suggestion is extracted from the parser's message.
            let said = error.to_string();
            let _hint = unknown_field(&said);
            None
        }
    }
}

const WORDS: &[&str] = &[
    "\"command\":",
    "\"resources\":",
    "\"gpu_count\":",
    "\"memory\":",
    "\"env\":",
    "\"labels\":",
    "\"pool\":",
    "\"subject\":",
    "\"name\":",
    "\"priority\":",
    "\"reserved\":",
    "\"max\":",
    "\"defaults\":",
    "\"platforms\":",
    "\"selector\":",
    "\"assertions\":",
    "\"assert\":",
    "\"message\":",
    "\"wrapper\":",
    "\"mounts\":",
    "\"hooks\":",
    "\"limits\":",
    "\"rules\":",
    "\"verbs\":",
    "\"resources\":",
    "\"timeout\":",
    "\"kind\":",
    "\"replicas\":",
    "\"nodes\":",
    "\"on_preempt\":",
    "\"add\":",
    "\"replace\":",
    "\"path\":",
    "\"as\":",
];

#[test]
fn documents() {
    Fuzz::new("documents")
        .words(WORDS)
        .memory(4 << 20, 2048)
        .run(|input| {
            let Some((kind, json)) = input.split_first() else {
                return;
            };
            match kind % 20 {
                0 => step(json),
                1 => template(json),
                2 => validation(json),
                3 => drop(document::<PlatformSpec>(json)),
                4 => drop(document::<PoolSpec>(json)),
                5 => drop(document::<PolicySpec>(json)),
                6 => drop(document::<RoleSpec>(json)),
                7 => drop(document::<BindingSpec>(json)),
                8 => drop(document::<ClusterSpec>(json)),
                9 => drop(document::<ExecRequest>(json)),
                10 => drop(document::<ApplyRequest>(json)),
                11 => drop(document::<BatchRequest>(json)),
                12 => drop(document::<JoinTokenRequest>(json)),
                13 => drop(document::<ApiTokenRequest>(json)),
                14 => drop(document::<CordonRequest>(json)),
                15 => drop(document::<DrainRequest>(json)),
                16 => drop(document::<MoveRequest>(json)),
                17 => drop(document::<UncordonRequest>(json)),
                18 => drop(document::<LabelsRequest>(json)),
                _ => drop(document::<Inventory>(json)),
            }
        });
}

fn step(json: &[u8]) {
    let Some(request) = document::<StepRequest>(json) else {
        return;
    };
    if let Err(error) = request.check() {
        let said = error.to_string();
        is_harmless(&said, json.len());
    }
}

fn template(json: &[u8]) {
    let Some(template) = document::<Template>(json) else {
        return;
    };
    match template.check() {
        Ok(()) => {
            let twice = template.clone().over(template.clone());
            assert_eq!(twice, template, "a layer over itself is itself");
        }
        Err(error) => is_harmless(&error.to_string(), json.len()),
    }
}

fn validation(json: &[u8]) {
    let Some(terms) = document::<ValidationSpec>(json) else {
        return;
    };
    if let Err(error) = terms.read() {
        let said = error.to_string();
        is_harmless(&said, json.len());
        assert!(said.starts_with(&error.field), "it names a field: {said}");
    }
}
