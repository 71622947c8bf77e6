//! Suspending steps that hold GPU memory, through stand-ins for NVIDIA's two libraries. Memory is moved before the
//! freeze and back after it; if that is impossible, the steps are stopped and requeued.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_tests::{Daemon, Dev, DevOptions, binaries, eventually, host_of_l40s};

const TERMS: &str = "\
kind: policy
pool: default
subject: low
---
kind: policy
pool: default
subject: vip
priority: 10
";

/// More than a driver reserves, and less than any test machine has.
const HELD_MIB: u64 = 600;
/// The same in units of 10^6 bytes, rounded up.
const HELD_MB: u64 = 630;

/// A cluster on a host with one GPU.
struct OneGpuHost {
    dev: Dev,
    folder: tempfile::TempDir,
}

impl OneGpuHost {
    fn start() -> Self {
        Self::with(&json!({}), &[])
    }

    /// The process that writes its pid to `pid` uses the GPU, until it is checkpointed.
    fn with(more: &Value, variables: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut hold = json!({
            "pid_file": folder.path().join("pid"),
            "used_mib": HELD_MIB,
            "linger_ms": 0,
            "moved_by": folder.path(),
        });
        let more = more.as_object().unwrap().clone();
        hold.as_object_mut().unwrap().extend(more);
        host_of_l40s(folder.path(), 1, &hold);
        let host = folder.path().join("host.json");
        let terms = folder.path().join("terms.yaml");
        fs::write(&terms, TERMS).unwrap();
        let library = binaries().join("libsluice_cuda_standin.so");
        let library = library.to_str().unwrap().to_owned();
        let variables = variables
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let cuda = [("SLUICE_SUPERVISOR_CUDA_LIBRARY", library)];
        let dev = Dev::with(DevOptions {
            gpus: Some((binaries().join("libsluice_nvml_standin.so"), host)),
            files: vec![terms],
            variables: cuda.into_iter().chain(variables).collect(),
            ..DevOptions::default()
        });
        Self { dev, folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Submits a counting step that uses the GPU.
    fn submit(&self, id: &str) {
        let script = format!(
            "echo $$ > {0}.new; mv {0}.new {0}; n=0; while :; do n=$((n+1)); echo $n; sleep 0.01; done",
            self.at("pid").display()
        );
        let folder = format!("CUDA_STANDIN={}", self.folder.path().display());
        let what = ["submit", "--id", id, "--subject", "low", "--gpus", "1"];
        let how = ["--on-preempt", "suspend", "--env", &folder];
        self.dev
            .ok(&[&what[..], &how, &["--", "sh", "-c", &script]].concat());
        self.dev.step_in(id, &["running"]);
        eventually("its number", || self.pid());
        self.counts_on(id, 0);
    }

    fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.at("pid")).ok()?.trim().parse().ok()
    }

    /// Lists the driver's calls that change something, in order.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.at("calls")).unwrap_or_default();
        let call = |line: &str| line.split(' ').next().unwrap().to_owned();
        calls.lines().map(call).collect()
    }

    fn fault(&self, lines: &str) {
        fs::write(self.at("faults"), lines).unwrap();
    }

    fn count(&self, id: &str) -> u64 {
        let log = self.dev.ok(&["logs", id, "--tail", "1"]);
        log.trim().parse().unwrap_or(0)
    }

    fn counts_on(&self, id: &str, from: u64) {
        eventually("it counts on", || (self.count(id) > from).then_some(()));
    }

    /// Whether this machine can freeze processes; otherwise nothing is moved either.
    fn freezes(&self) -> bool {
        let (_, nodes) = self.dev.call("GET", "/v1/nodes", None);
        nodes["items"][0]["inventory"]["capabilities"]["freeze"] != "none"
    }

    /// Waits until a step was stopped because it could not be suspended; returns the reason.
    fn told_why(&self) -> String {
        let (_, page) = eventually("it is stopped instead", || {
            let (status, page) = self.dev.call("GET", "/v1/events?limit=1000", None);
            let told = page.to_string().contains("\"not_suspended\"");
            told.then_some((status, page))
        });
        page.to_string()
    }
}

