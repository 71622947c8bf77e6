//! Documents of assertions over HTTP: put, seen, guarded by their version, and felt by submits.

use super::*;

const MOST: &str =
    r#"{"assertions":[{"assert":"gpu_count <= 1","message":"take one GPU at most"}]}"#;

#[test]
fn a_document_is_put_seen_named_and_deleted() {
    let rig = Rig::start();
    let (_, trial) = rig.put("/v1/validations/most?dry_run=true", MOST);
    let change = &trial["changes"][0];
    assert_eq!(
        (&change["kind"], &change["name"], &change["outcome"]),
        (&json!("validation"), &json!("most"), &json!("created"))
    );
    assert_eq!(
        code(rig.get("/v1/validations/most"), 404),
        "unknown_validation"
    );
    let (status, made) = rig.put("/v1/validations/most", MOST);
    assert_eq!((status, &made["pools"]), (200, &json!([])), "{made}");
    let (_, pool) = rig.put("/v1/pools/default", r#"{"validations":["most"]}"#);
    assert_eq!(pool["validations"], json!(["most"]));
    let (_, page) = rig.get("/v1/validations");
    assert_eq!(page["items"][0]["pools"], json!(["default"]));
    let document = format!(
        r#"{{"put":[{{"kind":"validation","name":"most",{}]}}"#,
        &MOST[1..]
    );
    let (_, again) = rig.post("/v1/apply", &document);
    assert_eq!(again["changes"][0]["outcome"], "unchanged", "{again}");
    assert_eq!(
        code(rig.delete("/v1/validations/most"), 409),
        "pool_names_validation"
    );
    rig.put("/v1/pools/default", "{}");
    assert_eq!(rig.delete("/v1/validations/most").0, 204);
}

#[test]
fn a_step_that_does_not_keep_it_is_stored_as_rejected_with_the_numbers() {
    let rig = Rig::start();
    rig.put("/v1/validations/most", MOST);
    rig.put("/v1/pools/default", r#"{"validations":["most"]}"#);
    let step = r#"{"id":"a","command":["true"],"resources":{"gpu_count":2}}"#;
    let (status, step) = rig.post("/v1/steps", step);
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
    let rig = Rig::start();
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
        let answer = rig.post("/v1/apply", &body);
        let message = answer.1["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{message}");
        assert_eq!(code(answer, 400), "invalid_assertion");
    }
    let misspelt = rig.put("/v1/pools/default", r#"{"validations":["nowhere"]}"#);
    assert_eq!(code(misspelt, 409), "pool_names_validation");
    let twice = rig.put("/v1/pools/default", r#"{"validations":["a","a"]}"#);
    assert_eq!(code(twice, 400), "named_twice");
    assert_eq!(
        code(rig.put("/v1/validations/-", MOST), 400),
        "invalid_name"
    );
}
