//! Calls on many steps at once.

use super::lists::submit_batch;
use super::*;

fn act(harness: &Harness, verb: &str, body: &Value) -> Value {
    let (status, answer) = harness.post(&format!("/v1/steps:{verb}"), &body.to_string());
    assert_eq!(status, 200, "{answer}");
    answer
}

fn outcomes(answer: &Value) -> Vec<(&str, &str)> {
    let steps = answer["steps"].as_array().unwrap().iter();
    steps
        .map(|step| {
            (
                step["id"].as_str().unwrap(),
                step["state"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn steps_are_cancelled_by_filters_in_few_commits_and_a_repeat_finds_none() {
    let harness = Harness::start();
    submit_batch(&harness, (0..1500).map(|n| format!("s{n:04}")), "vision");
    submit_batch(
        &harness,
        ["a", "b"].map(str::to_owned).into_iter(),
        "search",
    );
    let vision = json!({ "filter": { "labels": "team=vision" } });
    let dry = act(&harness, "cancel?dry_run=true", &vision);
    assert_eq!((&dry["matched"], &dry["failed"]), (&json!(1500), &json!(0)));
    let shown = outcomes(&dry);
    assert_eq!(
        (shown.len(), shown[0], shown[999]),
        (1000, ("s0000", "queued"), ("s0999", "queued"))
    );
    assert_eq!(harness.get("/v1/steps/s0000").1["state"], "queued");
    let engine = harness.running.as_ref().unwrap().engine.clone();
    let before = engine.meter().commits().count();
    let done = act(&harness, "cancel", &vision);
    assert_eq!(
        (&done["matched"], done.get("next_cursor")),
        (&json!(1500), None)
    );
    assert_eq!(outcomes(&done)[999], ("s0999", "cancelled"));
    let commits = engine.meter().commits().count() - before;
    assert!(commits < 300, "{commits} commits");
    assert_eq!(harness.get("/v1/steps/s1499").1["state"], "cancelled");
    assert_eq!(act(&harness, "cancel", &vision)["matched"], 0);
    let (_, left) = harness.get("/v1/steps?state=queued");
    assert_eq!(ids(&left), ["a", "b"]);
}

#[test]
fn steps_are_held_and_resumed_by_name_and_only_those_that_it_changes() {
    let harness = Harness::start();
    submit_batch(
        &harness,
        ["a1", "a2", "b1"].map(str::to_owned).into_iter(),
        "x",
    );
    let named = json!({ "filter": { "name": "a?-*" } });
    let held = act(&harness, "suspend", &named);
    assert_eq!(outcomes(&held), [("a1", "queued"), ("a2", "queued")]);
    assert_eq!(held["steps"][0]["held"], true);
    assert_eq!(act(&harness, "suspend", &named)["matched"], 0);
    assert_eq!(
        act(&harness, "requeue", &json!({ "filter": { "id": "a1,b1" } }))["matched"],
        1
    );
    let resumed = act(&harness, "resume", &json!({ "all": true }));
    assert_eq!(outcomes(&resumed), [("a2", "queued")]);
    assert_eq!(harness.get("/v1/steps/a2").1["held"], false);
    // A step that is submitted after the call began is beyond its end.
    let none = act(&harness, "cancel", &json!({ "all": true, "cursor": "0-0" }));
    assert_eq!(none["matched"], 0);
}

#[test]
fn a_step_that_cannot_be_suspended_fails_alone() {
    let harness = Harness::start();
    let mut agents = [harness.agent("n1", 2), harness.agent("n2", 2)];
    let gang = r#"{"id":"gang","command":["true"],"nodes":2,"resources":{"cpu_count":0.1}}"#;
    assert_eq!(harness.post("/v1/steps", gang).0, 201);
    for agent in &mut agents {
        harness.runtime.block_on(agent.order());
    }
    let body =
        r#"{"id":"big","command":["true"],"resources":{"cpu_count":64},"allow_pending":true}"#;
    assert_eq!(harness.post("/v1/steps", body).0, 201);
    let answer = act(&harness, "suspend", &json!({ "all": true }));
    assert_eq!(
        (&answer["matched"], &answer["failed"]),
        (&json!(2), &json!(1)),
        "{answer}"
    );
    assert_eq!(
        answer["steps"][0]["error"]["code"], "cannot_suspend",
        "{answer}"
    );
    assert_eq!(answer["steps"][1]["held"], true);
}

#[test]
fn a_call_without_a_filter_or_with_a_wrong_one_changes_nothing() {
    let harness = Harness::start();
    harness.submit("a");
    for (call, body, expected) in [
        ("cancel", json!({}), "`filter`: no filter is set"),
        (
            "cancel",
            json!({ "filter": {} }),
            "`\"all\": true` if you mean every step",
        ),
        (
            "cancel",
            json!({ "filter": { "state": "runing" } }),
            "did you mean `running`?",
        ),
        (
            "cancel",
            json!({ "filter": { "nme": "a" } }),
            "no field `filter.nme`: did you mean `name`?",
        ),
        (
            "cancel",
            json!({ "filter": { "name": "a,,b" } }),
            "`name`: an empty name",
        ),
        ("cancel", json!({ "filter": { "id": "a b" } }), "`id`"),
        (
            "cancel",
            json!({ "filter": { "since": "yesterday" } }),
            "`yesterday` is not a time: write a duration such as `2h`",
        ),
        (
            "cancel",
            json!({ "all": true, "cursor": "7" }),
            "`7` is not a cursor",
        ),
        (
            "suspend?grace_period=1s",
            json!({ "all": true }),
            "`dry_run`",
        ),
    ] {
        let (status, answer) = harness.post(&format!("/v1/steps:{call}"), &body.to_string());
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            status == 400 && message.contains(expected),
            "{call} {body}: {answer}"
        );
    }
    assert_eq!(harness.get("/v1/steps/a").1["state"], "queued");
}
