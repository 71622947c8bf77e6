//! Measures lists of steps while the coordinator remembers 100,000: the first page of each kind, and a dry run of a
//! cancel of all. `cargo bench -p sluice-tests --bench list` after `cargo build --release`; prints the median and the
//! 99th percentile of 200 calls.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_tests::{Dev, report};

const BATCHES: usize = 10;
const STEPS_PER_BATCH: usize = 10_000;
const ROUNDS: usize = 200;
/// Rounds of the lists that go through all steps for each page.
const LONG_ROUNDS: usize = 20;

fn main() {
    let dev = Dev::start();
    // What is submitted waits.
    let nodes = dev.ok(&["get", "nodes", "-o", "name"]);
    dev.ok(&["cordon", nodes.trim()]);
    for batch in 0..BATCHES {
        submit(&dev, batch);
    }
    for (what, query, rounds) in [
        ("first page of 100", "", ROUNDS),
        ("first page of 100, live and recent", "?since=1h", ROUNDS),
        ("first page of 100, short", "?fields=id,name,state", ROUNDS),
        ("last page of 100", "?sort=-submitted", ROUNDS),
        ("one step by its name", "?name=s-9-9999", LONG_ROUNDS),
        ("first page of 100 by name", "?sort=-name", LONG_ROUNDS),
    ] {
        let calls = (0..rounds).map(|_| timed(|| get(&dev, &format!("/v1/steps{query}"))));
        tell(what, calls.collect());
    }
    let all = r#"{"all":true}"#;
    let cancel = |dry_run: bool| {
        let path = format!("/v1/steps:cancel?dry_run={dry_run}");
        let (status, answer) = dev.call("POST", &path, Some(all));
        assert_eq!(status, 200, "{answer}");
    };
    tell(
        "dry run of a cancel of all",
        (0..LONG_ROUNDS).map(|_| timed(|| cancel(true))).collect(),
    );
    // While all are cancelled, others get their turn. The steps themselves are forgotten soon.
    let waits = std::thread::scope(|scope| {
        let cancelling = scope.spawn(|| cancel(false));
        let mut waits = Vec::new();
        while !cancelling.is_finished() {
            waits.push(timed(|| get(&dev, "/v1/pools/default")));
        }
        waits
    });
    tell("read of a pool during a cancel of all", waits);
}

fn submit(dev: &Dev, batch: usize) {
    let step = |n: usize| json!({ "id": format!("s-{batch}-{n}"), "name": format!("s-{batch}-{n}"), "command": ["true"], "labels": { "team": "vision" } });
    let steps: Vec<Value> = (0..STEPS_PER_BATCH).map(step).collect();
    let body = json!({ "steps": steps }).to_string();
    let (status, _) = dev.call("POST", "/v1/steps:batch", Some(&body));
    assert_eq!(status, 200);
}

fn get(dev: &Dev, path: &str) {
    let (status, answer) = dev.call("GET", path, None);
    assert_eq!(status, 200, "{answer}");
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    report(&format!("{what}, median"), at(50));
    report(&format!("{what}, p99"), at(99));
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
