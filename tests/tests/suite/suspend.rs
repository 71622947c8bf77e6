//! Suspending and resuming: counting processes that stop and go on without a gap, victims that are frozen and come
//! back, and daemons that die meanwhile.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_tests::{Daemon, Dev, DevOptions};

/// Counts a line for each number, as fast as it can.
const COUNT: &str = "n=0; while :; do n=$((n+1)); echo $n; done";

fn counts(dev: &Dev, id: &str) -> u64 {
    let log = dev.ok(&["logs", id, "--tail", "1"]);
    log.trim().parse().unwrap_or(0)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until it has counted beyond a number.
fn counts_on(dev: &Dev, id: &str, from: u64) {
    until("it counts on", || counts(dev, id) > from);
}

/// Checks that nothing of it runs: it would have counted.
fn stands_still(dev: &Dev, id: &str) -> u64 {
    let first = counts(dev, id);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(counts(dev, id), first, "{id} counts on");
    first
}

fn submit_counter(dev: &Dev, id: &str, more: &[&str]) {
    let what = ["submit", "--id", id, "--cpus", "1"];
    dev.ok(&[&what[..], more, &["--", "sh", "-c", COUNT]].concat());
    dev.step_in(id, &["running"]);
    counts_on(dev, id, 0);
}

/// Whether this machine can freeze processes; otherwise the test checks that it says so.
fn freezes(dev: &Dev) -> bool {
    let (status, nodes) = dev.call("GET", "/v1/nodes", None);
    assert_eq!(status, 200, "{nodes}");
    let freeze = &nodes["items"][0]["inventory"]["capabilities"]["freeze"];
    freeze.as_str().is_none_or(|means| means != "none")
}

#[test]
fn a_step_stops_counting_to_the_digit_and_goes_on_when_it_is_resumed() {
    let dev = Dev::start();
    submit_counter(&dev, "a", &[]);
    let said = dev.ok(&["suspend", "a"]);
    assert!(said.starts_with("a suspending"), "{said}");
    if !freezes(&dev) {
        let step = dev.step_in("a", &["queued"]);
        assert_eq!(step["reason"]["code"], "held", "{step}");
        return;
    }
    let step = dev.step_in("a", &["suspended"]);
    assert_eq!(
        (&step["held"], &step["reason"]["code"]),
        (&Value::Bool(true), &"held".into())
    );
    let stopped_at = stands_still(&dev, "a");
    // A repeat is harmless.
    dev.ok(&["suspend", "a"]);
    let text = dev.ok(&["explain", "a"]);
    assert!(text.contains("sluice resume"), "{text}");
    dev.ok(&["resume", "a"]);
    dev.step_in("a", &["running"]);
    counts_on(&dev, "a", stopped_at);
    dev.ok(&["resume", "a"]);
    let step = dev.step_in("a", &["running"]);
    assert_eq!(step["attempt"], 1, "{step}");
    dev.ok(&["requeue", "a"]);
    until("it starts anew", || {
        let step = dev.step_in(
            "a",
            &["stopping", "queued", "allocated", "starting", "running"],
        );
        step["attempt"] == 2 && step["state"] == "running"
    });
}

#[test]
fn what_is_over_is_neither_suspended_nor_resumed_nor_requeued() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "a", "--", "true"]);
    dev.step_in("a", &["succeeded"]);
    for verb in ["suspend", "resume", "requeue"] {
        let (status, body) = dev.call("POST", &format!("/v1/steps/a:{verb}"), None);
        assert_eq!(
            (status, &body["error"]["code"]),
            (409, &"step_over".into()),
            "{body}"
        );
        let (status, body) = dev.call("POST", &format!("/v1/steps/nobody:{verb}"), None);
        assert_eq!(
            (status, &body["error"]["code"]),
            (404, &"unknown_step".into()),
            "{body}"
        );
    }
}

#[test]
fn a_frozen_step_is_cancelled_at_once() {
    let dev = Dev::start();
    submit_counter(&dev, "a", &["--grace", "10m"]);
    if !freezes(&dev) {
        return;
    }
    dev.ok(&["suspend", "a"]);
    dev.step_in("a", &["suspended"]);
    dev.ok(&["cancel", "a"]);
    let step = dev.step_in("a", &["cancelled"]);
    assert_eq!(step["exit"]["signal"], 9, "{step}");
}

#[test]
fn a_frozen_step_outlives_its_agent_and_its_supervisor() {
    let dev = Dev::start();
    submit_counter(&dev, "a", &[]);
    if !freezes(&dev) {
        return;
    }
    dev.ok(&["suspend", "a"]);
    dev.step_in("a", &["suspended"]);
    let stopped_at = stands_still(&dev, "a");
    for daemon in [Daemon::Agent, Daemon::Supervisor, Daemon::Coordinator] {
        let killed = dev.kill(daemon);
        until("it is started again", || {
            dev.daemon(daemon).is_some_and(|pid| pid != killed)
        });
        until("its node is back", || {
            let answer = dev.try_call("GET", "/v1/nodes", None);
            answer.is_some_and(|(status, nodes)| {
                status == 200 && nodes["items"][0]["state"] == "ready"
            })
        });
        assert_eq!(stands_still(&dev, "a"), stopped_at, "after {daemon:?} died");
        dev.step_in("a", &["suspended"]);
    }
    dev.ok(&["resume", "a"]);
    let step = dev.step_in("a", &["running"]);
    assert_eq!(step["attempt"], 1, "{step}");
    counts_on(&dev, "a", stopped_at);
}

const TWO_SUBJECTS: &str = "
kind: pool
name: shared
---
{kind: policy, pool: shared, subject: low}
---
{kind: policy, pool: shared, subject: high, priority: 10}
---
{kind: host, name: h1, pool: shared, gpus: 2, gpu_model: H100}
";

fn shared(folder: &Path) -> Dev {
    let file = folder.join("hosts.yaml");
    fs::write(&file, TWO_SUBJECTS).unwrap();
    Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    })
}

#[test]
fn a_victim_gives_way_frozen_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let dev = shared(folder.path());
    let low = ["--subject", "low", "--gpus", "2", "--on-preempt", "suspend"];
    submit_counter(&dev, "victim", &low);
    let high = [
        "submit",
        "--id",
        "waiter",
        "--subject",
        "high",
        "--gpus",
        "1",
    ];
    dev.ok(&[&high[..], &["--", "sleep", "1000"]].concat());
    let waiter = dev.step_in("waiter", &["running"]);
    assert_eq!(
        waiter["placements"][0]["gpus"].as_array().map(Vec::len),
        Some(1),
        "{waiter}"
    );
    if !freezes(&dev) {
        return;
    }
    let victim = dev.step_in("victim", &["suspended"]);
    assert_eq!(victim["preempted_by"], "waiter", "{victim}");
    let stopped_at = stands_still(&dev, "victim");
    let (status, explained) = dev.call("GET", "/v1/steps/victim/explain", None);
    assert_eq!(status, 200, "{explained}");
    let reason = &explained["pools"][0]["reason"];
    assert_eq!(reason["code"], "waiting_for_units", "{explained}");
    dev.ok(&["cancel", "waiter"]);
    let victim = dev.step_in("victim", &["running"]);
    assert_eq!(victim["attempt"], 1, "{victim}");
    counts_on(&dev, "victim", stopped_at);
}
