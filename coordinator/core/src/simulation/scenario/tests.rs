//! The published cases, and what files may not say.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::json;

use super::{Case, Difference};

fn differs(case: &Case) -> Vec<Difference> {
    case.differences(&case.play().unwrap())
}

fn case(json: serde_json::Value) -> Case {
    serde_json::from_value(json).unwrap()
}

#[test]
fn every_published_case_is_decided_as_written() {
    let text = include_str!("../../../../../tests/scenarios/published.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    assert!(cases.len() >= 50, "{}", cases.len());
    let wrong = cases.iter().map(|case| (&case.id, differs(case)));
    let wrong: Vec<String> = wrong
        .filter(|(_, differences)| !differences.is_empty())
        .map(|(id, differences)| format!("{id}: {differences:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_list_that_differs_is_told_and_the_nearest_of_several_ends_counts() {
    let mut case = case(json!({
        "id": "c", "pools": [{"name": "p", "capacity": {"gpu": 1}}],
        "policies": [{"pool": "p", "subject": "s"}],
        "events": [{"op": "submit", "request": "a", "subject": "s", "resources": {"gpu": 1}},
                   {"op": "submit", "request": "b", "subject": "s", "resources": {"gpu": 2}}],
        "expected": {"allocated": ["b"], "queued": [], "rejected": ["a"], "placed": {"a": "n", "b": "p"}},
    }));
    let told: Vec<String> = differs(&case)
        .iter()
        .map(|d| format!("{}: {:?} {:?}", d.list.as_str(), d.expected, d.got))
        .collect();
    let expected = [
        r#"allocated: ["b"] ["a"]"#,
        r#"rejected: ["a"] ["b"]"#,
        r#"placed: ["a on n", "b on p"] ["a on p", "b on nowhere"]"#,
    ];
    assert_eq!(told, expected);
    let right = json!([{"allocated": ["b"]}, {"allocated": ["a"], "rejected": ["b"]}]);
    case.expected = None;
    case.expected_any_of = serde_json::from_value(right).unwrap();
    assert_eq!(differs(&case), []);
}

/// Preemptions, losses and time: what spends a retry, and what a run is spared for.
#[test]
fn victims_wait_again_as_their_terms_say() {
    for (terms, queued) in [
        (json!({}), false),
        (json!({"retries": 1}), true),
        (json!({"free_preemptions": true}), true),
        (
            json!({"free_preemptions": true, "on_preempt": "fail"}),
            false,
        ),
    ] {
        let mut victim =
            json!({"op": "submit", "request": "v", "subject": "low", "resources": {"gpu": 1}});
        let fields = victim.as_object_mut().unwrap();
        fields.extend(terms.as_object().unwrap().clone());
        let mut end = case(json!({
            "id": "c", "pools": [{"name": "p", "capacity": {"gpu": 1}, "min_runtime": 60}],
            "policies": [{"pool": "p", "subject": "low"}, {"pool": "p", "subject": "high", "priority": 1}],
            "events": [victim, {"op": "submit", "request": "w", "subject": "high", "resources": {"gpu": 1}},
                       {"op": "advance", "seconds": 59}],
        }));
        let spared = end.play().unwrap();
        assert!(spared.preempted.is_empty() && spared.allocated.contains("v"));
        end.events
            .push(serde_json::from_value(json!({"op": "advance", "seconds": 1})).unwrap());
        let end = end.play().unwrap();
        assert!(end.preempted.contains("v") && end.allocated.contains("w"));
        assert_eq!(end.queued.contains("v"), queued, "{terms}");
    }
}

#[test]
fn what_this_version_does_not_do_is_rejected_as_by_the_coordinator() {
    let end = case(json!({
        "id": "c", "pools": [{"name": "p", "capacity": {"gpu": 1}}],
        "policies": [{"pool": "p", "subject": "s"}],
        "events": [{"op": "submit", "request": "a", "subject": "s", "platform": "h100"}],
    }));
    let end = end.play().unwrap();
    assert_eq!(end.reasons["a"], "unsupported");
}

#[test]
fn what_cannot_be_is_told_with_its_place() {
    for (event, words) in [
        (
            json!({"op": "node_lost", "node": "x"}),
            "event 2: there is no node `x`",
        ),
        (
            json!({"op": "finish", "request": "x"}),
            "event 2: there is no request `x`",
        ),
        (
            json!({"op": "submit", "request": "a", "subject": "s"}),
            "event 2: request `a` was submitted before",
        ),
        (
            json!({"op": "put_policy", "pool": "q", "subject": "s"}),
            "event 2: there is no pool `q`",
        ),
    ] {
        let case = case(json!({
            "id": "c", "pools": [{"name": "p", "capacity": {"gpu": 1}}],
            "policies": [{"pool": "p", "subject": "s"}],
            "events": [{"op": "submit", "request": "a", "subject": "s"}, event],
        }));
        let fault = case.play().unwrap_err().to_string();
        assert!(fault.starts_with(words), "{fault}");
    }
}
