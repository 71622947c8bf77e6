//! Long calls end when their access is lost: every call described as a stream, by every way to lose access, within a
//! second, with a final message.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_common::error_code::ErrorCode;
use sluice_common::exec::{FrameKind, encode_frame};
use sluice_common::wire::LogReply;
use sluice_transport::{FrameReader, FrameWriter};

use super::*;
use crate::config::{Overrides, RawConfig};
use crate::fixture::{Agent, answer};
use crate::http::openapi::described_streams;

const OWN: &str = "correct-horse-battery";

/// Time that a stream may go on without access. The promise is a second; the rest is for a busy machine.
const LIMIT: Duration = Duration::from_secs(5);

/// The long calls, and the one that waits. A call described as a stream that is missing here fails a test.
const LASTING: [(&str, &str); 6] = [
    ("GET", "/v1/events"),
    ("GET", "/v1/steps/{step}/logs"),
    ("GET", "/v1/steps/{step}/exec"),
    ("GET", "/v1/steps/{step}/input"),
    ("GET", "/v1/steps/{step}/ports/{port}"),
    ("GET", "/v1/steps/{step}:wait"),
];

#[test]
fn every_call_that_is_described_as_a_stream_is_ended_in_the_test_below() {
    let ended: BTreeSet<(String, String)> = LASTING[..5]
        .iter()
        .map(|(method, path)| ((*method).to_owned(), (*path).to_owned()))
        .collect();
    assert_eq!(described_streams(), ended);
}

/// A coordinator that requires tokens, with a running step and a waiting one.
struct CallFixture {
    harness: Harness,
    agent: Agent,
    dir: tempfile::TempDir,
    own: String,
}

/// One open call, with the host's end that keeps it open.
struct OpenCall {
    what: &'static str,
    stream: TcpStream,
    _host: Option<(FrameWriter, FrameReader)>,
}

