//! Hostile and honest peers: TLS, certificates of users, oversized and ambiguous heads, too many connections, too many
//! wrong tokens.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::json;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use super::*;
use crate::config::Overrides;
use crate::fixture::answer;
use crate::identity::{self, rollover};

const OWN: &str = "correct-horse-battery";

/// Starts a coordinator that requires a token, with TLS if `secret`.
fn guarded(secret: bool) -> (Harness, tempfile::TempDir) {
    let text = if secret { "[http_tls]\n" } else { "" };
    (
        Harness::start_guarded(text, OWN),
        tempfile::tempdir().unwrap(),
    )
}

/// Makes a client that trusts the authority in `trusted`, and shows the certificate in `shown`.
fn caller(trusted: &Path, shown: Option<(&Path, &str)>) -> ureq::Agent {
    let read = |path: &Path| std::fs::read(path).unwrap();
    let ca = Certificate::from_pem(&read(&trusted.join("tls/ca.pem"))).unwrap();
    let own = shown.map(|(dir, name)| {
        let cert = Certificate::from_pem(&read(&dir.join(format!("{name}.pem")))).unwrap();
        let key = PrivateKey::from_pem(&read(&dir.join(format!("{name}.key")))).unwrap();
        ClientCert::new_with_certs(&[cert], key)
    });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&[ca]))
        .client_cert(own)
        .unversioned_rustls_crypto_provider(provider)
        .build();
    let config = ureq::Agent::config_builder().tls_config(tls);
    let config = config.http_status_as_error(false);
    config
        .timeout_global(Some(Duration::from_secs(30)))
        .build()
        .into()
}

fn http(harness: &Harness) -> SocketAddr {
    harness.running.as_ref().unwrap().http_addr
}

fn get(agent: &ureq::Agent, harness: &Harness, path: &str, token: Option<&str>) -> Answer {
    let request = agent.get(format!("https://{}{path}", http(harness)));
    let request = match token {
        Some(token) => request.header("authorization", format!("Bearer {token}")),
        None => request,
    };
    answer(request.call().unwrap())
}

#[test]
fn the_api_is_known_by_the_cluster_s_authority_and_speaks_nothing_in_the_clear() {
    let (harness, _dir) = guarded(true);
    let honest = caller(&harness.data, None);
    assert_eq!(
        get(&honest, &harness, "/v1/whoami", Some(OWN)).1["who"],
        "admin"
    );
    assert_eq!(get(&honest, &harness, "/v1/whoami", None).0, 401);
    let other = Harness::start();
    let deceived = caller(&other.data, None);
    let url = format!("https://{}/v1/whoami", http(&harness));
    let error = deceived.get(url).call().unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    let mut plain = TcpStream::connect(http(&harness)).unwrap();
    plain.write_all(b"GET /v1/whoami HTTP/1.1\r\n\r\n").unwrap();
    let mut received = Vec::new();
    // The connection may be reset after the alert.
    let _closed = plain.read_to_end(&mut received);
    assert!(!received.starts_with(b"HTTP"), "{received:?}");
}

#[test]
fn a_user_is_known_by_certificate_and_may_do_what_bindings_say() {
    let (harness, dir) = guarded(true);
    let alice = dir.path().join("alice");
    let day = Duration::from_secs(24 * 3600);
    identity::issue_user(&harness.data, "alice", day, &alice).unwrap();
    let admin = caller(&harness.data, None);
    let alice = caller(&harness.data, Some((&alice, "user")));
    let who = get(&alice, &harness, "/v1/whoami", None).1;
    assert_eq!(who["who"], "certificate/alice");
    assert_eq!(get(&alice, &harness, "/v1/steps", None).0, 403);
    grant_viewer_to_alice(&admin, &harness);
    assert_eq!(get(&alice, &harness, "/v1/steps", None).0, 200);
    assert_eq!(get(&alice, &harness, "/v1/api-tokens", None).0, 403);
    for (origin, status) in [
        ("https://evil.example".to_owned(), 403),
        ("null".to_owned(), 403),
        (format!("https://{}", http(&harness)), 200),
    ] {
        let page = alice.get(format!("https://{}/v1/steps", http(&harness)));
        let answered = page.header("origin", &origin).call().unwrap();
        assert_eq!(answered.status(), status, "a browser's page of {origin}");
    }
    let node = dir.path().join("node");
    let terms = sluice_transport::NodeCertificateSpec {
        node: sluice_common::id::NodeName::new("alice").unwrap(),
        claim: Default::default(),
        ttl: Duration::from_secs(3600),
    };
    identity::issue_node(&harness.data, &terms, &node).unwrap();
    let node = caller(&harness.data, Some((&node, "node")));
    assert_eq!(
        get(&node, &harness, "/v1/whoami", None).0,
        401,
        "a node is no user"
    );
}

/// Gives `alice` the role of a viewer.
fn grant_viewer_to_alice(admin: &ureq::Agent, harness: &Harness) {
    let binding = json!({ "put": [{ "kind": "binding", "name": "b", "roles": ["viewer"], "members": [{ "certificate": "alice" }] }] });
    let applied = admin
        .post(format!("https://{}/v1/apply", http(harness)))
        .header("authorization", format!("Bearer {OWN}"))
        .send(binding.to_string());
    assert_eq!(applied.unwrap().status(), 200);
}

