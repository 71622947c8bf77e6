//! Ports and probes of steps that serve something: real servers, probes that fail or hang, and an agent that is killed.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use sluice_tests::{Daemon, Dev, eventually};

/// Serves its directory, and answers 200 to `/`.
const SERVER: [&str; 3] = ["sh", "-c", "exec python3 -m http.server $SLUICE_PORT_HTTP"];

/// Accepts connections and answers none.
const HANGS: [&str; 3] = [
    "python3",
    "-c",
    "import os, socket, time; s = socket.create_server(('', int(os.environ['SLUICE_PORT']))); time.sleep(600)",
];

/// Submits a step with the port `http` and these probes.
fn submit(dev: &Dev, id: &str, command: &[&str], probes: &Value) {
    let request = json!({
        "id": id, "command": command, "ports": ["http"], "probes": probes, "grace_period": "1s"
    });
    let (status, step) = dev.call("POST", "/v1/steps", Some(&request.to_string()));
    assert_eq!(status, 201, "{step}");
}

fn step(dev: &Dev, id: &str) -> Value {
    let (status, step) = dev.call("GET", &format!("/v1/steps/{id}"), None);
    assert_eq!(status, 200, "{step}");
    step
}

/// Waits until a step is ready, and returns its placement.
fn ready(dev: &Dev, id: &str) -> Value {
    eventually(&format!("{id} to be ready"), || {
        let placement = step(dev, id)["placements"][0].clone();
        (placement["ready"] == true).then_some(placement)
    })
}

/// The first line of an answer to `GET /`.
fn get(port: &Value) -> String {
    let port = u16::try_from(port.as_u64().unwrap()).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_server_gets_a_port_becomes_ready_and_stays_so_when_its_agent_is_killed() {
    let dev = Dev::start();
    let probes = json!({
        "readiness": {"http": {"path": "/", "port": "http"}, "period": "1s"},
        "liveness": {"command": ["test", "-d", "/"], "period": "1s"}
    });
    submit(&dev, "site", &SERVER, &probes);
    let placement = ready(&dev, "site");
    let port = placement["ports"]["http"].clone();
    assert!(get(&port).contains(" 200 "), "{placement}");
    let told = dev.ok(&["describe", "step", "site"]);
    let address = placement["address"].as_str().unwrap();
    let reached = format!("http {address}:{port}");
    assert!(told.contains(&reached), "{told}");
    assert!(told.contains("Ready:      yes"), "{told}");
    dev.kill(Daemon::Agent);
    // The next agent starts this one, and knows the port of the other.
    submit(&dev, "next", &SERVER, &probes);
    let next = ready(&dev, "next");
    assert_ne!(next["ports"]["http"], port);
    assert!(get(&next["ports"]["http"]).contains(" 200 "));
    let placement = ready(&dev, "site");
    assert_eq!(placement["ports"]["http"], port);
    // It was ready all the time.
    let (_, events) = dev.call("GET", "/v1/events?step=site", None);
    let events = events.to_string();
    let first = events.find("\"ready\":true").unwrap();
    assert!(!events[first..].contains("\"ready\":false"), "{events}");
    assert_eq!(events.matches("\"ports_allocated\"").count(), 1, "{events}");
}

#[test]
fn a_step_that_hangs_is_not_ready_and_one_that_does_not_work_is_stopped() {
    let dev = Dev::start();
    let http = json!({"path": "/health", "port": "http"});
    // Before it listens, the probe would see something else, and what it sees later is told after a minute.
    let probe = json!({"http": http, "period": "1s", "timeout": "200ms", "initial_delay": "5s"});
    submit(&dev, "hangs", &HANGS, &json!({"readiness": probe}));
    let command = ["sh", "-c", "echo no disk; exit 3"];
    let probe = json!({"command": command, "period": "1s", "failures": 2});
    submit(
        &dev,
        "broken",
        &["sleep", "600"],
        &json!({"liveness": probe}),
    );
    let reason = eventually("its probe to be told", || {
        let reason = step(&dev, "hangs")["reason"].clone();
        let message = reason["message"].as_str().unwrap();
        let is_told = message.contains("did not answer within 200ms");
        is_told.then_some(reason)
    });
    assert_eq!(reason["code"], "not_ready", "{reason}");
    let told = dev.ok(&["explain", "hangs"]);
    assert!(told.contains("did not answer within 200ms"), "{told}");
    let ready = [
        "get",
        "steps",
        "hangs",
        "--columns",
        "ready",
        "--no-headers",
    ];
    assert_eq!(dev.ok(&ready).trim(), "0/1");
    let ended = dev.step_in("broken", &["failed"]);
    let reason = &ended["reason"];
    assert_eq!(reason["code"], "liveness_failed", "{reason}");
    let message = reason["message"].as_str().unwrap();
    assert!(
        message.ends_with("`sh` exited with code 3: no disk"),
        "{message}"
    );
    assert_eq!(ended["placements"][0]["ready"], false);
    let probe = json!({"readiness": {"tcp": "metrics"}});
    let request = json!({"command": ["true"], "ports": ["http"], "probes": probe});
    let (status, refused) = dev.call("POST", "/v1/steps", Some(&request.to_string()));
    assert_eq!(
        (status, &refused["error"]["code"]),
        (400, &json!("invalid_probe"))
    );
}
