//! Calls that succeed.

use super::*;

#[test]
fn a_submit_is_answered_with_the_whole_step_and_a_repeat_with_the_same() {
    let harness = Harness::start();
    harness.bind("prod");
    let body = r#"{"id":"train","command":["python","t.py"],"env":{"A":"b"},"nodes":1,"timeout":"2h",
        "resources":{"gpu_count":1,"cpu_count":0.1,"memory":"2GiB"},"subject":"prod"}"#;
    let (status, step) = harness.post("/v1/steps", body);
    assert_eq!((status, &step["state"]), (201, &json!("queued")), "{step}");
    assert_eq!(step["name"], "python");
    assert_eq!(step["reason"]["code"], "pool_empty");
    assert_eq!(step["pool"], "default");
    assert_eq!(
        step["request"],
        json!({"cpu":0.1,"gpu":1,"memory":"2GiB","step_run":1})
    );
    assert_eq!(step["resources"]["cpu_count"], json!(0.1));
    assert_eq!((&step["attempt"], &step["exit"]), (&json!(0), &Value::Null));
    assert_eq!(
        (&step["timeout"], &step["grace_period"]),
        (&json!("2h"), &json!("30s"))
    );
    let (status, again) = harness.post("/v1/steps", body);
    assert_eq!((status, &again), (200, &step));
    assert_eq!(harness.get("/v1/steps/train"), (200, step));
}

#[test]
fn ids_are_drawn_or_derived_from_the_idempotency_key() {
    let harness = Harness::start();
    let body = r#"{"command":["true"]}"#;
    let (_, first) = harness.post("/v1/steps", body);
    let (_, second) = harness.post("/v1/steps", body);
    assert_ne!(first["id"], second["id"]);
    let key = [("Idempotency-Key", "run 7")];
    let (created, first) = harness.post_with("/v1/steps", body, &key);
    let (repeated, second) = harness.post_with("/v1/steps", body, &key);
    assert_eq!((created, repeated), (201, 200));
    assert_eq!(first["id"], second["id"]);
    let other = harness.post_with("/v1/steps", r#"{"command":["false"]}"#, &key);
    assert_eq!(code(other, 409), "id_in_use");
}

#[test]
fn what_a_batch_has_as_defaults_holds_where_a_step_says_nothing() {
    let harness = Harness::start();
    let body = r#"{"defaults":{"work":"training","timeout":"1h","env":{"A":"1"}},"steps":[
        {"id":"a","command":["true"]},
        {"id":"b","command":["true"],"retries":0,"defaults":{"timeout":"2h","env":{"B":"2"}}},
        {"id":"c","command":["true"],"defaults":{"id":"d"}},
        {"id":"e","command":["true"],"priority_class":"low","resources":{"preemptible":false}}]}"#;
    let (status, answer) = harness.post("/v1/steps:batch", body);
    assert_eq!(status, 200, "{answer}");
    let [a, b, c, e] = &answer["results"].as_array().unwrap()[..] else {
        panic!("{answer}");
    };
    assert_eq!((&a["work"], &a["retries"]), (&json!("training"), &json!(2)));
    assert_eq!(
        (&a["timeout"], &a["preemptible"]),
        (&json!("1h"), &json!(true))
    );
    assert_eq!((&b["timeout"], &b["retries"]), (&json!("2h"), &json!(0)));
    assert_eq!(b["env"], json!({"A": "1", "B": "2"}));
    assert_eq!(c["error"]["code"], "unsupported_field", "{c}");
    assert_eq!(e["error"]["code"], "contradiction", "{e}");
    let (_, listed) = harness.get("/v1/steps?work=training");
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    let refused = harness.get("/v1/steps?work=play");
    assert_eq!(code(refused, 400), "invalid_parameter");
}

#[test]
fn a_list_of_steps_is_filtered_by_their_labels() {
    let harness = Harness::start();
    for (id, labels) in [
        ("a", json!({ "team": "vision" })),
        ("b", json!({ "team": "vision", "nightly": "" })),
        ("c", json!({ "team": "search" })),
        ("d", json!({})),
    ] {
        let body = json!({ "id": id, "command": ["true"], "labels": labels });
        assert_eq!(harness.post("/v1/steps", &body.to_string()).0, 201);
    }
    for (selector, expected) in [
        ("team%3Dvision", vec!["a", "b"]),
        ("team%3Dvision,!nightly", vec!["a"]),
        ("team%20in%20(vision,%20search)", vec!["a", "b", "c"]),
        ("team!%3Dvision", vec!["c", "d"]),
        ("nightly", vec!["b"]),
    ] {
        let (status, page) = harness.get(&format!("/v1/steps?labels={selector}"));
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().unwrap().iter();
        let ids: Vec<&str> = items.filter_map(|step| step["id"].as_str()).collect();
        assert_eq!(ids, expected, "{selector}");
    }
    let refused = harness.get("/v1/steps?labels=team%20in");
    assert_eq!(code(refused, 400), "invalid_parameter");
}