impl CallFixture {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::start_guarded("", OWN);
        let agent = harness.agent("n1", 2);
        let mut setup = Self {
            harness,
            agent,
            dir,
            own: OWN.to_owned(),
        };
        let all = |id| json!({ "id": id, "command": ["true"], "resources": { "cpu_count": 2 }, "ports": ["http"] });
        setup.done("POST", "/v1/steps", &all("runs").to_string());
        setup.harness.runtime.block_on(async {
            setup.agent.order().await;
            setup.agent.ran("runs.1", None).await;
        });
        setup.done("GET", "/v1/steps/runs:wait?for=running&timeout=20s", "");
        setup.done("POST", "/v1/steps", &all("waits").to_string());
        setup
    }

    fn done(&self, method: &str, path: &str, body: &str) -> Value {
        let header = format!("Bearer {}", self.own);
        let headers = [("authorization", header.as_str())];
        let (status, body) = answer(self.harness.call_with(method, path, &headers, body));
        assert!(status < 300, "{method} {path}: {body}");
        body
    }

    fn apply(&self, change: &Value) {
        self.done("POST", "/v1/apply", &change.to_string());
    }

    /// Creates an API token with this role; returns its secret.
    fn token(&self, name: &str, role: &str, ttl: Option<&str>) -> String {
        let mut body = json!({ "name": name, "roles": [role] });
        if let Some(ttl) = ttl {
            body["ttl"] = json!(ttl);
        }
        let made = self.done("POST", "/v1/api-tokens", &body.to_string());
        made["secret"].as_str().unwrap().to_owned()
    }

    /// Replaces the coordinator's own token.
    fn rotate(&mut self) {
        let file = self.dir.path().join("next");
        self.own = "another-horse-battery".to_owned();
        sluice_transport::files::write_private(&file, &self.own).unwrap();
        let config = RawConfig::default().check(Overrides {
            api_token_file: Some(file),
            ..Overrides::default()
        });
        let token = config.unwrap().api_token.unwrap();
        self.harness
            .running
            .as_ref()
            .unwrap()
            .api()
            .renew_token(&token);
    }

    /// Sends a call and leaves its answer unread.
    fn begin(&self, token: &str, method: &str, path: &str, more: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.harness.http()).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{more}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(LIMIT * 4)).unwrap();
        stream
    }

    fn host_answers(&self, hears_more: bool) -> (FrameWriter, FrameReader) {
        self.harness.runtime.block_on(async {
            let (mut writer, mut reader) = self.agent.connection.accept().await.unwrap();
            let _request: sluice_common::wire::LogRequest = reader.next().await.unwrap().unwrap();
            if hears_more {
                let _wanted: sluice_common::exec::ExecOrder = reader.next().await.unwrap().unwrap();
            }
            writer.send(&LogReply::From { offset: 0 }).await.unwrap();
            (writer, reader)
        })
    }

    /// Opens a call of each kind, after its first data.
    fn open_all(&self, token: &str) -> Vec<OpenCall> {
        let events = self.begin(token, "GET", "/v1/events?follow=true&step=runs", "", "");
        until(&events, "event: started");
        let logs = self.begin(token, "GET", "/v1/steps/runs/logs?follow=true", "", "");
        let mut of_logs = self.host_answers(false);
        let exec = self.begin(token, "GET", "/v1/steps/runs/exec", WEBSOCKET, "");
        until(&exec, "\r\n\r\n");
        send_text(&exec, r#"{"start":{"command":["sh"]}}"#);
        let mut of_exec = self.host_answers(true);
        self.harness.runtime.block_on(async {
            of_logs.0.send_bytes(b"written").await.unwrap();
            let received = encode_frame(FrameKind::Stdout, b"prompt");
            of_exec.0.send_bytes(&received).await.unwrap();
        });
        until(&logs, "written");
        until(&exec, "prompt");
        let input = self.begin(token, "GET", "/v1/steps/runs/input", WEBSOCKET, "");
        let of_input = self.host_answers(false);
        until(&input, r#"{"taken":0}"#);
        let path = "/v1/steps/runs/ports/http";
        let port = self.begin(token, "GET", path, WEBSOCKET, "");
        until(&port, "\r\n\r\n");
        send_text(&port, r#"{"connect":{}}"#);
        let of_port = self.host_answers(true);
        until(&port, r#"{"connected":{}}"#);
        let wait = "/v1/steps/waits:wait?timeout=60s";
        let wait = self.begin(token, "GET", wait, "", "");
        let silent = "/v1/steps/waits/logs?follow=true";
        let silent = self.begin(token, "GET", silent, "", "");
        let open = |what, stream, _host| OpenCall {
            what,
            stream,
            _host,
        };
        vec![
            open("events", events, None),
            open("logs", logs, Some(of_logs)),
            open("exec", exec, Some(of_exec)),
            open("input", input, Some(of_input)),
            open("port", port, Some(of_port)),
            open("wait", wait, None),
            open("logs of what has not begun", silent, None),
        ]
    }
}

/// Headers of a WebSocket's call.
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: sluice.v1\r\n";

/// Sends a short text message: final, of text, and masked with zeros.
fn send_text(mut stream: &TcpStream, text: &str) {
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 126, "a longer one has another head");
    let head = [0x81, 0x80 | length, 0, 0, 0, 0];
    stream
        .write_all(&[&head, text.as_bytes()].concat())
        .unwrap();
}

/// Returns the message that closes a WebSocket for an error.
fn closing(code: &str) -> Vec<u8> {
    let known = ErrorCode::ALL.iter().find(|it| it.as_str() == code);
    let number = 4000 + known.unwrap().status();
    let length = u8::try_from(2 + code.len()).unwrap();
    [&[0x88, length], &number.to_be_bytes()[..], code.as_bytes()].concat()
}

/// Reads until `word` has come.
fn until(mut stream: &TcpStream, word: &str) {
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(&received).contains(word) {
        let count = stream.read(&mut bytes).expect("it is said soon");
        assert!(count > 0, "{}", String::from_utf8_lossy(&received));
        received.extend(&bytes[..count]);
    }
}

/// Reads to the end of the stream; event streams, and calls that only wait, keep their connection.
fn rest(open: &mut OpenCall) -> Vec<u8> {
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&received);
        let is_whole = match open.what {
            "events" => text.ends_with("\r\n0\r\n\r\n"),
            _ => text.starts_with("HTTP/1.1 4") && text.ends_with('}'),
        };
        if is_whole {
            return received;
        }
        match open.stream.read(&mut bytes) {
            Ok(0) => return received,
            Ok(count) => received.extend(&bytes[..count]),
            Err(error) => panic!("{} goes on: {error}", open.what),
        }
    }
}

