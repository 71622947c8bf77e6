//! Explanations over HTTP: their shape in each state that needs no host.

use super::*;

#[test]
fn a_step_that_waits_and_one_that_is_rejected_are_explained() {
    let harness = Harness::start();
    for (subject, priority) in [("low", 1), ("high", 2)] {
        let path = format!("/v1/pools/default/policies/{subject}");
        assert_eq!(
            harness
                .put(&path, &format!(r#"{{"priority":{priority}}}"#))
                .0,
            200
        );
    }
    for (id, subject) in [("a", "low"), ("b", "high"), ("c", "nobody")] {
        let body = format!(r#"{{"id":"{id}","command":["true"],"subject":"{subject}"}}"#);
        assert_eq!(harness.post("/v1/steps", &body).0, 201);
    }
    let (status, waits) = harness.get("/v1/steps/a/explain");
    assert_eq!((status, &waits["state"]), (200, &json!("queued")));
    let [pool] = &waits["pools"].as_array().unwrap()[..] else {
        panic!("{waits}")
    };
    assert_eq!(pool["reason"]["code"], "pool_empty");
    assert_eq!((&pool["place"], &pool["waiting"]), (&json!(2), &json!(2)));
    assert_eq!(
        (&pool["behind"], &pool["priority"]),
        (&json!("b"), &json!(1))
    );
    assert_eq!(pool["would_start_if"], json!([]));
    assert!(
        pool["preemption"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    let (_, rejected) = harness.get("/v1/steps/c/explain");
    assert_eq!(rejected["reason"]["code"], "no_policy");
    assert_eq!(
        (&rejected["pools"], &rejected["holding"]),
        (&json!([]), &Value::Null)
    );
    assert_eq!(
        code(harness.get("/v1/steps/x/explain"), 404),
        "unknown_step"
    );
    assert_eq!(
        code(harness.get("/v1/steps/a%20b/explain"), 400),
        "invalid_id"
    );
    assert_eq!(
        code(harness.post("/v1/steps/a/explain", "{}"), 405),
        "method_not_allowed"
    );
}
