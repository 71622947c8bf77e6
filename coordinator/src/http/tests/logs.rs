//! Output of steps, passed through from an agent that the test plays.

use std::io::Read;

use sluice_common::time::{Span, Time};
use sluice_common::wire::{LogReply, LogStream, OutputSince};

use super::*;

#[test]
fn output_comes_from_the_node_with_its_offset() {
    let harness = Harness::start();
    let mut agent = harness.agent("n1", 2);
    harness.submit("a");
    harness.runtime.block_on(agent.order());
    std::thread::scope(|scope| {
        let call =
            scope.spawn(|| harness.call("GET", "/v1/steps/a/logs?stream=stderr&offset=5", &[]));
        harness.runtime.block_on(async {
            let (request, mut writer) = agent.asked_for_output().await;
            assert_eq!(request.attempt.to_string(), "a.1");
            assert_eq!((request.stream, request.offset), (LogStream::Stderr, 5));
            assert!(!request.follow);
            writer.send(&LogReply::From { offset: 9 }).await.unwrap();
            writer.send_bytes(b"oops\n").await.unwrap();
            writer.finish();
        });
        let mut response = call.join().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(
            response.headers()["content-type"],
            "application/octet-stream"
        );
        assert_eq!(response.headers()["sluice-log-offset"], "9");
        assert_eq!(response.headers()["sluice-attempt"], "1");
        assert_eq!(response.body_mut().read_to_string().unwrap(), "oops\n");
    });
}

#[test]
fn a_follower_waits_for_the_step_to_run_and_sees_a_broken_link_as_broken() {
    let harness = Harness::start();
    harness.submit("a");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let response = harness.call("GET", "/v1/steps/a/logs?follow=true", &[]);
            assert_eq!(response.status(), 200);
            let mut text = Vec::new();
            let end = response.into_body().into_reader().read_to_end(&mut text);
            (text, end)
        });
        let agent = harness.agent("n1", 2);
        harness.runtime.block_on(async {
            let (request, mut writer) = agent.asked_for_output().await;
            assert!(request.follow);
            writer.send(&LogReply::From { offset: 0 }).await.unwrap();
            writer.send_bytes(b"half").await.unwrap();
            // The link breaks only after the data has arrived.
            tokio::time::timeout(std::time::Duration::from_millis(300), writer.reader_gone())
                .await
                .ok();
            agent.connection.close("the agent dies");
        });
        let (text, end) = call.join().unwrap();
        assert_eq!(text, b"half");
        assert!(end.is_err(), "a broken stream must not look complete");
    });
}

#[test]
fn a_step_that_never_ran_has_no_output_and_its_followers_are_told_at_once() {
    let harness = Harness::start();
    harness.submit("a");
    let mut response = harness.call("GET", "/v1/steps/a/logs", &[]);
    assert_eq!(response.headers()["sluice-attempt"], "0");
    assert_eq!(response.body_mut().read_to_string().unwrap(), "");
    let beyond = harness.get("/v1/steps/a/logs?offset=1");
    assert_eq!(code(beyond, 416), "offset_beyond_end");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| harness.call("GET", "/v1/steps/a/logs?follow=true", &[]));
        harness.post("/v1/steps/a:cancel", "");
        let mut response = call.join().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.body_mut().read_to_string().unwrap(), "");
    });
}

#[test]
fn a_node_that_is_away_or_does_not_have_what_is_asked_for_says_so() {
    let harness = Harness::start();
    let mut agent = harness.agent("n1", 2);
    harness.submit("a");
    harness.runtime.block_on(agent.order());
    std::thread::scope(|scope| {
        let call = scope.spawn(|| harness.call("GET", "/v1/steps/a/logs", &[]));
        harness.runtime.block_on(async {
            let (_, mut writer) = agent.asked_for_output().await;
            let message = "it never was".to_owned();
            writer.send(&LogReply::Refused { message }).await.unwrap();
            writer.finish();
            writer.delivered().await.ok();
        });
        let mut response = call.join().unwrap();
        assert_eq!(response.status(), 200, "what never ran has no output");
        assert_eq!(response.body_mut().read_to_string().unwrap(), "");
    });
    harness.runtime.block_on(agent.ran("a.1", None));
    harness.get("/v1/steps/a:wait?for=running&timeout=20s");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| harness.get("/v1/steps/a/logs"));
        harness.runtime.block_on(async {
            let (_, mut writer) = agent.asked_for_output().await;
            let message = "it was removed".to_owned();
            writer.send(&LogReply::Refused { message }).await.unwrap();
            writer.finish();
            // The link stays until the coordinator has dropped the stream, at its end or after a refusal.
            writer.delivered().await.ok();
        });
        assert_eq!(code(call.join().unwrap(), 404), "output_unavailable");
    });
    std::thread::scope(|scope| {
        let call = scope.spawn(|| harness.get("/v1/steps/a/logs?offset=9"));
        harness.runtime.block_on(async {
            let (_, mut writer) = agent.asked_for_output().await;
            writer.send(&LogReply::From { offset: 4 }).await.unwrap();
            writer.finish();
            writer.delivered().await.ok();
        });
        let (status, error) = call.join().unwrap();
        let detail = &error["error"]["detail"];
        assert_eq!(detail, &json!({"offset": 9, "end": 4}), "{error}");
        assert_eq!(code((status, error), 416), "offset_beyond_end");
    });
    drop(agent);
    let (status, error) = harness.get("/v1/steps/a/logs");
    assert_eq!(error["error"]["detail"]["node"], "n1");
    assert_eq!(code((status, error), 503), "node_unreachable");
}

#[test]
fn a_caller_may_ask_for_times_and_for_output_since_a_time() {
    let harness = Harness::start();
    let mut agent = harness.agent("n1", 2);
    harness.submit("a");
    harness.runtime.block_on(agent.order());
    let minute = Time::from_unix_millis(1_764_576_060_000);
    for (since, expected) in [
        ("10m", OutputSince::Ago(Span::from_secs(600))),
        ("2025-12-01T08:01:00Z", OutputSince::At(minute)),
    ] {
        std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                let path = format!("/v1/steps/a/logs?timestamps=true&since={since}");
                harness.call("GET", &path, &[])
            });
            harness.runtime.block_on(async {
                let (request, mut writer) = agent.asked_for_output().await;
                assert_eq!((request.since, request.timestamps), (Some(expected), true));
                writer.send(&LogReply::From { offset: 9 }).await.unwrap();
                writer.finish();
            });
            let response = call.join().unwrap();
            assert_eq!(response.headers()["sluice-log-offset"], "9");
        });
    }
    for since in ["yesterday", "-1h", "12"] {
        let (status, error) = harness.get(&format!("/v1/steps/a/logs?since={since}"));
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("`10m`"), "{message}");
        assert_eq!(code((status, error), 400), "invalid_parameter");
    }
}
