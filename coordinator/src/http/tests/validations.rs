//! Validation documents over HTTP: put, read, guarded by their version, and enforced at submits.

use super::*;

const MOST: &str =
    r#"{"assertions":[{"assert":"gpu_count <= 1","message":"take one GPU at most"}]}"#;

#[test]
fn a_document_is_put_seen_named_and_deleted() {
    let harness = Harness::start();
    let (_, trial) = harness.put("/v1/validations/most?dry_run=true", MOST);
    let change = &trial["changes"][0];
    assert_eq!(
        (&change["kind"], &change["name"], &change["outcome"]),
        (&json!("validation"), &json!("most"), &json!("created"))
    );
    assert_eq!(
        code(harness.get("/v1/validations/most"), 404),
        "unknown_validation"
    );
    let (status, made) = harness.put("/v1/validations/most", MOST);
    assert_eq!((status, &made["pools"]), (200, &json!([])), "{made}");
    let (_, pool) = harness.put("/v1/pools/default", r#"{"validations":["most"]}"#);
    assert_eq!(pool["validations"], json!(["most"]));
    let (_, page) = harness.get("/v1/validations");
    assert_eq!(page["items"][0]["pools"], json!(["default"]));
    let document = format!(
        r#"{{"put":[{{"kind":"validation","name":"most",{}]}}"#,
        &MOST[1..]
    );
    let (_, again) = harness.post("/v1/apply", &document);
    assert_eq!(again["changes"][0]["outcome"], "unchanged", "{again}");
    assert_eq!(
        code(harness.delete("/v1/validations/most"), 409),
        "pool_names_validation"
    );
    harness.put("/v1/pools/default", "{}");
    assert_eq!(harness.delete("/v1/validations/most").0, 204);
}

#[test]
fn a_step_that_does_not_keep_it_is_stored_as_rejected_with_the_numbers() {
    let harness = Harness::start();
    harness.put("/v1/validations/most", MOST);
    harness.put("/v1/pools/default", r#"{"validations":["most"]}"#);
    let step = r#"{"id":"a","command":["true"],"resources":{"gpu_count":2}}"#;
    let (status, step) = harness.post("/v1/steps", step);
    assert_eq!(
        (status, &step["state"]),
        (201, &json!("rejected")),
        "{step}"
    );
    let reason = &step["reason"];
    assert_eq!(reason["code"], "validation_failed");
    assert_eq!(
        reason["message"],
        "take one GPU at most (validation `most` of pool `default`: gpu_count <= 1; gpu_count is 2)"
    );
    assert_eq!(reason["detail"]["found"], "gpu_count is 2");
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place_and_column() {
    let harness = Harness::start();
    for (assert, words) in [
        (
            "gpus <= 1",
            "put[0].assertions[0].assert: `gpus <= 1`: column 1: there is no `gpus`: did you mean `gpu_count`?",
        ),
        (
            "memory <= 8",
            "column 8: `memory` is an amount such as `8GiB` and `8` is a number",
        ),
    ] {
        let body = format!(
            r#"{{"put":[{{"kind":"validation","name":"v","assertions":[{{"assert":"{assert}","message":"m"}}]}}]}}"#
        );
        let answer = harness.post("/v1/apply", &body);
        let message = answer.1["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{message}");
        assert_eq!(code(answer, 400), "invalid_assertion");
    }
    let misspelt = harness.put("/v1/pools/default", r#"{"validations":["nowhere"]}"#);
    assert_eq!(code(misspelt, 409), "pool_names_validation");
    let twice = harness.put("/v1/pools/default", r#"{"validations":["a","a"]}"#);
    assert_eq!(code(twice, 400), "named_twice");
    assert_eq!(
        code(harness.put("/v1/validations/-", MOST), 400),
        "invalid_name"
    );
}