#[test]
fn a_batch_is_one_commit_with_a_result_for_each_step() {
    let harness = Harness::start();
    let meter = harness.running.as_ref().unwrap().engine.clone();
    let before = meter.meter().commits().count();
    let body = r#"{"steps":[{"id":"a","command":["true"]},{"command":["true"],"colour":1},
        {"id":"a","command":["false"]},{"command":[]},{"id":"b","command":["true"]}]}"#;
    let (status, answer) = harness.post("/v1/steps:batch", body);
    assert_eq!(status, 200, "{answer}");
    let results = answer["results"].as_array().unwrap();
    let codes: Vec<&str> = results
        .iter()
        .map(|result| {
            result["id"]
                .as_str()
                .or(result["error"]["code"].as_str())
                .unwrap()
        })
        .collect();
    assert_eq!(
        codes,
        ["a", "unknown_field", "id_in_use", "invalid_command", "b"]
    );
    assert_eq!(results[1]["error"]["detail"]["field"], "steps[1].colour");
    assert_eq!(meter.meter().commits().count() - before, 1);
    let key = [("Idempotency-Key", "k")];
    let body = r#"{"steps":[{"command":["true"]},{"command":["true"]}]}"#;
    let first = harness.post_with("/v1/steps:batch", body, &key).1;
    assert_ne!(first["results"][0]["id"], first["results"][1]["id"]);
    assert_eq!(harness.post_with("/v1/steps:batch", body, &key).1, first);
}

#[test]
fn a_list_is_in_the_order_of_submission_whatever_the_ids() {
    let harness = Harness::start();
    for id in ["m", "z", "a", "k"] {
        harness.submit(id);
    }
    let (_, page) = harness.get("/v1/steps?limit=2");
    assert_eq!(ids(&page), ["m", "z"]);
    harness.submit("b");
    // Steps that end or start meanwhile do not shift the pages.
    harness.post("/v1/steps/m:cancel", "");
    let (_, page) = harness.get(&format!("/v1/steps?cursor={}", cursor(&page)));
    assert_eq!(ids(&page), ["a", "k", "b"]);
    assert_eq!(page.get("next_cursor"), None);
}

#[test]
fn a_page_of_large_steps_is_cut_and_goes_on() {
    let harness = Harness::start();
    for n in 0..9 {
        let large = "x".repeat(900 << 10);
        let body = json!({"id": format!("s{n}"), "command": ["true", large]});
        assert_eq!(harness.post("/v1/steps", &body.to_string()).0, 201);
    }
    for list in ["/v1/steps?", "/v1/events?"] {
        let mut pages = 0;
        let mut seen = Vec::new();
        let mut next = String::new();
        loop {
            let (_, page) = harness.get(&format!("{list}{next}"));
            assert!(page.to_string().len() < 5 << 20, "{list}");
            pages += 1;
            let items = page["items"].as_array().unwrap();
            assert!(!items.is_empty(), "{list}");
            seen.extend(items.iter().filter_map(|item| {
                let id = item["id"].as_str().or(item["step"].as_str())?;
                Some(id.to_owned())
            }));
            match page.get("next_cursor") {
                Some(_) => next = format!("cursor={}", cursor(&page)),
                None => break,
            }
        }
        let all: Vec<String> = (0..9).map(|n| format!("s{n}")).collect();
        assert_eq!((seen, pages), (all, 3), "{list}");
    }
}

fn cursor(page: &Value) -> &str {
    page["next_cursor"].as_str().unwrap()
}

#[test]
fn lists_page_by_cursor_and_filter() {
    let harness = Harness::start();
    harness.bind("rare");
    harness.bind("common");
    let steps: Vec<Value> = (0..2500)
        .map(|n| {
            let subject = if n % 1000 == 999 { "rare" } else { "common" };
            json!({"id": format!("s{n:04}"), "command": ["true"], "subject": subject})
        })
        .collect();
    let (status, _) = harness.post("/v1/steps:batch", &json!({ "steps": steps }).to_string());
    assert_eq!(status, 200);
    let (_, page) = harness.get("/v1/steps?limit=2");
    assert_eq!(ids(&page), ["s0000", "s0001"]);
    let (_, page) = harness.get(&format!("/v1/steps?limit=2&cursor={}", cursor(&page)));
    assert_eq!(ids(&page), ["s0002", "s0003"]);
    // Matches are found beyond the steps of one scan.
    let (_, page) = harness.get("/v1/steps?subject=rare");
    assert_eq!(ids(&page), ["s0999", "s1999"]);
    assert_eq!(page.get("next_cursor"), None);
    let (_, page) = harness.get("/v1/steps?subject=rare&limit=1&state=queued,running&pool=default");
    assert_eq!(ids(&page), ["s0999"]);
    let rest = format!("/v1/steps?subject=rare&limit=1&cursor={}", cursor(&page));
    let (_, page) = harness.get(&rest);
    assert_eq!(ids(&page), ["s1999"]);
    assert_eq!(page.get("next_cursor"), None);
    for nothing in ["state=running", "pool=other", "node=n1", "subject=x"] {
        let (_, page) = harness.get(&format!("/v1/steps?{nothing}"));
        assert!(ids(&page).is_empty(), "{nothing}");
    }
}

