//! Events: pages and streams, resumed without a gap while others submit.

use std::sync::{Mutex, mpsc};

use super::*;
use crate::config::Overrides;

/// One event of a stream: its number, its type, its record.
type SentEvent = (u64, String, Value);

/// Reads the next `count` events of a stream.
fn next_events(lines: &mut impl Iterator<Item = String>, count: usize) -> Vec<SentEvent> {
    let mut events = Vec::new();
    let (mut id, mut kind) = (0, String::new());
    while events.len() < count {
        let line = lines.next().expect("the stream goes on");
        if let Some(text) = line.strip_prefix("id: ") {
            id = text.parse().unwrap();
        } else if let Some(text) = line.strip_prefix("event: ") {
            kind = text.to_owned();
        } else if let Some(text) = line.strip_prefix("data: ") {
            events.push((id, kind.clone(), serde_json::from_str(text).unwrap()));
        }
    }
    events
}

#[test]
fn pages_and_streams_say_the_same_in_the_same_order() {
    let harness = Harness::start();
    for id in ["a", "b", "c"] {
        harness.submit(id);
    }
    let (_, all) = harness.get("/v1/events");
    let items = all["items"].as_array().unwrap();
    assert_eq!(
        (items[0]["seq"].as_u64(), &items[0]["type"]),
        (Some(1), &json!("coordinator_started"))
    );
    assert_eq!(all.get("next_cursor"), None);
    let mut paged = Vec::new();
    let mut path = "/v1/events?limit=2".to_owned();
    loop {
        let (_, page) = harness.get(&path);
        paged.extend(page["items"].as_array().unwrap().clone());
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/v1/events?limit=2&cursor={cursor}");
    }
    assert_eq!(&paged, items);
    let events = next_events(&mut harness.lines("/v1/events?follow=true"), items.len());
    for ((id, kind, record), item) in events.iter().zip(items) {
        assert_eq!((record, item["seq"].as_u64()), (item, Some(*id)));
        assert_eq!(item["type"], kind.as_str());
    }
    let (_, of_b) = harness.get("/v1/events?step=b");
    assert_eq!(of_b["items"].as_array().unwrap().len(), 1);
    assert_eq!(of_b["items"][0]["step"], "b");
}

#[test]
fn a_follower_that_resumes_again_and_again_misses_nothing_and_hears_nothing_twice() {
    let harness = Harness::start();
    // The writers stay a little ahead of the reader, so that a slow one is not overrun.
    let (ahead, may_write) = mpsc::channel();
    let may_write = Mutex::new(may_write);
    let seen = std::thread::scope(|scope| {
        for writer in 0..3 {
            let (harness, may_write) = (&harness, &may_write);
            let next = move || may_write.lock().unwrap().recv().is_ok();
            scope.spawn(move || {
                for number in (0..).take_while(|_| next()) {
                    harness.submit(&format!("s{writer}-{number}"));
                }
            });
        }
        (0..20).for_each(|_| ahead.send(()).unwrap());
        let mut seen: Vec<u64> = Vec::new();
        for round in 0..40 {
            let wanted = 1 + round % 7;
            (0..wanted).for_each(|_| ahead.send(()).unwrap());
            let since = seen.last().copied().unwrap_or(0);
            let mut lines = harness.lines(&format!("/v1/events?since={since}&follow=true"));
            let events = next_events(&mut lines, wanted);
            seen.extend(events.iter().map(|(id, ..)| *id));
        }
        drop(ahead);
        seen
    });
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_follower_hears_of_one_step_and_of_what_happens_later() {
    let harness = Harness::start();
    harness.submit("a");
    let mut lines = harness.lines("/v1/events?follow=true&step=b");
    harness.submit("b");
    harness.post("/v1/steps/b:cancel", "");
    let events = next_events(&mut lines, 2);
    let kinds: Vec<&str> = events.iter().map(|(_, kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["step_queued", "step_ended"]);
    // The log has no message; events have the one that the step shows.
    let reason = json!({"code": "cancelled", "message": "it was cancelled"});
    assert_eq!(events[1].2["reason"], reason);
    assert_eq!(harness.get("/v1/steps/b").1["reason"], reason);
}

#[test]
fn a_follower_from_now_on_hears_nothing_of_the_past() {
    let harness = Harness::start();
    harness.submit("before");
    let (_, none) = harness.get("/v1/events?since=now");
    assert_eq!(none["items"], json!([]));
    let mut lines = harness.lines("/v1/events?since=now&follow=true");
    harness.submit("after");
    // The submitter's record comes first.
    let next_events = next_events(&mut lines, 2);
    assert_eq!(next_events[0].1, "audited");
    assert_eq!(next_events[1].2["step"], "after");
    let (status, refused) = harness.get("/v1/events?cursor=now");
    assert_eq!(
        (status, &refused["error"]["code"]),
        (400, &json!("invalid_parameter"))
    );
}

#[test]
fn a_stream_resumes_by_the_browser_s_header_and_ends_when_the_coordinator_stops() {
    let mut harness = Harness::start();
    harness.submit("a");
    let last = harness.get("/v1/events").1["items"]
        .as_array()
        .unwrap()
        .len();
    let header = (last - 1).to_string();
    let response = harness.call(
        "GET",
        "/v1/events?since=0&follow=true",
        &[("last-event-id", &header)],
    );
    use std::io::BufRead;
    let reader = std::io::BufReader::new(response.into_body().into_reader());
    let mut lines = reader.lines().map_while(Result::ok);
    assert_eq!(next_events(&mut lines, 1)[0].0, last as u64);
    harness.stop();
    assert_eq!(lines.find(|line| !line.is_empty()), None);
}

#[test]
fn events_that_are_no_longer_kept_are_gone_with_the_first_that_is() {
    let mut harness = Harness::start_with(Overrides {
        retention: Some(10),
        ..Overrides::default()
    });
    // After two snapshots the log is cut.
    for round in 0..24 {
        let steps: Vec<Value> = (0..1000)
            .map(|n| json!({"id": format!("s{round}-{n}"), "command": ["true"]}))
            .collect();
        harness.post("/v1/steps:batch", &json!({ "steps": steps }).to_string());
    }
    let (status, error) = harness.get("/v1/events?since=0");
    let first = error["error"]["detail"]["first"].as_u64().unwrap();
    assert!(first > 1, "{error}");
    assert_eq!(code((status, error), 410), "events_gone");
    assert_eq!(
        code(harness.get("/v1/events?since=0&follow=true"), 410),
        "events_gone"
    );
    let (_, page) = harness.get("/v1/events?limit=1");
    assert_eq!(page["items"][0]["seq"], first);
    harness.stop();
}
