//! Changes of documents over HTTP: several at once, previewed, guarded by a version, and refused if steps use what they
//! take away.

use super::*;
use crate::fixture::answer;

const TRAINING: &str = r#"{"put":[
    {"kind":"policy","pool":"training","subject":"prod","priority":10,"reserved":{"gpu":4}},
    {"kind":"pool","name":"training","capacity":{"gpu":8},"min_runtime":"10m"}
]}"#;

#[test]
fn several_changes_are_made_at_once_and_told_in_order() {
    let harness = Harness::start();
    let (status, trial) = harness.post("/v1/apply?dry_run=true", TRAINING);
    assert_eq!(status, 200, "{trial}");
    assert_eq!(trial["dry_run"], true);
    assert_eq!(code(harness.get("/v1/pools/training"), 404), "unknown_pool");
    let (status, made) = harness.post("/v1/apply", TRAINING);
    assert_eq!(status, 200, "{made}");
    assert_eq!(
        made["changes"], trial["changes"],
        "what was said is what happens"
    );
    let first = &made["changes"][0];
    assert_eq!(
        (&first["kind"], &first["outcome"]),
        (&json!("policy"), &json!("created"))
    );
    assert_eq!(first["before"], json!(null));
    assert_eq!(
        first["after"],
        json!({"priority": 10, "reserved": {"gpu": 4}, "limit": {}})
    );
    assert_eq!(made["changes"][1]["after"]["min_runtime"], "10m");
    let (_, again) = harness.post("/v1/apply", TRAINING);
    assert_eq!(again["changes"][0]["outcome"], "unchanged");
    let delete = r#"{"delete":[{"kind":"pool","name":"training"}]}"#;
    let (status, gone) = harness.post("/v1/apply", delete);
    assert_eq!(
        (status, &gone["changes"][0]["outcome"]),
        (200, &json!("deleted")),
        "{gone}"
    );
    assert_eq!(
        code(harness.get("/v1/pools/training/policies"), 404),
        "unknown_pool"
    );
}

#[test]
fn the_change_that_is_to_blame_is_named_and_none_is_made() {
    let harness = Harness::start();
    for (body, status, expected, words) in [
        (
            r#"{"put":[{"kind":"pool","name":"p"},{"kind":"policy","pool":"p","subject":"a","limit":{"tpu":1}}]}"#,
            409,
            "invalid_policy",
            "no `tpu`",
        ),
        (
            r#"{"put":[{"kind":"pool","name":"p"},{"kind":"pool","name":"p"}]}"#,
            400,
            "named_twice",
            "pool `p` is listed twice",
        ),
        (
            r#"{"put":[{"kind":"pool","name":"p"},{"kind":"pool","name":"no good"}]}"#,
            400,
            "invalid_pool",
            "letters, digits",
        ),
        (
            r#"{"put":[{"kind":"pool","name":"p"},{"kind":"pool","name":"q","min_runtime":"soon"}]}"#,
            400,
            "invalid_duration",
            "soon",
        ),
        (
            r#"{"put":[{"kind":"pool","name":"p","require":["kill","devises"]}]}"#,
            400,
            "invalid_capability",
            "did you mean `devices`?",
        ),
        (
            r#"{"put":[{"kind":"pool","name":"p","prio":1}]}"#,
            400,
            "unknown_field",
            "prio",
        ),
        (
            r#"{"put":[{"kind":"pole","name":"p"}]}"#,
            400,
            "invalid_body",
            "pole",
        ),
        (
            r#"{"put":[{"kind":"pool","name":"p","capacity":{"gpu":-1}}]}"#,
            400,
            "invalid_body",
            "-1",
        ),
        (
            r#"{"put":[{"kind":"pool","name":"p","capacity":{"gpu":99999999999999999999999}}]}"#,
            400,
            "invalid_amount",
            "write a number up to 1000000000",
        ),
        (
            r#"{"put":[{"kind":"pool","name":"p"}],"delete":[{"kind":"pool","name":"default"}]}"#,
            409,
            "pool_is_default",
            "cannot be deleted",
        ),
    ] {
        let answer = harness.post("/v1/apply", body);
        let message = answer.1["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{body}: {message}");
        assert_eq!(code(answer.clone(), status), expected, "{body}: {message}");
        assert_eq!(
            code(harness.get("/v1/pools/p"), 404),
            "unknown_pool",
            "{body}"
        );
    }
    let twice = r#"{"put":[{"kind":"pool","name":"p"},{"kind":"pool","name":"p"}]}"#;
    assert_eq!(
        harness.post("/v1/apply", twice).1["error"]["detail"]["change"],
        1
    );
    let name = r#"{"put":[{"kind":"pool","name":"p"},{"kind":"pool","name":"no good"}]}"#;
    assert_eq!(
        harness.post("/v1/apply", name).1["error"]["detail"]["field"],
        "put[1].name"
    );
}

#[test]
fn a_version_guards_against_changes_that_were_not_seen() {
    let harness = Harness::start();
    let path = "/v1/pools/p";
    let put = |header: (&str, &str), body: &str| harness.call_with("PUT", path, &[header], body);
    let made = put(("If-None-Match", "*"), r#"{"capacity":{"gpu":8}}"#);
    assert_eq!(made.status(), 200);
    let tag = made.headers()["etag"].to_str().unwrap().to_owned();
    let shown = harness.call("GET", path, &[]);
    assert_eq!(shown.headers()["etag"], tag.as_str());
    let version = answer(shown).1["version"].to_string();
    assert_eq!(tag, format!("\"{version}\""));
    assert_eq!(put(("If-None-Match", "*"), "{}").status(), 412);
    let next = put(("If-Match", &tag), r#"{"capacity":{"gpu":9}}"#);
    assert_eq!(next.status(), 200);
    let stale = answer(put(("If-Match", &tag), "{}"));
    let message = stale.1["error"]["message"].as_str().unwrap();
    assert!(message.contains("read it again"), "{message}");
    assert_eq!(code(stale.clone(), 412), "version_conflict");
    assert_eq!(put(("If-Match", "*"), "{}").status(), 200);
    assert_eq!(
        code(answer(put(("If-Match", "new"), "{}")), 400),
        "invalid_parameter"
    );
}

#[test]
fn what_somebody_uses_is_not_taken_away_but_by_force() {
    let harness = Harness::start();
    let mut agent = harness.agent("n1", 2);
    harness.submit("a");
    harness.runtime.block_on(agent.order());
    let path = "/v1/pools/default/policies/default";
    let refused = harness.delete(path);
    assert_eq!(refused.1["error"]["detail"]["steps"], "a", "{}", refused.1);
    assert_eq!(code(refused, 409), "in_use");
    let (status, trial) = harness.delete(&format!("{path}?dry_run=true"));
    assert_eq!(
        (status, &trial["in_use"][0]["steps"]),
        (200, &json!(["a"])),
        "{trial}"
    );
    assert_eq!(harness.delete(&format!("{path}?force=true")).0, 204);
    assert_eq!(
        harness.get("/v1/steps/a").1["state"],
        "allocated",
        "it goes on"
    );
    let pool = harness.delete("/v1/pools/default?force=true");
    assert_eq!(code(pool, 409), "pool_is_default");
}
