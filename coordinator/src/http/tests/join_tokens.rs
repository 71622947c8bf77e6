//! Join tokens as admins see them, and the revocation of a node's access.

use super::*;

fn items(harness: &Harness) -> Vec<Value> {
    let page = harness.get("/v1/join-tokens").1;
    page["items"].as_array().unwrap().clone()
}

#[test]
fn a_token_is_made_listed_without_its_secret_and_taken_back() {
    let harness = Harness::start();
    let body = r#"{"uses":3,"ttl":"10m","labels":{"rack":"7"},"addresses":["coord-1:7443"]}"#;
    let (status, made) = harness.post("/v1/join-tokens", body);
    assert_eq!(status, 201, "{made}");
    let line = made["line"].as_str().unwrap();
    let read: sluice_transport::JoinLine = line.parse().unwrap();
    assert_eq!(read.addresses, ["coord-1:7443"]);
    let token = &made["token"];
    assert_eq!(
        (&token["state"], &token["uses"]),
        (&json!("open"), &json!(3))
    );
    assert_eq!(
        (&token["pool"], &token["node"]),
        (&Value::Null, &Value::Null),
        "each host's config names its own pool"
    );
    assert_eq!(items(&harness), std::slice::from_ref(token));
    let path = format!("/v1/join-tokens/{}", token["id"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(harness.delete(&path).0, 204);
    }
    assert_eq!(items(&harness)[0]["state"], "revoked");
    // The secret is in no event and not in the store.
    let events = harness.get("/v1/events").1.to_string();
    assert!(events.contains("join_token_revoked"), "{events}");
    let secret = &line[line.len() - 60..line.len() - 30];
    assert!(!events.contains(secret) && !items(&harness)[0].to_string().contains(secret));
}

#[test]
fn what_no_token_can_be_is_refused_by_field() {
    let harness = Harness::start();
    for (body, status, wanted) in [
        (r#"{"pool":"nowhere"}"#, 404, "unknown_pool"),
        (r#"{"pool":"a b"}"#, 400, "invalid_pool"),
        (r#"{"node":"../x"}"#, 400, "invalid_node"),
        (r#"{"uses":0}"#, 400, "invalid_uses"),
        (r#"{"uses":10001}"#, 400, "invalid_uses"),
        (r#"{"ttl":"soon"}"#, 400, "invalid_duration"),
        (r#"{"ttl":"0s"}"#, 400, "invalid_duration"),
        (r#"{"ttl":"9000h"}"#, 400, "invalid_duration"),
        (r#"{"labels":{"a b":"c"}}"#, 400, "invalid_label"),
        (r#"{"addresses":["coord-1"]}"#, 400, "invalid_address"),
        (r#"{"addresses":["coord 1:7443"]}"#, 400, "invalid_address"),
        (r#"{"use":1}"#, 400, "unknown_field"),
    ] {
        assert_eq!(
            code(harness.post("/v1/join-tokens", body), status),
            wanted,
            "{body}"
        );
    }
    assert!(items(&harness).is_empty());
    assert_eq!(
        code(harness.delete("/v1/join-tokens/none"), 404),
        "unknown_join_token"
    );
}

#[test]
fn a_coordinator_without_the_authority_s_key_lets_nobody_join_and_says_so() {
    let mut harness = Harness::start();
    harness.stop();
    std::fs::remove_file(harness.data.join("tls/ca.key")).unwrap();
    harness.start_again();
    assert_eq!(
        code(harness.post("/v1/join-tokens", "{}"), 409),
        "cannot_issue"
    );
}

#[test]
fn a_node_whose_access_was_ended_is_shown_and_stays_out() {
    let harness = Harness::start();
    let agent = harness.agent("n", 4);
    let (status, view) = harness.post("/v1/nodes/n:revoke", "");
    assert_eq!((status, &view["state"]), (200, &json!("unreachable")));
    let why = harness.runtime.block_on(agent.connection.closed());
    assert!(why.contains("the access of this node was ended"), "{why}");
    let refused = harness.runtime.block_on(async {
        let address = harness.quic();
        let hello = crate::fixture::words("n", 4);
        let mut again = crate::fixture::Agent::link(&harness.data, "n", &address, &hello).await;
        again.receive::<sluice_common::wire::HelloReply>().await
    });
    let sluice_common::wire::HelloReply::Refused { message } = refused else {
        panic!("{refused:?}");
    };
    assert!(
        message.contains("`sluice token create --node n`"),
        "{message}"
    );
    assert_eq!(
        code(harness.post("/v1/nodes/x:revoke", ""), 404),
        "unknown_node"
    );
    assert_eq!(
        code(harness.post("/v1/nodes/n:revoke", r#"{"a":1}"#), 400),
        "unknown_field"
    );
}
