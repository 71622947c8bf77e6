//! Pools and policies over HTTP.

use super::*;

#[test]
fn a_policy_is_put_shown_replaced_and_deleted() {
    let harness = Harness::start();
    let path = "/v1/pools/training/policies/prod";
    let body = r#"{"priority":10,"reserved":{"gpu":4},"limit":{"gpu":6}}"#;
    assert_eq!(code(harness.put(path, body), 404), "unknown_pool");
    let pool = r#"{"description":"shared","capacity":{"gpu":16,"lic":2},"min_runtime":"10m"}"#;
    assert_eq!(harness.put("/v1/pools/training", pool).0, 200);
    let (status, view) = harness.put(path, body);
    assert_eq!(status, 200, "{view}");
    assert_eq!(view["reserved"], json!({"gpu": 4}));
    assert_eq!(harness.get(path), (200, view.clone()));
    let (_, all) = harness.get("/v1/pools/training/policies");
    assert_eq!(all["items"], json!([view]));
    // Fields that are left out are removed.
    let (_, view) = harness.put(path, "{}");
    assert_eq!((&view["priority"], &view["limit"]), (&json!(0), &json!({})));
    assert_eq!(harness.delete(path).0, 204);
    assert_eq!(code(harness.get(path), 404), "unknown_policy");
    assert_eq!(code(harness.delete(path), 404), "unknown_policy");
}

#[test]
fn what_a_pool_cannot_keep_is_refused_whole() {
    let harness = Harness::start();
    let pool = "/v1/pools/p";
    harness.put(pool, r#"{"capacity":{"gpu":8}}"#);
    let put = |subject: &str, body: &str| harness.put(&format!("{pool}/policies/{subject}"), body);
    assert_eq!(put("a", r#"{"reserved":{"gpu":6}}"#).0, 200);
    for (body, words) in [
        (
            r#"{"reserved":{"gpu":4}}"#,
            "others have reserved 6 and the pool declares 8: at most 2",
        ),
        (
            r#"{"reserved":{"gpu":2},"limit":{"gpu":1}}"#,
            "reserve at most the limit",
        ),
        (r#"{"limit":{"tpu":1}}"#, "the pool has no `tpu`"),
    ] {
        let answer = put("b", body);
        assert!(
            answer.1["error"]["message"]
                .as_str()
                .unwrap()
                .contains(words),
            "{}",
            answer.1
        );
        assert_eq!(code(answer, 409), "invalid_policy");
    }
    assert_eq!(
        code(harness.get(&format!("{pool}/policies/b")), 404),
        "unknown_policy"
    );
    let most = (1_u64 << 53) / 1000;
    harness.put(
        "/v1/pools/q",
        &format!(r#"{{"capacity":{{"gpu":{most}}}}}"#),
    );
    let all = format!(r#"{{"reserved":{{"gpu":{most}}}}}"#);
    assert_eq!(harness.put("/v1/pools/q/policies/a", &all).0, 200);
    assert_eq!(
        code(harness.put("/v1/pools/q/policies/b", &all), 409),
        "invalid_policy"
    );
    assert_eq!(code(put("a%20b", "{}"), 400), "invalid_subject");
    assert_eq!(code(put("b", r#"{"prio":1}"#), 400), "unknown_field");
}

#[test]
fn a_policy_lets_its_subject_in() {
    let harness = Harness::start();
    let submit = |id: &str| {
        let body = format!(r#"{{"id":"{id}","command":["true"],"subject":"new"}}"#);
        harness.post("/v1/steps", &body).1
    };
    let step = submit("a");
    assert_eq!(
        (&step["state"], &step["reason"]["code"]),
        (&json!("rejected"), &json!("no_policy"))
    );
    harness.bind("new");
    assert_eq!(submit("b")["state"], "queued");
}

#[test]
fn a_queue_is_told_in_the_order_in_which_it_goes() {
    let harness = Harness::start();
    for (subject, priority) in [("low", 1), ("high", 2)] {
        let path = format!("/v1/pools/default/policies/{subject}");
        let body = format!(r#"{{"priority":{priority}}}"#);
        assert_eq!(harness.put(&path, &body).0, 200);
    }
    for (id, subject) in [("a", "low"), ("b", "high"), ("c", "low"), ("d", "high")] {
        let body = format!(r#"{{"id":"{id}","command":["true"],"subject":"{subject}"}}"#);
        assert_eq!(harness.post("/v1/steps", &body).1["state"], "queued");
    }
    let (status, queue) = harness.get("/v1/pools/default/queue");
    assert_eq!((status, ids(&queue)), (200, vec!["b", "d", "a", "c"]));
    assert_eq!(queue["items"][0]["reason"]["code"], "pool_empty");
    let (_, head) = harness.get("/v1/pools/default/queue?limit=1");
    assert_eq!(ids(&head), ["b"]);
    assert_eq!(code(harness.get("/v1/pools/x/queue"), 404), "unknown_pool");
    let bad = harness.get("/v1/pools/default/queue?cursor=b");
    assert_eq!(code(bad, 400), "unknown_parameter");
}