/// Returns the events that a follower with this certificate gets until its stream ends; `begun` is called when it is open.
fn followed(alice: &ureq::Agent, harness: &Harness, begun: impl FnOnce()) -> String {
    let url = format!("https://{}/v1/events?follow=true", http(harness));
    let mut stream = alice.get(url).call().unwrap();
    assert_eq!(stream.status(), 200);
    begun();
    stream.body_mut().read_to_string().unwrap()
}

#[test]
fn what_a_certificate_has_opened_ends_with_it_and_with_its_authority() {
    let (harness, dir) = guarded(true);
    let admin = caller(&harness.data, None);
    grant_viewer_to_alice(&admin, &harness);
    let issued = |name: &str, ttl| {
        let out = dir.path().join(name);
        identity::issue_user(&harness.data, "alice", ttl, &out).unwrap();
        caller(&harness.data, Some((&out, "user")))
    };
    let short = issued("short", Duration::from_secs(4));
    let received = followed(&short, &harness, || ());
    assert!(received.contains("event: error\ndata: {"), "{received}");
    assert!(
        received.ends_with("}\n\n") && received.contains("unauthorized"),
        "{received}"
    );
    // Either on the connection that was made in time, or on none.
    let late = short
        .get(format!("https://{}/v1/whoami", http(&harness)))
        .call();
    assert!(late.is_err() || late.is_ok_and(|answer| answer.status() == 401));
    let long = issued("long", Duration::from_secs(24 * 3600));
    let (tell, begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let (long, harness) = (&long, &harness);
        let following = scope.spawn(move || followed(long, harness, || tell.send(()).unwrap()));
        // Before that, the certificate would open nothing.
        begun.recv().unwrap();
        rollover::rotate(&harness.data).unwrap();
        rollover::retire(&harness.data, None, true).unwrap();
        let received = following.join().unwrap();
        assert!(received.contains("unauthorized"), "{received}");
    });
}

/// Sends these bytes, and returns the answer until the other end closes or pauses.
fn exchange(harness: &Harness, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(http(harness)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    // The connection may be closed before everything is taken.
    let _taken = stream.write_all(bytes);
    let mut received = Vec::new();
    let _until_closed_or_silent = stream.read_to_end(&mut received);
    String::from_utf8_lossy(&received).into_owned()
}

#[test]
fn heads_that_are_too_large_or_say_two_things_are_refused() {
    let harness = Harness::start();
    let large = format!(
        "GET /v1/steps HTTP/1.1\r\nHost: localhost\r\nx: {}\r\n\r\n",
        "y".repeat(64 * 1024)
    );
    let received = exchange(&harness, large.as_bytes());
    assert!(received.starts_with("HTTP/1.1 431"), "{received}");
    let many = "a: b\r\n".repeat(200);
    let many = format!("GET /v1/steps HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    let received = exchange(&harness, many.as_bytes());
    assert!(received.starts_with("HTTP/1.1 431"), "{received}");
    let hidden = "GET /v1/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for head in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length: +5\r\n",
    ] {
        let text =
            format!("POST /v1/steps HTTP/1.1\r\nHost: localhost\r\n{head}\r\n0\r\n\r\n{hidden}");
        let received = exchange(&harness, text.as_bytes());
        // One answer, and the connection ends: the bytes after it are not a call.
        assert!(
            received.matches("HTTP/1.1 ").count() <= 1,
            "{head}: {received}"
        );
        assert!(!received.contains("/v1/hidden"), "{head}: {received}");
    }
}

#[test]
fn thousands_of_half_calls_from_many_addresses_keep_no_caller_out() {
    let harness = Harness::start();
    let call = "GET /v1/steps HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answered = |stream: &mut TcpStream| {
        stream.write_all(call.as_bytes()).unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"}") {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&received));
            received.extend(&bytes[..count]);
        }
        assert!(received.starts_with(b"HTTP/1.1 200"));
    };
    let mut before = TcpStream::connect(http(&harness)).unwrap();
    answered(&mut before);
    let from = |host: u8, network: u8| {
        harness.runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            let own = std::net::SocketAddr::from(([127, 0, network, host], 0));
            socket.bind(own).unwrap();
            let stream = socket.connect(http(&harness)).await.unwrap();
            stream.into_std().unwrap()
        })
    };
    let mut open = Vec::new();
    for n in 0..1_600_u32 {
        let mut stream = from(2 + (n % 2) as u8, 1 + (n % 8) as u8);
        let _cut_already = stream.write(b"GET /v1/steps HTTP/1.1\r\n");
        open.push(stream);
    }
    let mut newcomer = TcpStream::connect(http(&harness)).unwrap();
    answered(&mut newcomer);
    // Known callers keep their connections.
    answered(&mut before);
}