/// Checks that each call has ended, with `code` if it can send one.
fn have_ended(open: Vec<OpenCall>, code: &str, since: Instant) {
    for mut open in open {
        let received = rest(&mut open);
        let text = String::from_utf8_lossy(&received).into_owned();
        assert!(
            since.elapsed() < LIMIT,
            "{}: {:?}",
            open.what,
            since.elapsed()
        );
        match open.what {
            "events" => assert!(text.contains("event: error\ndata: {"), "{text}"),
            // Broken off so that it does not look complete: the last, empty chunk is missing.
            "logs" => {
                assert!(!text.contains("0\r\n\r\n"), "{text}");
                continue;
            }
            "exec" | "input" | "port" => {
                assert!(text.contains(r#"{"error":{"#), "{text}");
                assert!(received.ends_with(&closing(code)), "{text}");
            }
            _ => assert!(text.starts_with("HTTP/1.1 40"), "{}: {text}", open.what),
        }
        assert!(text.contains(&format!("\"code\":\"{code}\"")), "{text}");
    }
}

#[test]
fn every_stream_ends_when_its_access_is_gone_and_says_why() {
    let mut setup = CallFixture::start();
    let revoked = setup.token("revoked", "admin", None);
    let open = setup.open_all(&revoked);
    let since = Instant::now();
    setup.done("DELETE", "/v1/api-tokens/revoked", "");
    have_ended(open, "unauthorized", since);

    setup.apply(&json!({ "put": [{ "kind": "role", "name": "nothing" }] }));
    let bound = setup.token("bound", "nothing", None);
    let binding = json!({ "kind": "binding", "name": "b", "roles": ["admin"], "members": [{ "token": "bound" }] });
    setup.apply(&json!({ "put": [binding] }));
    let open = setup.open_all(&bound);
    let since = Instant::now();
    setup.apply(&json!({ "delete": [{ "kind": "binding", "name": "b" }] }));
    have_ended(open, "forbidden", since);

    let short = setup.token("short", "admin", Some("8s"));
    let since = Instant::now() + Duration::from_secs(8);
    let open = setup.open_all(&short);
    have_ended(open, "unauthorized", since);

    let open = setup.open_all(OWN);
    let since = Instant::now();
    setup.rotate();
    have_ended(open, "unauthorized", since);
}

#[test]
fn what_changes_for_others_ends_nothing() {
    let setup = CallFixture::start();
    let valid = setup.token("kept", "admin", None);
    setup.token("other", "viewer", None);
    let open = setup.open_all(&valid);
    setup.done("DELETE", "/v1/api-tokens/other", "");
    setup.done("PUT", "/v1/pools/another", "{}");
    let mut open: BTreeMap<&str, OpenCall> = open.into_iter().map(|it| (it.what, it)).collect();
    let mut logs = open.remove("logs").unwrap();
    let (writer, _) = logs._host.as_mut().unwrap();
    let more = writer.send_bytes(b"more of it");
    setup.harness.runtime.block_on(more).unwrap();
    until(&logs.stream, "more of it");
    setup.done("POST", "/v1/steps/runs:cancel", "");
    until(&open["events"].stream, "event: stopping");
}