#[test]
fn a_victim_leaves_its_gpu_to_another_and_comes_back_with_what_it_held() {
    let host = OneGpuHost::with(&json!({"shown_when_moved": true}), &[]);
    if !host.freezes() {
        return;
    }
    host.submit("victim");
    let pid = host.pid().unwrap();
    let high = [
        "submit",
        "--id",
        "waiter",
        "--subject",
        "vip",
        "--gpus",
        "1",
    ];
    host.dev.ok(&[&high[..], &["--", "sleep", "1000"]].concat());
    let waiter = host.dev.step_in("waiter", &["running"]);
    let victim = host.dev.step_in("victim", &["suspended"]);
    assert_eq!(victim["preempted_by"], "waiter", "{victim}");
    assert_eq!(
        waiter["placements"][0]["gpus"], victim["placements"][0]["gpus"],
        "the one GPU is the waiter's"
    );
    assert_eq!(host.calls(), ["lock", "checkpoint"]);
    let stopped_at = host.count("victim");
    // Both survive the death of any daemon.
    for daemon in [Daemon::Agent, Daemon::Supervisor] {
        let killed = host.dev.kill(daemon);
        eventually("it is started again", || {
            host.dev.daemon(daemon).filter(|pid| *pid != killed)
        });
    }
    host.dev.step_in("waiter", &["running"]);
    host.dev.step_in("victim", &["suspended"]);
    assert_eq!(host.count("victim"), stopped_at, "it counts on");
    host.dev.ok(&["cancel", "waiter"]);
    let victim = host.dev.step_in("victim", &["running"]);
    assert_eq!(victim["attempt"], 1, "{victim}");
    assert_eq!(host.pid(), Some(pid));
    host.counts_on("victim", stopped_at);
    assert_eq!(host.calls(), ["lock", "checkpoint", "restore", "unlock"]);
    let (_, page) = host.dev.call("GET", "/v1/events?limit=1000", None);
    let moved = format!("\"moved_mb\":{HELD_MB}");
    assert!(page.to_string().contains(&moved), "{page}");
    let (_, nodes) = host.dev.call("GET", "/v1/nodes", None);
    assert_eq!(nodes["items"][0]["unfit_gpus"], json!([]), "{nodes}");
}

#[test]
fn what_the_driver_refuses_is_stopped_and_starts_anew_with_the_reason() {
    let host = OneGpuHost::start();
    if !host.freezes() {
        return;
    }
    host.submit("a");
    host.fault("refuse checkpoint\n");
    host.dev.ok(&["suspend", "a"]);
    let told = host.told_why();
    assert!(told.contains("does not checkpoint process"), "{told}");
    assert_eq!(host.calls(), ["lock", "checkpoint", "unlock"]);
    let step = host.dev.step_in("a", &["queued"]);
    assert_eq!(step["held"], true, "{step}");
    host.fault("");
    host.dev.ok(&["resume", "a"]);
    let step = host.dev.step_in("a", &["running"]);
    assert_eq!(step["attempt"], 2, "{step}");
}

#[test]
fn what_hangs_is_ended_when_its_time_is_over() {
    let host = OneGpuHost::with(&json!({}), &[("SLUICE_AGENT_SUSPEND_LIMIT", "1s")]);
    if !host.freezes() {
        return;
    }
    host.submit("a");
    host.fault("hang checkpoint\n");
    host.dev.ok(&["suspend", "a"]);
    let told = host.told_why();
    assert!(told.contains("timed_out"), "{told}");
    assert_eq!(host.calls(), ["lock", "checkpoint", "unlock"]);
    host.dev.step_in("a", &["queued"]);
}

#[test]
fn what_is_lost_on_its_way_back_starts_anew() {
    let host = OneGpuHost::start();
    if !host.freezes() {
        return;
    }
    host.submit("a");
    host.dev.ok(&["suspend", "a"]);
    host.dev.step_in("a", &["suspended"]);
    host.fault("lose restore\n");
    host.dev.ok(&["resume", "a"]);
    let told = host.told_why();
    assert!(told.contains("not_resumed"), "{told}");
    host.fault("");
    let step = eventually("it starts anew", || {
        let step = host.dev.step_in(
            "a",
            &[
                "running",
                "stopping",
                "queued",
                "starting",
                "allocated",
                "resuming",
            ],
        );
        (step["attempt"] == 2 && step["state"] == "running").then_some(step)
    });
    assert_eq!(step["held"], false, "{step}");
}

#[test]
fn a_host_without_a_way_to_move_it_says_so() {
    let host = OneGpuHost::with(
        &json!({}),
        &[("SLUICE_SUPERVISOR_CUDA_LIBRARY", "/no/such/library")],
    );
    if !host.freezes() {
        return;
    }
    host.submit("a");
    host.dev.ok(&["suspend", "a"]);
    let told = host.told_why();
    assert!(told.contains("no_checkpoint"), "{told}");
}
