//! Settings of the cluster over HTTP, and the pools that steps are routed to by them.

use super::*;

#[test]
fn terms_are_put_seen_and_guarded_by_their_version() {
    let harness = Harness::start();
    let (status, cluster) = harness.get("/v1/cluster");
    assert_eq!((status, &cluster["version"]), (200, &json!(0)));
    let body = r#"{"default_pool":{"cpu":"default"},"subjects":{"dev":{"pool":"default"}}}"#;
    let (status, trial) = harness.put("/v1/cluster?dry_run=true", body);
    assert_eq!(status, 200, "{trial}");
    let change = &trial["changes"][0];
    assert_eq!(
        (&change["kind"], &change["pool"], &change["outcome"]),
        (&json!("cluster"), &json!(null), &json!("changed"))
    );
    assert_eq!(harness.get("/v1/cluster").1["version"], 0, "it was a trial");
    let (status, made) = harness.put("/v1/cluster", body);
    assert_eq!(status, 200, "{made}");
    assert_eq!(made["subjects"], json!({"dev": {"pool": "default"}}));
    let version = made["version"].as_u64().unwrap();
    assert_eq!(harness.get("/v1/cluster").1, made);
    let again = format!(
        r#"{{"put":[{{"kind":"cluster","version":{version},{}]}}"#,
        &body[1..]
    );
    let (_, again) = harness.post("/v1/apply", &again);
    assert_eq!(again["changes"][0]["outcome"], "unchanged", "{again}");
    let stale = r#"{"put":[{"kind":"cluster","version":1}]}"#;
    assert_eq!(
        code(harness.post("/v1/apply", stale), 412),
        "version_conflict"
    );
}

#[test]
fn terms_that_name_what_is_not_there_are_refused() {
    let harness = Harness::start();
    for (body, status, expected) in [
        (
            r#"{"default_pool":{"gpu":"nowhere"}}"#,
            409,
            "cluster_names_pool",
        ),
        (
            r#"{"default_pool":{"tpu":"default"}}"#,
            400,
            "unknown_field",
        ),
        (r#"{"default_pool":{"gpu":"no good"}}"#, 400, "invalid_body"),
    ] {
        assert_eq!(
            code(harness.put("/v1/cluster", body), status),
            expected,
            "{body}"
        );
    }
}

#[test]
fn a_subject_that_nobody_knows_goes_to_the_default_pool() {
    let harness = Harness::start();
    let body = r#"{"command":["true"],"subject":"new"}"#;
    let (_, step) = harness.post("/v1/steps", body);
    assert_eq!(step["reason"]["code"], "no_policy");
    harness.put("/v1/cluster", r#"{"default_pool":{"cpu":"default"}}"#);
    let (_, step) = harness.post("/v1/steps", body);
    assert_eq!(
        (&step["state"], &step["pool"], &step["subject"]),
        (&json!("queued"), &json!("default"), &json!("new")),
        "{step}"
    );
    let gpus = r#"{"command":["true"],"subject":"new","resources":{"gpu_count":1}}"#;
    assert_eq!(
        harness.post("/v1/steps", gpus).1["reason"]["code"],
        "no_policy"
    );
}
