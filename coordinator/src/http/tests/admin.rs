//! Nodes that admins cordon, drain, label and delete.

use super::*;
use sluice_common::id::NodeName;
use sluice_common::wire::{StopReason, ToNode};

const NODE: &str = "/v1/nodes/n";

fn verb(verb: &str) -> String {
    format!("{NODE}:{verb}")
}

/// Returns the events of these types, oldest first.
fn events(harness: &Harness, types: &[&str]) -> Vec<Value> {
    let (status, page) = harness.get("/v1/events?limit=1000");
    assert_eq!(status, 200, "{page}");
    let items = page["items"].as_array().unwrap().iter();
    let wanted = items.filter(|event| types.contains(&event["type"].as_str().unwrap()));
    wanted.cloned().collect()
}

/// Waits until the node is seen as disconnected.
fn until_away(harness: &Harness, node: &str) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let (_, view) = harness.get(&format!("/v1/nodes/{node}"));
        if view["state"] == "unreachable" {
            return;
        }
        assert!(std::time::Instant::now() < until, "{view}");
        std::thread::yield_now();
    }
}

#[test]
fn a_node_is_cordoned_and_opened_again() {
    let mut harness = Harness::start();
    let _agent = harness.agent("n", 4);
    let (status, view) = harness.post(&verb("cordon"), r#"{"reason":"new fans"}"#);
    assert_eq!(status, 200, "{view}");
    let cordon = view["cordon"].clone();
    assert_eq!(
        (&cordon["reason"], &cordon["drain"], &cordon["deadline"]),
        (&json!("new fans"), &json!(false), &Value::Null)
    );
    assert_eq!(harness.submit("a")["state"], "queued");
    assert_eq!(harness.get("/v1/pools/default").1["nodes_ready"], 0);
    // The same change again, without a body.
    assert_eq!(harness.post(&verb("cordon"), "").1["cordon"], cordon);
    harness.restart();
    assert_eq!(harness.get(NODE).1["cordon"], cordon);
    let _agent = harness.agent("n", 4);
    assert_eq!(harness.get("/v1/steps/a").1["state"], "queued");
    let (_, view) = harness.post(&verb("uncordon"), "{}");
    assert_eq!(view["cordon"], Value::Null);
    assert_eq!(harness.get("/v1/steps/a").1["state"], "allocated");
    let found = events(&harness, &["node_cordoned", "node_uncordoned"]);
    let [cordoned, uncordoned] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (&cordoned["node"], &cordoned["reason"]),
        (&json!("n"), &json!("new fans"))
    );
    assert_eq!(uncordoned["node"], "n");
}