#[test]
fn a_step_is_seen_from_its_grant_to_its_exit() {
    let harness = Harness::start();
    let mut agent = harness.agent("n1", 2);
    harness.submit("a");
    harness.runtime.block_on(agent.order());
    let (_, step) = harness.get("/v1/steps/a");
    assert_eq!(
        (&step["state"], &step["attempt"]),
        (&json!("allocated"), &json!(1))
    );
    assert_eq!(
        step["placements"],
        json!([{"node":"n1","gpus":[],"rank":0,"ready":false}])
    );
    harness.runtime.block_on(agent.ran("a.1", None));
    let (_, step) = harness.get("/v1/steps/a:wait?for=running&timeout=20s");
    assert_eq!(step["state"], "running");
    assert_eq!(
        ids(&harness.get("/v1/steps?node=n1&state=running").1),
        ["a"]
    );
    let (_, node) = harness.get("/v1/nodes/n1");
    assert_eq!(
        (&node["state"], &node["steps"]),
        (&json!("ready"), &json!(["a"]))
    );
    assert!(node["heard_at"].is_string());
    let (_, pool) = harness.get("/v1/pools/default");
    assert_eq!(
        (&pool["nodes_ready"], &pool["running"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(pool["capacity"]["cpu"], 2);

    harness.runtime.block_on(agent.ran("a.1", Some(7)));
    let (_, step) = harness.get("/v1/steps/a:wait?timeout=20s");
    assert_eq!(
        (&step["state"], &step["exit"]["code"]),
        (&json!("failed"), &json!(7))
    );
    assert_eq!(step["reason"]["code"], "non_zero_exit");
    for time in ["submitted_at", "allocated_at", "started_at", "finished_at"] {
        assert!(step[time].is_string(), "{time}: {step}");
    }
    assert_eq!(harness.get("/v1/nodes/n1").1["steps"], json!([]));
    assert_eq!(
        harness.get("/v1/nodes?state=ready&pool=default").1["items"][0]["name"],
        "n1"
    );
    assert_eq!(harness.get("/v1/nodes?state=lost").1["items"], json!([]));
    assert_eq!(harness.get("/v1/pools").1["items"][0]["name"], "default");
}

#[test]
fn a_wait_ends_with_the_step_or_with_its_time() {
    let harness = Harness::start();
    harness.submit("a");
    let (status, step) = harness.get("/v1/steps/a:wait?timeout=10ms");
    assert_eq!((status, &step["state"]), (200, &json!("queued")));
    assert_eq!(
        harness.get("/v1/steps/a:wait?for=queued").1["state"],
        "queued"
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| harness.get("/v1/steps/a:wait?for=running&timeout=25s"));
        let (status, step) = harness.post("/v1/steps/a:cancel", "");
        assert_eq!((status, &step["state"]), (200, &json!("cancelled")));
        assert_eq!(waiting.join().unwrap().1["state"], "cancelled");
    });
    let (status, again) = harness.post("/v1/steps/a:cancel", "");
    assert_eq!((status, &again["state"]), (200, &json!("cancelled")));
    let (status, again) = harness.post("/v1/steps/a:cancel?grace_period=0s", "");
    assert_eq!((status, &again["state"]), (200, &json!("cancelled")));
}

#[test]
fn a_grace_is_for_cancels_and_as_long_as_any_may_be() {
    let harness = Harness::start();
    harness.submit("a");
    for (call, expected) in [
        ("a:cancel?grace_period=9d", "9d is longer than"),
        ("a:cancel?grace_period=soon", "soon"),
        (
            "a:suspend?grace_period=1s",
            "belongs to `/v1/steps/ID:cancel`",
        ),
        ("a:cancel?grace=1s", "grace_period"),
    ] {
        let (status, answer) = harness.post(&format!("/v1/steps/{call}"), "");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            status == 400 && message.contains(expected),
            "{call}: {answer}"
        );
    }
    assert_eq!(harness.get("/v1/steps/a").1["state"], "queued");
}

#[test]
fn what_was_answered_is_there_after_a_restart() {
    let mut harness = Harness::start();
    let step = harness.submit("a");
    harness.restart();
    assert_eq!(harness.get("/v1/steps/a"), (200, step));
    harness.stop();
}

#[test]
fn health_and_metrics_are_plain_and_right() {
    let harness = Harness::start();
    harness.submit("a");
    assert_eq!(harness.get("/healthz"), (200, json!("ok\n")));
    assert_eq!(harness.get("/readyz"), (200, json!("ok\n")));
    let (status, text) = harness.get("/metrics");
    let text = text.as_str().unwrap();
    assert_eq!(status, 200);
    for line in [
        "sluice_steps{state=\"queued\"} 1",
        "sluice_nodes{state=\"ready\"} 0",
        "# TYPE sluice_commit_seconds histogram",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let (_, events) = harness.get("/v1/events");
    let last = events["items"].as_array().unwrap().len();
    assert!(
        text.contains(&format!("\nsluice_last_record {last}\n")),
        "{text}"
    );
}
