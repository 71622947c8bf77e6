//! Tests of the published cases, and of errors in files.

use serde_json::json;

use super::{Case, Difference, NodePut};

fn differs(case: &Case) -> Vec<Difference> {
    case.differences(&case.play().unwrap())
}

fn case(json: serde_json::Value) -> Case {
    serde_json::from_value(json).unwrap()
}

#[test]
fn every_published_case_is_decided_as_written() {
    let text = include_str!("../../../../tests/scenarios/published.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    assert!(cases.len() >= 50, "{}", cases.len());
    assert_all_are_decided_as_written(&cases);
}

#[test]
fn fair_share_goes_by_what_was_borrowed() {
    let text = include_str!("../../../../tests/scenarios/fair.json");
    assert_all_are_decided_as_written(&serde_json::from_str::<Vec<Case>>(text).unwrap());
}

#[test]
fn what_priority_loses_stays_within_a_budget() {
    let text = include_str!("../../../../tests/scenarios/priority.json");
    assert_all_are_decided_as_written(&serde_json::from_str::<Vec<Case>>(text).unwrap());
}

#[test]
fn time_limits_let_short_requests_past_the_head() {
    let text = include_str!("../../../../tests/scenarios/limits.json");
    assert_all_are_decided_as_written(&serde_json::from_str::<Vec<Case>>(text).unwrap());
}

#[test]
fn gangs_run_within_the_domains_that_they_ask_for() {
    let text = include_str!("../../../../tests/scenarios/topology.json");
    assert_all_are_decided_as_written(&serde_json::from_str::<Vec<Case>>(text).unwrap());
}

#[test]
fn steps_are_packed_or_spread_as_the_pool_says() {
    let text = include_str!("../../../../tests/scenarios/placement.json");
    assert_all_are_decided_as_written(&serde_json::from_str::<Vec<Case>>(text).unwrap());
}

#[test]
fn slices_are_granted_and_counted_by_their_profile() {
    let text = include_str!("../../../../tests/scenarios/slices.json");
    assert_all_are_decided_as_written(&serde_json::from_str::<Vec<Case>>(text).unwrap());
}

fn assert_all_are_decided_as_written(cases: &[Case]) {
    let wrong = cases.iter().map(|case| (&case.id, differs(case)));
    let wrong: Vec<String> = wrong
        .filter(|(_, differences)| !differences.is_empty())
        .map(|(id, differences)| format!("{id}: {differences:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_amounts_of_a_node_are_read_in_every_spelling() {
    let node = |amounts: serde_json::Value| {
        let mut node = json!({"name": "h", "pool": "p"});
        for (key, amount) in amounts.as_object().unwrap() {
            node[key] = amount.clone();
        }
        let read = serde_json::from_value::<NodePut>(node);
        let read = read.map_err(|e| e.to_string())?;
        Ok::<_, String>((read.mcpu, read.memory_mb, read.storage_mb))
    };
    let usual = json!({"cpu": 1.5, "memory": "2GiB", "storage": "1TB"});
    let older = json!({"mcpu": 1500, "memory_mb": 2148, "storage_mb": 1_000_000});
    let amounts = (Some(1500), Some(2148), Some(1_000_000));
    assert_eq!(node(usual), Ok(amounts));
    assert_eq!(node(older), Ok(amounts));
    assert_eq!(node(json!({"cpu": 0})), Ok((Some(0), None, None)));
    for (wrong, why) in [
        (json!({"cpu": 1, "mcpu": 1000}), "are one key"),
        (json!({"memory": 2000}), "2000 has no unit"),
        (json!({"mcpu": 1.5}), "write a whole number"),
    ] {
        let refused = node(wrong).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
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
    let found: Vec<String> = differs(&case)
        .iter()
        .map(|d| format!("{}: {:?} {:?}", d.list.as_str(), d.expected, d.got))
        .collect();
    let expected = [
        r#"allocated: ["b"] ["a"]"#,
        r#"rejected: ["a"] ["b"]"#,
        r#"placed: ["a on n", "b on p"] ["a on p", "b on nowhere"]"#,
    ];
    assert_eq!(found, expected);
    let right = json!([{"allocated": ["b"]}, {"allocated": ["a"], "rejected": ["b"]}]);
    case.expected = None;
    case.expected_any_of = serde_json::from_value(right).unwrap();
    assert_eq!(differs(&case), []);
}

/// Preemptions, losses and time: what spends a retry, and what protects a run.
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
            json!({"op": "submit", "request": "b", "subject": "s", "resources": {"gpu": 1},
                   "mig": {"profile": "3g.40gb"}}),
            "event 2: request `b` asks for whole GPUs and for slices",
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

/// Makes a pool of two H100 hosts and two A100 hosts of two GPUs each, on which `low` borrows and `high` has all
/// reserved.
fn two_kinds(events: serde_json::Value) -> super::End {
    let host =
        |name: &str, model: &str| json!({"name": name, "pool": "p", "gpus": 2, "gpu_model": model});
    let case = case(json!({
        "id": "c", "pools": [{"name": "p"}],
        "nodes": [host("a1", "A100"), host("a2", "A100"), host("h1", "H100"), host("h2", "H100")],
        "policies": [{"pool": "p", "subject": "low"}, {"pool": "p", "subject": "high", "reserved": {"gpu": 8}}],
        "events": events,
    }));
    case.play().unwrap()
}

fn ask(request: &str, subject: &str, gpus: u64, nodes: u32, platform: &str) -> serde_json::Value {
    json!({"op": "submit", "request": request, "subject": subject, "resources": {"gpu": gpus}, "nodes": nodes,
           "retries": 9, "platform": platform})
}

#[test]
fn a_request_runs_on_the_platform_that_it_names_or_waits_for_it() {
    let end = two_kinds(json!([
        ask("one", "high", 2, 1, "h100"),
        ask("two", "high", 2, 1, "h100"),
        ask("three", "high", 2, 1, "h100"),
        ask("four", "high", 2, 1, "any"),
        ask("none", "high", 1, 1, "l40s"),
    ]));
    let on = |request: &str| end.placed.get(request).map(|hosts| hosts[0].as_str());
    assert_eq!([on("one"), on("two")], [Some("h1"), Some("h2")]);
    assert_eq!(on("four"), Some("a1"));
    assert!(end.queued.contains("three"));
    assert_eq!(end.reasons["none"], "no_host_fits");
}

#[test]
fn a_list_of_platforms_is_a_preference_with_fallback() {
    let end = two_kinds(json!([
        ask("one", "high", 2, 2, "h100,a100"),
        ask("two", "high", 2, 1, "h100, a100"),
    ]));
    assert_eq!(end.placed["one"], ["h1", "h2"]);
    assert_eq!(end.placed["two"], ["a1"]);
}

#[test]
fn a_gang_is_on_hosts_of_one_platform() {
    let end = two_kinds(json!([
        ask("a", "high", 1, 1, "a100"),
        ask("h", "high", 1, 1, "h100"),
        ask("gang", "high", 2, 2, "any"),
    ]));
    // One host of each kind is left, and no two of one kind.
    assert!(end.queued.contains("gang"), "{:?}", end.placed);
    let end = two_kinds(json!([
        ask("a", "high", 1, 1, "a100"),
        ask("gang", "high", 2, 2, "any")
    ]));
    assert_eq!(end.placed["gang"], ["h1", "h2"]);
}

#[test]
fn nobody_gives_way_on_another_platform() {
    let end = two_kinds(json!([
        ask("a1", "low", 2, 1, "a100"),
        ask("a2", "low", 2, 1, "a100"),
        ask("h1", "low", 2, 1, "h100"),
        {"op": "advance", "seconds": 100},
        ask("h2", "low", 2, 1, "h100"),
        ask("waiter", "high", 2, 1, "a100"),
    ]));
    assert_eq!(end.placed["waiter"], ["a1"]);
    let gave_way: Vec<&String> = end.preempted.iter().collect();
    assert_eq!(gave_way, ["a1"]);
}