#[test]
fn a_drained_node_is_told_to_stop_its_steps() {
    let harness = Harness::start();
    let mut agent = harness.agent("n", 4);
    harness.submit("a");
    let (status, view) = harness.post(&verb("drain"), r#"{"deadline":"30m"}"#);
    assert_eq!(status, 200, "{view}");
    assert_eq!(view["cordon"]["drain"], true);
    assert_eq!(view["steps"], json!(["a"]));
    assert!(view["cordon"]["deadline"].is_string(), "{view}");
    let assigned = harness.runtime.block_on(agent.order());
    assert!(matches!(assigned.order, ToNode::Assign(_)), "{assigned:?}");
    let stopped = harness.runtime.block_on(agent.order());
    let ToNode::Stop { why, .. } = stopped.order else {
        panic!("{stopped:?}");
    };
    assert_eq!(why, StopReason::Drained);
    let (_, step) = harness.get("/v1/steps/a");
    assert_eq!(
        (&step["state"], &step["reason"]["code"]),
        (&json!("stopping"), &json!("drained"))
    );
}

#[test]
fn labels_are_merged_over_those_of_the_config() {
    let harness = Harness::start();
    let _agent = harness.agent("n", 4);
    let labels = format!("{NODE}/labels");
    let (status, view) = harness.patch(&labels, r#"{"zone":"a","example.com/rack":"7"}"#);
    assert_eq!(status, 200, "{view}");
    let (_, view) = harness.patch(&labels, r#"{"zone":null,"team":""}"#);
    assert_eq!(view["labels"], json!({"example.com/rack": "7", "team": ""}));
    let [first, second] = &events(&harness, &["node_labelled"])[..] else {
        panic!("two changes");
    };
    assert_eq!(first["set"], json!({"example.com/rack": "7", "zone": "a"}));
    assert_eq!(second["removed"], json!(["zone"]));
    for (body, wanted, words) in [
        (r#"{"a b":"x"}"#, "invalid_label", "label key `a b`"),
        (r#"{"zone":"a/b"}"#, "invalid_label", "label value `a/b`"),
        (r#"{"zone":7}"#, "invalid_body", "zone"),
        ("", "invalid_body", "line 1"),
    ] {
        let answer = harness.patch(&labels, body);
        let message = answer.1["error"]["message"].to_string();
        assert!(message.contains(words), "{message}");
        assert_eq!(code(answer, 400), wanted, "{body}");
    }
    assert_eq!(
        harness.get(NODE).1["labels"],
        view["labels"],
        "nothing of it was done"
    );
}

#[test]
fn a_node_is_deleted_once_it_is_away_and_empty() {
    let harness = Harness::start();
    let agent = harness.agent("n", 4);
    assert_eq!(code(harness.delete(NODE), 409), "node_linked");
    harness.submit("a");
    drop(agent);
    until_away(&harness, "n");
    let (status, refused) = harness.delete(NODE);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("`a`") && message.contains("--force"),
        "{message}"
    );
    assert_eq!(code((status, refused.clone()), 409), "node_holds_steps");
    let (status, view) = harness.delete(&format!("{NODE}?force=true"));
    assert_eq!((status, &view["leaving"]), (202, &json!(true)));
    let empty = harness.agent("m", 4);
    drop(empty);
    until_away(&harness, "m");
    assert_eq!(harness.delete("/v1/nodes/m").0, 204);
    assert_eq!(code(harness.get("/v1/nodes/m"), 404), "unknown_node");
    assert_eq!(harness.get("/v1/pools/default").1["nodes"], 1);
}

#[test]
fn what_cannot_be_asked_of_a_node_is_refused_by_name() {
    let harness = Harness::start();
    let _agent = harness.agent("n", 4);
    let node = NodeName::new("x").unwrap();
    for path in [&format!("/v1/nodes/{node}:drain"), "/v1/nodes/a%20b:drain"] {
        assert_eq!(code(harness.post(path, ""), 404), "unknown_node");
    }
    assert_eq!(code(harness.delete("/v1/nodes/x"), 404), "unknown_node");
    assert_eq!(
        code(harness.patch("/v1/nodes/x/labels", "{}"), 404),
        "unknown_node"
    );
    let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(1025));
    for (path, body, status, wanted) in [
        (verb("cordone"), "", 404, "unknown_route"),
        (NODE.to_owned(), "", 405, "method_not_allowed"),
        (verb("cordon"), r#"{"deadline":"1m"}"#, 400, "unknown_field"),
        (verb("uncordon"), r#"{"reason":"x"}"#, 400, "unknown_field"),
        (
            verb("drain"),
            r#"{"deadline":"soon"}"#,
            400,
            "invalid_duration",
        ),
        (verb("drain"), &long, 400, "invalid_reason"),
    ] {
        assert_eq!(
            code(harness.post(&path, body), status),
            wanted,
            "{path} {body}"
        );
    }
    assert_eq!(
        code(harness.delete(&format!("{NODE}?force=yes")), 400),
        "invalid_parameter"
    );
    assert_eq!(
        code(harness.delete(&format!("{NODE}?now=true")), 400),
        "unknown_parameter"
    );
    assert_eq!(harness.get(NODE).1["cordon"], Value::Null);
}