#[test]
fn one_peer_that_opens_thousands_keeps_nobody_else_out() {
    let harness = Harness::start();
    let open = (0..1500).map_while(|_| {
        let mut stream = TcpStream::connect(http(&harness)).ok()?;
        let _closed_already = stream.write_all(b"GET /v1/steps HTTP/1.1\r\n");
        Some(stream)
    });
    let open: Vec<TcpStream> = open.collect();
    assert_eq!(open.len(), 1500);
    let mut other = harness.runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let stream = socket.connect(http(&harness)).await.unwrap();
        stream.into_std().unwrap()
    });
    other.set_nonblocking(false).unwrap();
    let call = "GET /v1/steps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    other.write_all(call.as_bytes()).unwrap();
    let mut received = String::new();
    other.read_to_string(&mut received).unwrap();
    assert!(received.starts_with("HTTP/1.1 200"), "{received}");
}

#[test]
fn whoever_tries_tokens_is_slowed_and_whoever_has_one_is_not() {
    let (harness, _dir) = guarded(false);
    let wrong = [("authorization", "Bearer guessed-again-and-again")];
    let limited = (0..200).find_map(|_| {
        let response = harness.call("GET", "/v1/steps", &wrong);
        (response.status() == 429).then_some(response)
    });
    let limited = limited.expect("it goes on for ever");
    let after: u64 = limited.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=2).contains(&after), "{after}");
    assert_eq!(code(answer(limited), 429), "rate_limited");
    let right = format!("Bearer {OWN}");
    let response = harness.call("GET", "/v1/steps", &[("authorization", &right)]);
    assert_eq!(response.status(), 200);
}

#[test]
fn another_authority_s_certificate_is_shown_without_a_restart() {
    let (harness, _dir) = guarded(true);
    let [before, between] = [(); 2].map(|()| caller(&harness.data, None));
    rollover::rotate(&harness.data).unwrap();
    assert_eq!(
        get(&between, &harness, "/v1/whoami", Some(OWN)).1["who"],
        "admin"
    );
    rollover::retire(&harness.data, None, true).unwrap();
    let after = caller(&harness.data, None);
    let url = format!("https://{}/healthz", http(&harness));
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while let Err(error) = after.get(&url).call() {
        assert!(error.to_string().contains("UnknownIssuer"), "{error}");
        assert!(std::time::Instant::now() < deadline, "still the old one");
    }
    let error = before.get(&url).call().unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[test]
fn a_page_whose_name_was_made_to_point_here_reads_nothing() {
    let named = "http_names = [\"sluice.example.org\"]\n";
    let harness = Harness::start_from(named, Overrides::default());
    let (guarded, _dir) = guarded(false);
    for path in ["/v1/steps", "/metrics", "/openapi.json", "/healthz", "/x"] {
        for harness in [&harness, &guarded] {
            let foreign = harness.call("GET", path, &[("host", "evil.example:7070")]);
            assert_eq!(code(answer(foreign), 403), "foreign_origin", "{path}");
        }
        for own in [
            "localhost:1",
            "LOCALHOST",
            "127.0.0.1",
            "[::1]:7070",
            "sluice.example.org",
        ] {
            let answered = harness.call("GET", path, &[("host", own)]);
            assert_ne!(answered.status(), 403, "{own} {path}");
        }
        let other = guarded.call("GET", path, &[("host", "sluice.example.org")]);
        assert_eq!(other.status(), 403, "{path}");
    }
}

#[test]
fn metrics_are_for_those_who_may_see_the_cluster_where_the_config_says_so() {
    let harness = Harness::start_guarded("metrics_need_token = true\n", OWN);
    let own = format!("Bearer {OWN}");
    let own = [("authorization", own.as_str())];
    let made = |name: &str, role: &str| {
        let body = json!({ "name": name, "roles": [role], "subjects": ["s"] }).to_string();
        let made = answer(harness.call_with("POST", "/v1/api-tokens", &own, &body)).1;
        format!("Bearer {}", made["secret"].as_str().unwrap())
    };
    let status = |path: &str, token: &str| {
        harness
            .call("GET", path, &[("authorization", token)])
            .status()
            .as_u16()
    };
    assert_eq!(harness.call("GET", "/metrics", &[]).status(), 401);
    assert_eq!(status("/metrics", "Bearer guessed"), 401);
    assert_eq!(status("/metrics", &made("v", "viewer")), 200);
    assert_eq!(harness.call("GET", "/metrics", &own).status(), 200);
    assert_eq!(harness.call("GET", "/openapi.json", &[]).status(), 200);
}

#[test]
fn one_caller_follows_so_many_streams_and_no_more() {
    let harness = Harness::start();
    let mut open = Vec::new();
    let refused = (0..300).find_map(|_| {
        let response = harness.call("GET", "/v1/events?follow=true&since=now", &[]);
        match response.status().as_u16() {
            200 => {
                open.push(response);
                None
            }
            _ => Some(response),
        }
    });
    assert_eq!(open.len(), 256);
    let refused = refused.unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(code(answer(refused), 429), "rate_limited");
    assert_eq!(harness.get("/v1/events?since=now").0, 200);
}
