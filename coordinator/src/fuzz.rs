//! Fuzz tests of the coordinator: its config, and every call of its API on a running coordinator. The store has fuzz
//! tests of its own; messages of agents are `sluice-codec`'s. The engine is `sluice-fuzz`.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use sluice_fuzz::{Fuzz, place_for_files};

use crate::config::{Overrides, RawConfig};
use crate::fixture::Harness;

fn is_harmless(answer_text: &str) {
    assert!(
        !answer_text.chars().any(char::is_control),
        "{answer_text:?}"
    );
}

#[test]
fn the_config() {
    let words = [
        "data_dir = \"/d\"",
        "http = \"127.0.0.1:0\"",
        "quic = \"127.0.0.1:0\"",
        "lease = \"30s\"",
        "lost_after = ",
        "[oidc]",
        "issuer = \"a\"",
        "audience = \"b\"",
        "jwks_file = \"c\"",
        "[http_tls]",
        "[tls]",
        "api_token_file = ",
        "retention = ",
        "'''",
        "\"\"\"",
        "log_format = \"json\"",
        "log_filter = \"info,a[b{c=d}]=trace\"",
        "advertise = [\"a:1\"]",
    ];
    let dir = tempfile::tempdir_in(place_for_files()).unwrap();
    let path = dir.path().join("coordinator.toml");
    Fuzz::new("coordinator-config").words(&words).run(|input| {
        fs::write(&path, input).unwrap();
        match RawConfig::load(&path) {
            Ok(raw) => {
                if let Err(error) = raw.check(Overrides::default()) {
                    is_harmless(&error.to_string());
                }
            }
            Err(error) => {
                let answer_text = error.to_string();
                assert!(answer_text.contains("coordinator.toml"), "{answer_text:?}");
                is_harmless(&answer_text);
            }
        }
    });
}

/// Longest time to an answer; machines can be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Builds a request from an input: `METHOD PATH`, a line end, and the body.
fn request(input: &[u8]) -> Vec<u8> {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (line, body) = input.split_at(end.unwrap_or(input.len()));
    let body = body.get(1..).unwrap_or_default();
    let head = format!(
        " HTTP/1.1\r\nhost: fuzz\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [line, head.as_bytes(), body].concat()
}

/// Whether the answer is an endless stream or waits for an event; such answers are not read to the end.
fn is_endless(request: &[u8]) -> bool {
    let has = |word: &[u8]| request.windows(word.len()).any(|part| part == word);
    has(b"follow") || has(b"wait")
}

/// Returns the whole answer.
fn answer(address: &str, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may refuse before everything is written.
    let _sent = stream.write_all(request);
    all_of(stream)
}

fn all_of(mut stream: TcpStream) -> Vec<u8> {
    let mut answer_text = Vec::new();
    match stream.read_to_end(&mut answer_text) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        Ok(_) | Err(_) => answer_text,
    }
}

fn status_of(answer_text: &[u8]) -> u16 {
    let text = std::str::from_utf8(&answer_text[..answer_text.len().min(12)]).unwrap_or_default();
    let rest = ["HTTP/1.1 ", "HTTP/1.0 "]
        .into_iter()
        .find_map(|version| text.strip_prefix(version));
    let status = rest.and_then(|rest| rest.parse().ok());
    status.unwrap_or_else(|| panic!("no answer: {}", answer_text.escape_ascii()))
}

/// Checks that a refusal has a message. The HTTP server rejects malformed requests without a body.
fn check_refusal(answer_text: &[u8]) {
    let text = String::from_utf8_lossy(answer_text);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    if body.is_empty() {
        return;
    }
    let body: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(body["error"]["code"].is_string(), "{body}");
    is_harmless(body["error"]["message"].as_str().unwrap());
}

