//! Dry runs of submits over HTTP, which store nothing.

use super::*;

fn preview(harness: &Harness, body: &str) -> Value {
    let before = harness.get("/v1/steps").1;
    let (status, preview) = harness.post("/v1/steps?dry_run=true", body);
    assert_eq!(status, 200, "{preview}");
    assert_eq!(harness.get("/v1/steps").1, before, "nothing is stored");
    preview
}

fn outcomes(preview: &Value) -> Vec<&str> {
    let stages = preview["stages"].as_array().unwrap().iter();
    stages.map(|it| it["outcome"].as_str().unwrap()).collect()
}

#[test]
fn every_stage_is_told() {
    let harness = Harness::start();
    harness.put("/v1/pools/default", r#"{"defaults":{"timeout":"10m"}}"#);
    let waits = preview(&harness, r#"{"id":"a","command":["true"]}"#);
    assert_eq!(waits["outcome"], "waits", "{waits}");
    assert_eq!(outcomes(&waits), ["passed"; 5]);
    let merge = &waits["stages"][1]["checks"][0];
    assert_eq!(
        (&merge["about"], &merge["message"]),
        (
            &json!("timeout"),
            &json!("10m, from `defaults` of pool `default`")
        )
    );
    assert_eq!(waits["step"]["timeout"], "10m");
    assert_eq!(waits["step"]["reason"]["code"], "pool_empty");
    assert_ne!(
        waits["step"]["id"], "a",
        "whether that is taken says nothing of the step"
    );
}

#[test]
fn what_would_be_rejected_or_refused_is_told_and_what_is_malformed_is_an_error() {
    let harness = Harness::start();
    let rejected = preview(&harness, r#"{"command":["true"],"pool":"nowhere"}"#);
    assert_eq!(rejected["outcome"], "rejected");
    assert_eq!(rejected["step"]["reason"]["code"], "unknown_pool");
    let reached = [
        "failed",
        "not_reached",
        "not_reached",
        "not_reached",
        "not_reached",
    ];
    assert_eq!(outcomes(&rejected), reached);
    let call =
        |query: &str, body: &str| code(harness.post(&format!("/v1/steps?{query}"), body), 400);
    assert_eq!(call("dry_run=true", r#"{"command":[]}"#), "invalid_command");
    assert_eq!(
        call("dry_run=maybe", r#"{"command":["a"]}"#),
        "invalid_parameter"
    );
    assert_eq!(
        call("dryrun=true", r#"{"command":["a"]}"#),
        "unknown_parameter"
    );
}
