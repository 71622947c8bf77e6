//! Measures how soon a service gets back what others borrowed: from the report of more requests until another replica,
//! Python's HTTP server, has answered its readiness probe. Once on an idle host, and once for each way in which the step
//! that borrowed goes: suspended, ended by the stop signal, and killed after a grace of 2 seconds. First with cores, then
//! with GPUs of the stand-in for NVIDIA's library, which are granted again only when they are seen free; there nothing is
//! suspended, because no real driver is there to move memory. `cargo bench -p sluice-tests --bench giving_back` after
//! `cargo build --release`; prints medians of 5.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot measure has nothing to say"
)]

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_tests::{Dev, DevOptions, binaries, eventually, host_of_l40s, median, report, say};

const ROUNDS: usize = 5;

/// Grace of the steps that borrow.
const GRACE: Duration = Duration::from_secs(2);

/// The resource that is borrowed.
struct Borrowed {
    name: &'static str,
    /// Key of a policy, and the field and the flag of a request.
    key: &'static str,
    field: &'static str,
    flag: &'static str,
    /// Amount that the host has.
    all: usize,
}

fn documents(of: &Borrowed) -> String {
    let Borrowed { key, field, .. } = of;
    format!(
        "{{kind: policy, pool: default, subject: serve, reserved: {{{key}: 2}}}}\n---\n\
         {{kind: policy, pool: default, subject: train}}\n---\n\
         kind: service\nname: web\nsubject: serve\ngrace_period: 0s\nports: [http]\n\
         command: [sh, -c, 'exec python3 -m http.server --bind 127.0.0.1 \"$SLUICE_PORT\"']\n\
         probes: {{readiness: {{http: {{path: /, port: http}}, period: 1s}}}}\n\
         resources: {{{field}: 1, min_replicas: 1, max_replicas: 2, autoscaling_metric: concurrency, \
         autoscaling_target: 1}}\n\
         autoscaling: {{down_after: 0s}}\nrollout: {{drain_timeout: 0s}}\n"
    )
}

fn main() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let of_cores = Borrowed {
        name: "cores",
        key: "cpu",
        field: "cpu_count",
        flag: "--cpus",
        all: cores,
    };
    measure(&Dev::start(), &of_cores, true);
    let folder = tempfile::tempdir().unwrap();
    let of_gpus = Borrowed {
        name: "GPUs",
        key: "gpu",
        field: "gpu_count",
        flag: "--gpus",
        all: 4,
    };
    let mut file = host_of_l40s(folder.path(), of_gpus.all, &json!({}));
    let host = folder.path().join("host.json");
    file["gpus"][0]["holds"] = json!([]);
    fs::write(&host, file.to_string()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((binaries().join("libsluice_nvml_standin.so"), host)),
        ..DevOptions::default()
    });
    measure(&dev, &of_gpus, false);
}

fn measure(dev: &Dev, of: &Borrowed, may_suspend: bool) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    fs::write(&file, documents(of)).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()]);
    until(dev, 1);
    // What is left of the host.
    let rest = (of.all - 1).to_string();
    let borrow = |script: &'static str, on_preempt: &'static str| -> Vec<&str> {
        let what = ["submit", "--subject", "train", of.flag, &rest];
        let how = ["--grace", "2s", "--on-preempt", on_preempt];
        [&what[..], &how, &["--", "sh", "-c", script]].concat()
    };
    let suspended = borrow("sleep 1000", "suspend");
    let ways: [(&str, Option<Vec<&str>>); 4] = [
        ("on an idle host", None),
        ("borrower suspended", Some(suspended)),
        (
            "borrower ended by SIGTERM",
            Some(borrow("exec sleep 1000", "requeue")),
        ),
        (
            "borrower killed after its grace",
            Some(borrow("trap '' TERM; while :; do sleep 1; done", "requeue")),
        ),
    ];
    let mut idle = None;
    for (way, borrower) in ways
        .iter()
        .filter(|(way, _)| may_suspend || !way.contains("suspended"))
    {
        let rounds = (0..ROUNDS).map(|_| round(dev, borrower.as_deref()));
        let took = median(rounds.collect());
        report(&format!("{}: {way}", of.name), took);
        let idle = *idle.get_or_insert(took);
        let beyond = match way.contains("killed") {
            true => GRACE,
            false => Duration::ZERO,
        };
        let ratio = took.saturating_sub(beyond).as_secs_f64() / idle.as_secs_f64();
        say(&format!("{ratio:.2} of an idle host, beyond the grace"));
    }
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