const CALLS: &[&str] = &[
    "GET ",
    "POST ",
    "PUT ",
    "PATCH ",
    "DELETE ",
    "/v1/steps",
    "/v1/steps:batch",
    "/v1/pools/",
    "/v1/nodes/",
    "/policies/",
    "/platforms/",
    "/v1/templates/",
    "/v1/validations/",
    "/v1/cluster",
    "/v1/apply",
    "/v1/events",
    "/v1/roles",
    "/v1/bindings",
    "/v1/api-tokens",
    "/v1/join-tokens",
    "/explain",
    "/logs",
    "/queue",
    ":cancel",
    ":suspend",
    "?dry_run=true",
    "?limit=",
    "&cursor=",
    "?since=",
    "?labels=",
    "?state=",
    "%2f",
    "\"kind\":\"pool\"",
    "\"put\":[",
    "\"delete\":[",
    "\"name\":",
    "\"capacity\":{",
    "\"reserved\":{",
    "\"command\":[\"a\"]",
    "\"resources\":{",
    "\"gpu\":",
    "\"selector\":{",
    "\"templates\":[",
    "\"defaults\":{",
    "\"max\":{",
    "\"assert\":",
    "\"subject\":",
    "\"steps\":[",
];

/// Builds a request from an input of arbitrary header lines, an empty line, and the body.
fn request_of_lines(input: &[u8]) -> Vec<u8> {
    let end = input.windows(2).position(|two| two == b"\n\n");
    let (head, rest) = input.split_at(end.unwrap_or(input.len()));
    let body = rest.get(2..).unwrap_or_default();
    let mut request = head
        .split(|byte| *byte == b'\n')
        .collect::<Vec<_>>()
        .join(&b"\r\n"[..]);
    request.extend(b"\r\nconnection: close\r\n\r\n");
    request.extend(body);
    request
}

/// Checks that every head is answered, unless it is not HTTP or announces more than it sends.
#[test]
fn heads_of_calls() {
    let harness = Harness::start();
    let url = harness.url("");
    let address = url.strip_prefix("http://").unwrap();
    let words = [
        "GET / HTTP/1.1",
        "POST /v1/steps HTTP/1.1",
        " HTTP/1.0",
        "PRI * HTTP/2.0",
        "host: a",
        "authorization: Bearer ",
        "origin: https://evil.example",
        "content-length: 2",
        "transfer-encoding: chunked",
        "expect: 100-continue",
        "if-match: \"1\"",
        "if-none-match: *",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-protocol: sluice.v1, sluice.bearer.",
        "content-type: application/json",
        "accept: text/event-stream",
        "last-event-id: 1",
        "2\r\n{}\r\n0\r\n\r\n",
    ];
    Fuzz::new("heads").words(&words).run(|input| {
        if is_endless(input) {
            return;
        }
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may refuse before everything is written; nothing follows what was announced.
        let _sent = stream.write_all(&request_of_lines(input));
        let _closed = stream.shutdown(std::net::Shutdown::Write);
        let answer_text = all_of(stream);
        if !answer_text.is_empty() {
            let status = status_of(&answer_text);
            assert!(
                status < 500 || status == 505,
                "{}",
                answer_text.escape_ascii()
            );
        }
    });
    assert_eq!(harness.get("/healthz").0, 200);
}

/// Checks that every call is answered, whatever came before, and never with a 500.
#[test]
fn calls_of_the_api() {
    let harness = Harness::start();
    // The agent sends nothing more, so its node becomes unreachable after a while.
    let _linked = harness.agent("gpu-7", 4);
    let url = harness.url("");
    let address = url.strip_prefix("http://").unwrap();
    Fuzz::new("api").words(CALLS).run(|input| {
        if is_endless(input) {
            return;
        }
        let answer_text = answer(address, &request(input));
        match status_of(&answer_text) {
            200..400 => {}
            400..500 => check_refusal(&answer_text),
            status => panic!("{status}: {}", String::from_utf8_lossy(&answer_text)),
        }
    });
    assert_eq!(harness.get("/healthz").0, 200);
}
