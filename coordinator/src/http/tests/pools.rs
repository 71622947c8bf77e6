//! Pools and policies.

use super::*;

#[test]
fn a_policy_is_put_shown_replaced_and_deleted() {
    let rig = Rig::start();
    let path = "/v1/pools/training/policies/prod";
    let body = r#"{"priority":10,"reserved":{"gpu":4},"limit":{"gpu":6}}"#;
    assert_eq!(code(rig.put(path, body), 404), "unknown_pool");
    let pool = r#"{"description":"shared","capacity":{"gpu":16,"lic":2},"min_runtime":"10m"}"#;
    assert_eq!(rig.put("/v1/pools/training", pool).0, 200);
    let (status, view) = rig.put(path, body);
    assert_eq!(status, 200, "{view}");
    assert_eq!(view["reserved"], json!({"gpu": 4}));
    assert_eq!(rig.get(path), (200, view.clone()));
    let (_, all) = rig.get("/v1/pools/training/policies");
    assert_eq!(all["items"], json!([view]));
    // What is left out is gone.
    let (_, view) = rig.put(path, "{}");
    assert_eq!((&view["priority"], &view["limit"]), (&json!(0), &json!({})));
    assert_eq!(rig.delete(path).0, 204);
    assert_eq!(code(rig.get(path), 404), "unknown_policy");
    assert_eq!(code(rig.delete(path), 404), "unknown_policy");
}

#[test]
fn what_a_pool_cannot_keep_is_refused_whole() {
    let rig = Rig::start();
    let pool = "/v1/pools/p";
    rig.put(pool, r#"{"capacity":{"gpu":8}}"#);
    let put = |subject: &str, body: &str| rig.put(&format!("{pool}/policies/{subject}"), body);
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
        code(rig.get(&format!("{pool}/policies/b")), 404),
        "unknown_policy"
    );
    let most = 1_u64 << 53;
    rig.put(
        "/v1/pools/q",
        &format!(r#"{{"capacity":{{"gpu":{most}}}}}"#),
    );
    let all = format!(r#"{{"reserved":{{"gpu":{most}}}}}"#);
    assert_eq!(rig.put("/v1/pools/q/policies/a", &all).0, 200);
    assert_eq!(
        code(rig.put("/v1/pools/q/policies/b", &all), 409),
        "invalid_policy"
    );
    assert_eq!(code(put("a%20b", "{}"), 400), "invalid_subject");
    assert_eq!(code(put("b", r#"{"prio":1}"#), 400), "unknown_field");
}

#[test]
fn a_policy_lets_its_subject_in() {
    let rig = Rig::start();
    let submit = |id: &str| {
        let body = format!(r#"{{"id":"{id}","command":["true"],"subject":"new"}}"#);
        rig.post("/v1/steps", &body).1
    };
    let step = submit("a");
    assert_eq!(
        (&step["state"], &step["reason"]["code"]),
        (&json!("rejected"), &json!("no_policy"))
    );
    rig.bind("new");
    assert_eq!(submit("b")["state"], "queued");
}

#[test]
fn a_queue_is_told_in_the_order_in_which_it_goes() {
    let rig = Rig::start();
    for (subject, priority) in [("low", 1), ("high", 2)] {
        let path = format!("/v1/pools/default/policies/{subject}");
        let body = format!(r#"{{"priority":{priority}}}"#);
        assert_eq!(rig.put(&path, &body).0, 200);
    }
    for (id, subject) in [("a", "low"), ("b", "high"), ("c", "low"), ("d", "high")] {
        let body = format!(r#"{{"id":"{id}","command":["true"],"subject":"{subject}"}}"#);
        assert_eq!(rig.post("/v1/steps", &body).1["state"], "queued");
    }
    let (status, queue) = rig.get("/v1/pools/default/queue");
    assert_eq!((status, ids(&queue)), (200, vec!["b", "d", "a", "c"]));
    assert_eq!(queue["items"][0]["reason"]["code"], "pool_empty");
    let (_, head) = rig.get("/v1/pools/default/queue?limit=1");
    assert_eq!(ids(&head), ["b"]);
    assert_eq!(code(rig.get("/v1/pools/x/queue"), 404), "unknown_pool");
    let bad = rig.get("/v1/pools/default/queue?cursor=b");
    assert_eq!(code(bad, 400), "unknown_parameter");
}
