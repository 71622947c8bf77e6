//! Rules of pools over HTTP: written, rejected if contradictory, read, and enforced at submits.

use super::*;

const RULES: &str = r#"{
    "defaults": {"timeout": "10m", "retries": 1},
    "max": {"timeout": "1h", "queue_timeout": "5m"},
    "on_preempt_allowed": ["requeue", "fail"]
}"#;

#[test]
fn rules_are_put_shown_and_unchanged_when_they_are_put_again() {
    let harness = Harness::start();
    let (status, pool) = harness.put("/v1/pools/default", RULES);
    assert_eq!(status, 200, "{pool}");
    assert_eq!(
        pool["defaults"],
        json!({"timeout": "10m", "retries": 1, "cpu": 1, "memory": "2GiB"})
    );
    assert_eq!(pool["max"], json!({"timeout": "1h", "queue_timeout": "5m"}));
    assert_eq!(pool["on_preempt_allowed"], json!(["requeue", "fail"]));
    assert_eq!(pool["status"], "offline", "it has no host");
    let document = format!(
        r#"{{"put":[{{"kind":"pool","name":"default",{}]}}"#,
        RULES.trim_start_matches('{')
    );
    let (status, again) = harness.post("/v1/apply?dry_run=true", &document);
    assert_eq!(
        (status, &again["changes"][0]["outcome"]),
        (200, &json!("unchanged")),
        "{again}"
    );
    let (_, gone) = harness.post("/v1/apply", r#"{"put":[{"kind":"pool","name":"default"}]}"#);
    assert_eq!(gone["changes"][0]["before"]["max"]["timeout"], "1h");
    assert_eq!(gone["changes"][0]["after"].get("max"), None);
}

#[test]
fn rules_that_mean_nothing_are_refused_by_field() {
    let harness = Harness::start();
    for (body, expected, words) in [
        (
            r#"{"max":{"timeout":"soon"}}"#,
            "invalid_duration",
            "max.timeout: ",
        ),
        (
            r#"{"defaults":{"timeout":"0s"}}"#,
            "invalid_duration",
            "defaults.timeout: 0 would",
        ),
        (
            r#"{"max":{"grace_period":"9d"}}"#,
            "invalid_duration",
            "max.grace_period: 9d is longer",
        ),
        (
            r#"{"max":{"timeout":"1h"},"defaults":{"timeout":"2h"}}"#,
            "contradiction",
            "defaults.timeout: 2h is more than `max.timeout`, which is 1h",
        ),
        (
            r#"{"max":{"retries":0},"defaults":{"retries":1}}"#,
            "contradiction",
            "defaults.retries: 1 is more than",
        ),
        (
            r#"{"on_preempt_allowed":["fail"],"defaults":{"on_preempt":"suspend"}}"#,
            "contradiction",
            "`suspend` is not among",
        ),
        (
            r#"{"require":["memory"],"defaults":{"cpu_mode":"pinned"}}"#,
            "contradiction",
            "defaults.cpu_mode: `pinned` is for a pool whose hosts can all give processors: write `require: [cpuset]`",
        ),
        (
            r#"{"maintenance":" "}"#,
            "invalid_reason",
            "maintenance: write",
        ),
        (r#"{"max":{"timeuot":"1h"}}"#, "unknown_field", "timeuot"),
    ] {
        let answer = harness.put("/v1/pools/default", body);
        let message = answer.1["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{body}: {message}");
        assert_eq!(code(answer, 400), expected, "{body}");
    }
}

#[test]
fn a_step_shows_what_the_pool_filled_in_and_one_that_asks_for_too_much_is_rejected() {
    let harness = Harness::start();
    harness.put("/v1/pools/default", RULES);
    let (status, step) = harness.post("/v1/steps", r#"{"command":["true"]}"#);
    assert_eq!(status, 201, "{step}");
    assert_eq!(
        (&step["timeout"], &step["queue_timeout"], &step["retries"]),
        (&json!("10m"), &json!("5m"), &json!(1)),
        "the maximum holds where nobody says anything"
    );
    let (status, step) = harness.post("/v1/steps", r#"{"command":["true"],"timeout":"2h"}"#);
    assert_eq!(
        (status, &step["state"]),
        (201, &json!("rejected")),
        "{step}"
    );
    assert_eq!(step["reason"]["code"], "exceeds_maximum");
    assert_eq!(
        step["reason"]["detail"],
        json!({"pool": "default", "field": "timeout", "asked": "2h", "maximum": "1h"})
    );
}
