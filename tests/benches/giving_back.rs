//! Measures how soon a service gets back what others borrowed: from the report of more requests until another replica,
//! Python's HTTP server, has answered its readiness probe. Once on an idle host, and once for each way in which the step
//! that borrowed goes: suspended, ended by the stop signal, and killed after a grace of 2 seconds. `cargo bench -p
//! sluice-tests --bench giving_back` after `cargo build --release`; prints medians of 5.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot measure has nothing to say"
)]

use std::fs;
use std::time::{Duration, Instant};

use sluice_tests::{Dev, eventually, median, report, say};

const ROUNDS: usize = 5;

/// Grace of the steps that borrow.
const GRACE: Duration = Duration::from_secs(2);

const DOCUMENTS: &str = "{kind: policy, pool: default, subject: serve, reserved: {cpu: 2}}\n---\n\
         {kind: policy, pool: default, subject: train}\n---\n\
         kind: service\nname: web\nsubject: serve\ngrace_period: 0s\nports: [http]\n\
         command: [sh, -c, 'exec python3 -m http.server --bind 127.0.0.1 \"$SLUICE_PORT\"']\n\
         probes: {readiness: {http: {path: /, port: http}, period: 1s}}\n\
         resources: {cpu_count: 1, min_replicas: 1, max_replicas: 2, autoscaling_metric: concurrency, \
         autoscaling_target: 1}\n\
         autoscaling: {down_after: 0s}\nrollout: {drain_timeout: 0s}\n";

fn main() {
    let dev = Dev::start();
    let cores = std::thread::available_parallelism().unwrap().get();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    fs::write(&file, DOCUMENTS).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()]);
    until(&dev, 1);
    // What is left of the host.
    let rest = (cores - 1).to_string();
    let borrow = |script: &'static str, on_preempt: &'static str| -> Vec<&str> {
        let grace = ["--grace", "2s", "--on-preempt", on_preempt];
        let what = ["submit", "--subject", "train", "--cpus"];
        let mut words = what.to_vec();
        words.push(&rest);
        words.extend(grace);
        words.extend(["--", "sh", "-c", script]);
        words
    };
    let ways: [(&str, Option<Vec<&str>>); 4] = [
        ("on an idle host", None),
        ("borrower suspended", Some(borrow("sleep 1000", "suspend"))),
        (
            "borrower ended by SIGTERM",
            Some(borrow("exec sleep 1000", "requeue")),
        ),
        (
            "borrower killed after its grace",
            Some(borrow("trap '' TERM; while :; do sleep 1; done", "requeue")),
        ),
    ];
    let figures = ways.map(|(name, borrower)| {
        let rounds = (0..ROUNDS).map(|_| round(&dev, borrower.as_deref()));
        let took = median(rounds.collect());
        report(name, took);
        took
    });
    let [idle, suspended, stopped, killed] = figures.map(|took| took.as_secs_f64());
    say(&format!(
        "of an idle host: suspended {:.2}, stopped {:.2}, killed {:.2} (beyond the grace)",
        suspended / idle,
        stopped / idle,
        (killed - GRACE.as_secs_f64()) / idle
    ));
}

fn round(dev: &Dev, borrower: Option<&[&str]>) -> Duration {
    let borrowed = borrower.map(|words| {
        let id = dev.ok(words).trim().to_owned();
        dev.step_in(&id, &["running"]);
        id
    });
    let begun = Instant::now();
    load(dev, 2);
    until(dev, 2);
    let took = begun.elapsed();
    if let Some(id) = borrowed {
        dev.ok(&["cancel", &id, "--grace", "0s"]);
        dev.step_in(&id, &["cancelled"]);
    }
    load(dev, 1);
    until(dev, 1);
    eventually("the other replica to be gone", || {
        let (_, service) = dev.call("GET", "/v1/services/web", None);
        (service["members"].as_array()?.len() == 1).then_some(())
    });
    took
}

/// Reports so many requests at once.
fn load(dev: &Dev, concurrency: u32) {
    let body = format!(r#"{{"reporter":"bench","concurrency":{concurrency},"rps":0}}"#);
    let (status, answer) = dev.call("POST", "/v1/services/web:report", Some(&body));
    assert_eq!(status, 204, "{answer}");
}

/// Polls without a pause until so many replicas are ready.
fn until(dev: &Dev, ready: usize) {
    let begun = Instant::now();
    loop {
        let (_, found) = dev.call("GET", "/v1/endpoints?service=web", None);
        if found["items"].as_array().unwrap().len() == ready {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{found}");
    }
}
