//! Every way in which a call can be invalid.

use std::io::{Read, Write};

use super::*;
use crate::config::Overrides;
use crate::fixture::answer;

#[test]
fn bad_steps_are_refused_with_the_field() {
    let harness = Harness::start();
    for (body, status, expected, field) in [
        (r#"{"comand":["a"]}"#, 400, "unknown_field", "comand"),
        (
            r#"{"command":["a"],"resources":{"gpus":1}}"#,
            400,
            "unknown_field",
            "resources.gpus",
        ),
        (r#"{"command":"a"}"#, 400, "invalid_body", "command"),
        (r#"{"command":["a"]"#, 400, "invalid_body", ""),
        ("", 400, "invalid_body", ""),
        (r#"[["a"]]"#, 400, "invalid_body", ""),
        (r#"{"command":[]}"#, 400, "invalid_command", "command"),
        (r#"{"command":["a"],"id":"../x"}"#, 400, "invalid_id", "id"),
        (
            r#"{"command":["a"],"resources":{"memory":"8 GB"}}"#,
            400,
            "invalid_memory",
            "resources.memory",
        ),
    ] {
        let (got, error) = harness.post("/v1/steps", body);
        assert_eq!(error["error"]["detail"]["field"], field, "{body}: {error}");
        assert_eq!(code((got, error), status), expected, "{body}");
    }
    let (_, error) = harness.post("/v1/steps", r#"{"comand":["a"]}"#);
    assert_eq!(error["error"]["detail"]["nearest"], "command");
    assert!(
        ids(&harness.get("/v1/steps").1).is_empty(),
        "nothing is half-done"
    );
}

#[test]
fn an_id_with_another_body_is_a_conflict_that_names_the_difference() {
    let harness = Harness::start();
    harness.submit("a");
    let (status, error) = harness.post("/v1/steps", r#"{"id":"a","command":["true","x"]}"#);
    assert_eq!(error["error"]["detail"]["differs"], "command", "{error}");
    assert_eq!(code((status, error), 409), "id_in_use");
}

#[test]
fn what_is_not_there_is_named() {
    let harness = Harness::start();
    for (path, expected) in [
        ("/v1/steps/x", "unknown_step"),
        ("/v1/steps/x:wait", "unknown_step"),
        ("/v1/steps/x/logs", "unknown_step"),
        ("/v1/nodes/x", "unknown_node"),
        ("/v1/nodes/a%20b", "unknown_node"),
        ("/v1/pools/x", "unknown_pool"),
        ("/v1/jobs", "unknown_route"),
        ("/", "unknown_route"),
        ("/v1/steps/x:wiat", "unknown_route"),
        ("/v1/steps/%ff", "unknown_route"),
    ] {
        assert_eq!(code(harness.get(path), 404), expected, "{path}");
    }
    assert_eq!(
        code(harness.post("/v1/steps/x:cancel", ""), 404),
        "unknown_step"
    );
    assert_eq!(
        code(harness.post("/v1/steps/x:cancle", ""), 404),
        "unknown_route"
    );
    harness.submit("a");
    assert_eq!(
        code(harness.get("/v1/steps/a/logs?attempt=3"), 404),
        "unknown_attempt"
    );
}

#[test]
fn a_wrong_method_is_told_the_right_ones() {
    let harness = Harness::start();
    harness.submit("a");
    for (method, path, allow) in [
        ("GET", "/v1/steps/a:cancel", "POST"),
        ("GET", "/v1/steps/a:cancel?for=x", "POST"),
        ("GET", "/v1/steps/nobody:cancel", "POST"),
        ("DELETE", "/v1/steps/a:cancel", "POST"),
        ("POST", "/v1/steps/a:wait", "GET,HEAD"),
        ("POST", "/v1/steps/a", "GET,HEAD,DELETE"),
        ("PUT", "/v1/steps/a", "GET,HEAD,DELETE"),
        ("DELETE", "/v1/nodes", "GET,HEAD"),
        ("GET", "/v1/steps:batch", "POST"),
        ("DELETE", "/v1/steps", "GET,HEAD,POST"),
    ] {
        let response = harness.call(method, path, &[]);
        assert_eq!(response.headers()["allow"], allow, "{method} {path}");
        assert_eq!(code(answer(response), 405), "method_not_allowed");
    }
    let head = harness.call("HEAD", "/v1/steps/a", &[]);
    assert_eq!(head.status(), 200);
    let unknown = harness.call("DELETE", "/v1/steps/a:wiat", &[]);
    assert_eq!(code(answer(unknown), 404), "unknown_route");
    let (_, step) = harness.get("/v1/steps/a");
    assert_eq!(step["state"], "queued", "nothing was cancelled");
}

#[test]
fn parameters_that_are_not_or_cannot_be_are_named() {
    let harness = Harness::start();
    harness.submit("a");
    for (path, expected) in [
        ("/v1/steps?limt=3", "unknown_parameter"),
        ("/v1/steps?limit=0", "invalid_parameter"),
        ("/v1/steps?limit=x", "invalid_parameter"),
        ("/v1/steps?limit=1001", "invalid_parameter"),
        ("/v1/steps?state=runing", "invalid_parameter"),
        ("/v1/steps?cursor=%2e", "invalid_parameter"),
        ("/v1/steps/a%20b", "invalid_id"),
        ("/v1/steps/a?for=running", "invalid_parameter"),
        ("/v1/steps/a:wait?for=done", "invalid_parameter"),
        ("/v1/steps/a:wait?timeout=5", "invalid_parameter"),
        ("/v1/steps/a/logs?stream=both", "invalid_parameter"),
        ("/v1/steps/a/logs?offset=-1", "invalid_parameter"),
        ("/v1/nodes?state=up", "invalid_parameter"),
        ("/v1/events?since=999999", "invalid_parameter"),
        ("/v1/events?follow=yes", "invalid_parameter"),
    ] {
        assert_eq!(code(harness.get(path), 400), expected, "{path}");
    }
    for (offset, expected) in [
        ("-1", "`-1` is not a whole number"),
        ("1e3", "`1e3` is not a whole number"),
        (
            "18446744073709551616",
            "the maximum is 18446744073709551615",
        ),
    ] {
        let (_, error) = harness.get(&format!("/v1/steps/a/logs?offset={offset}"));
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
    let (_, error) = harness.get("/v1/steps?limt=3");
    assert_eq!(error["error"]["detail"]["nearest"], "limit");
    let (_, error) = harness.get("/v1/steps?state=runing");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`running`"),
        "{error}"
    );
    let key = [("Idempotency-Key", "")];
    let refused = harness.post_with("/v1/steps", r#"{"command":["true"]}"#, &key);
    assert_eq!(code(refused, 400), "invalid_idempotency_key");
}

#[test]
fn large_bodies_are_refused_unread() {
    let harness = Harness::start();
    let large = "x".repeat(2 * 1024 * 1024);
    let (status, error) = harness.post("/v1/steps", &large);
    assert_eq!(error["error"]["detail"]["limit"], 1024 * 1024);
    assert_eq!(code((status, error), 413), "body_too_large");
    let large = "x".repeat(17 * 1024 * 1024);
    assert_eq!(
        code(harness.post("/v1/steps:batch", &large), 413),
        "body_too_large"
    );
    // A batch accepts a body of that size, but only with an announced length.
    assert_eq!(
        code(harness.post("/v1/steps:batch", &large[..2 << 20]), 400),
        "invalid_body"
    );
    assert_eq!(chunked(&harness, 3000), 413);
    let steps = vec![json!({"command":["true"]}); 10_001];
    let many = harness.post("/v1/steps:batch", &json!({ "steps": steps }).to_string());
    assert_eq!(code(many, 400), "too_many_steps");
}

/// Submits chunks of a kilobyte without announcing their number; returns the status.
fn chunked(harness: &Harness, chunks: usize) -> u16 {
    let address = harness.running.as_ref().unwrap().http_addr;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = "POST /v1/steps HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    for _ in 0..chunks {
        // The answer may come, and reading end, before everything is written.
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    std::str::from_utf8(&answer[9..]).unwrap().parse().unwrap()
}

#[test]
fn with_a_token_every_call_shows_it_and_health_stays_open() {
    let harness = Harness::start_guarded("", "correct-horse-battery\n");
    for headers in [
        &[][..],
        &[("authorization", "Bearer wrong-horse-battery-")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Basic correct-horse-battery")],
    ] {
        let response = harness.call("GET", "/v1/steps", headers);
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        assert_eq!(code(answer(response), 401), "unauthorized", "{headers:?}");
    }
    assert_eq!(code(harness.get("/v1/nothing"), 401), "unauthorized");
    for scheme in ["Bearer", "bearer"] {
        let header = format!("{scheme} correct-horse-battery");
        let response = harness.call("GET", "/v1/steps", &[("authorization", &header)]);
        assert_eq!(response.status(), 200);
    }
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(harness.get(path).0, 200, "{path}");
    }
}

#[test]
fn a_web_page_of_another_site_cannot_call() {
    let harness = Harness::start();
    let host = harness.running.as_ref().unwrap().http_addr.to_string();
    let own = format!("http://{host}");
    for (name, value, allowed) in [
        ("origin", "https://evil.example", false),
        ("origin", "null", false),
        ("origin", own.as_str(), true),
        ("host", "evil.example", false),
        ("host", "evil.example:80", false),
        ("host", "localhost:7070", true),
        ("host", "[::1]:7070", true),
    ] {
        let answered = answer(harness.call("GET", "/v1/steps", &[(name, value)]));
        if allowed {
            assert_eq!(answered.0, 200, "{value}: {}", answered.1);
        } else {
            assert_eq!(code(answered, 403), "foreign_origin", "{value}");
        }
    }
}

#[test]
fn who_has_queued_as_much_as_one_may_is_told_how_to_go_on() {
    let bounds = "max_queued_steps = 2\nmax_queued_bytes = \"100MiB\"\n";
    let harness = Harness::start_from(bounds, Overrides::default());
    let step = |id: &str, subject: &str| {
        format!(
            r#"{{"id":"{id}","subject":"{subject}","command":["true"],"pool":"default","allow_pending":true}}"#
        )
    };
    harness.bind("greedy");
    harness.bind("other");
    for id in ["a", "b"] {
        assert_eq!(harness.post("/v1/steps", &step(id, "greedy")).0, 201);
    }
    let (status, error) = harness.post("/v1/steps", &step("c", "greedy"));
    let detail = &error["error"]["detail"];
    assert_eq!(
        *detail,
        json!({"subject": "greedy", "bound": "max_queued_steps", "has": 2, "asked": 1, "limit": 2})
    );
    assert_eq!(code((status, error), 409), "queue_full");
    let batch = format!(
        r#"{{"steps":[{},{}]}}"#,
        step("d", "greedy"),
        step("e", "other")
    );
    let (status, view) = harness.post("/v1/steps:batch", &batch);
    assert_eq!(status, 200);
    let [refused, taken] = &view["results"].as_array().unwrap()[..] else {
        panic!("{view}");
    };
    assert_eq!(refused["error"]["code"], "queue_full");
    assert_eq!(taken["id"], "e");
    assert_eq!(harness.post("/v1/steps/a:cancel", "").0, 200);
    assert_eq!(harness.post("/v1/steps", &step("c", "greedy")).0, 201);
}
