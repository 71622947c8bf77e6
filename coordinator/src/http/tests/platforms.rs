//! Platforms of pools over HTTP: declared, read, refused and removed; nodes that move, and facts as labels.

use super::*;

const PATH: &str = "/v1/pools/default/platforms/all";
const TERMS: &str =
    r#"{"description": "everything", "selector": {"labels": "sluice/gpu.count=0"}}"#;

#[test]
fn a_platform_is_declared_seen_and_taken_away() {
    let harness = Harness::start();
    let _agent = harness.agent("n", 4);
    let (status, made) = harness.put(PATH, r#"{"selector": {"labels": "zone=a"}}"#);
    assert_eq!(status, 200, "{made}");
    assert_eq!(
        (&made["declared"], &made["nodes"]),
        (&json!(true), &json!([]))
    );
    // The same document again changes nothing, in the pool's list and by itself.
    let listed = r#"{"put":[{"kind":"pool","name":"default","platforms":[{"name":"all","selector":{"labels":"zone=a"}}]}]}"#;
    let (_, first) = harness.post("/v1/apply", listed);
    let listing = &first["changes"][0]["after"]["platforms"];
    assert_eq!(listing, &json!({"all": {"selector": {"labels": "zone=a"}}}));
    let (_, again) = harness.post("/v1/apply?dry_run=true", listed);
    assert_eq!(again["changes"][0]["outcome"], "unchanged", "{again}");
    let (status, _) = harness.patch("/v1/nodes/n/labels", r#"{"zone":"a"}"#);
    assert_eq!(status, 200);
    let (_, seen) = harness.get(PATH);
    assert_eq!(seen["nodes"], json!(["n"]), "{seen}");
    let (_, all) = harness.get("/v1/pools/default/platforms");
    let names: Vec<&Value> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["all", "cpu"], "{all}");
    let (_, node) = harness.get("/v1/nodes/n");
    assert_eq!(node["platforms"], json!(["all", "cpu"]));
    assert_eq!(node["facts"][0]["sluice/gpu.count"], "0");
    // What a pool leaves out is removed, its platforms too.
    let without = harness.put("/v1/pools/default", r#"{"default_platform":"all"}"#);
    assert_eq!(code(without, 409), "default_platform_missing");
    let with = r#"{"default_platform":"all","platforms":[{"name":"all"}]}"#;
    assert_eq!(harness.put("/v1/pools/default", with).0, 200);
    assert_eq!(code(harness.delete(PATH), 409), "default_platform_missing");
    harness.put("/v1/pools/default", "{}");
    assert_eq!(code(harness.get(PATH), 404), "unknown_platform");
    assert_eq!(code(harness.delete(PATH), 404), "unknown_platform");
}

#[test]
fn what_means_nothing_is_refused_by_field_with_the_way_out() {
    let harness = Harness::start();
    for (path, body, expected, words) in [
        (
            PATH,
            r#"{"selector":{"gpu_memory":"80"}}"#,
            (400, "invalid_body"),
            "write a range such as `>=40GiB",
        ),
        (
            PATH,
            r#"{"selector":{"driver":"new"}}"#,
            (400, "invalid_body"),
            "`>=550, <580`",
        ),
        (
            PATH,
            r#"{"selector":{"gpu_modell":"x"}}"#,
            (400, "unknown_field"),
            "gpu_model",
        ),
        (
            PATH,
            r#"{"selector":{"labels":"a b"}}"#,
            (400, "invalid_body"),
            "`key in (a, b)`",
        ),
        (
            "/v1/pools/default/platforms/any",
            "{}",
            (400, "invalid_platform"),
            "another name",
        ),
        (
            "/v1/pools/nowhere/platforms/x",
            "{}",
            (404, "unknown_pool"),
            "no pool `nowhere`",
        ),
        (
            "/v1/pools/default",
            r#"{"default_platform":"h200"}"#,
            (409, "default_platform_missing"),
            "declare it",
        ),
        (
            "/v1/pools/default",
            r#"{"unmatched_platform":"drop"}"#,
            (400, "invalid_body"),
            "reject",
        ),
        (
            "/v1/pools/default",
            r#"{"platforms":[{"name":"x"},{"name":"x"}]}"#,
            (400, "named_twice"),
            "`x` is listed twice",
        ),
    ] {
        let answer = harness.put(path, body);
        let message = answer.1["error"]["message"].to_string();
        assert!(message.contains(words), "{body}: {message}");
        assert_eq!(code(answer, expected.0), expected.1, "{body}");
    }
    let (_, none) = harness.get("/v1/pools/default/platforms");
    assert_eq!(none["items"], json!([]));
}

#[test]
fn a_trial_says_who_would_be_rejected_and_a_version_is_held_to() {
    let harness = Harness::start();
    let _agent = harness.agent("n", 4);
    let (status, _) = harness.put(PATH, TERMS);
    assert_eq!(status, 200);
    harness.bind("prod");
    let step = r#"{"id":"big","command":["true"],"subject":"prod","platform":"all","resources":{"cpu_count":4}}"#;
    let (_, first) = harness.post("/v1/steps", step);
    let (_, second) = harness.post("/v1/steps", &step.replace("big", "waits"));
    assert_eq!(
        (&first["state"], &second["state"]),
        (&json!("allocated"), &json!("queued")),
        "{second}"
    );
    let none = r#"{"selector":{"labels":"zone=x"}}"#;
    let (status, trial) = harness.put(&format!("{PATH}?dry_run=true"), none);
    assert_eq!(
        (status, &trial["rejected"]),
        (200, &json!(["waits"])),
        "{trial}"
    );
    assert_eq!(trial["changes"][0]["kind"], "platform");
    assert_eq!(code(harness.put(PATH, none), 409), "in_use");
    let (_, seen) = harness.get(PATH);
    assert_eq!(seen["nodes"], json!(["n"]), "nothing was changed: {seen}");
    let (status, _) = harness.put(&format!("{PATH}?force=true"), none);
    assert_eq!(status, 200);
    let (_, gone) = harness.get("/v1/steps/waits");
    assert_eq!(
        (&gone["state"], &gone["reason"]["code"]),
        (&json!("rejected"), &json!("no_host_fits"))
    );
    assert_eq!(harness.get("/v1/steps/big").1["state"], "allocated");
}

#[test]
fn facts_are_set_by_nobody_and_a_node_moves_when_it_is_empty() {
    let harness = Harness::start();
    let _agent = harness.agent("n", 4);
    let refused = harness.patch("/v1/nodes/n/labels", r#"{"sluice/gpu.model":"h100"}"#);
    assert_eq!(code(refused, 400), "reserved_label");
    harness.put("/v1/pools/night", "{}");
    assert_eq!(
        code(harness.post("/v1/nodes/n:move", "{}"), 400),
        "invalid_body"
    );
    assert_eq!(
        code(
            harness.post("/v1/nodes/n:move", r#"{"pool":"nowhere"}"#),
            404
        ),
        "unknown_pool"
    );
    let (status, moved) = harness.post("/v1/nodes/n:move", r#"{"pool":"night"}"#);
    assert_eq!((status, &moved["pool"]), (200, &json!("night")), "{moved}");
    assert_eq!(moved["pool_of_config"], "default");
    assert_eq!(moved["facts"][0]["sluice/pool"], "night");
}
