//! Supervisors fail while their hosts are cut off for longer than `lost_after`: a step that is started elsewhere must
//! have stopped on the lost host, although only a keeper is there to stop it.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use sluice_tests::{
    Dev, DevOptions, children_of, eventually, eventually_within, kill, processes_of_attempt,
};

/// Three hosts that fail, and room for all of their steps elsewhere.
const HOSTS: &str = "
kind: pool
name: shared
---
{kind: policy, pool: shared, subject: dev, priority: 10, reserved: {gpu: 3}}
---
{kind: host, name: h1, pool: shared, gpus: 1, gpu_model: H100}
---
{kind: host, name: h2, pool: shared, gpus: 1, gpu_model: H100}
---
{kind: host, name: h3, pool: shared, gpus: 1, gpu_model: H100}
---
{kind: host, name: spare, pool: shared, gpus: 3, gpu_model: A100}
";

/// `lost_after` is the least that the others allow.
const TERMS: [(&str, &str); 5] = [
    ("SLUICE_LEASE", "4s"),
    ("SLUICE_STOP_LIMIT", "1s"),
    ("SLUICE_HEARTBEAT", "500ms"),
    ("SLUICE_UNREACHABLE_AFTER", "3s"),
    ("SLUICE_LOST_AFTER", "25s"),
];

/// Stopped processes, continued at the end so that they can exit.
struct StoppedProcesses(Vec<u32>);

impl StoppedProcesses {
    fn stop(&mut self, pid: u32) {
        kill(pid, Signal::SIGSTOP);
        self.0.push(pid);
    }
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| kill(*pid, Signal::SIGCONT));
    }
}

fn daemon(dev: &Dev, program: &str, host: &str) -> u32 {
    let found = children_of(dev.pid()).into_iter().find(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains(program) && line.contains(host)
    });
    found.unwrap_or_else(|| panic!("{program} of {host} runs"))
}

#[test]
fn a_step_whose_supervisor_fails_on_a_host_that_is_cut_off_never_runs_twice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.yaml");
    fs::write(&file, HOSTS).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        variables: TERMS.map(|(name, value)| (name, value.to_owned())).into(),
        ..DevOptions::default()
    });
    let mut stopped = StoppedProcesses(Vec::new());
    // It ignores requests to stop.
    let script = "trap '' TERM; while :; do sleep 0.1; done";
    dev.ok(&["cordon", "spare"]);
    let steps = ["kept-1", "kept-2", "kept-3"];
    for step in steps {
        let what = ["submit", "--id", step, "--gpus", "1", "--grace", "500ms"];
        dev.ok(&[&what[..], &["--", "sh", "-c", script]].concat());
        dev.step_in(step, &["running"]);
    }
    dev.ok(&["uncordon", "spare"]);
    // With `dev` stopped, no dead daemon is restarted.
    stopped.stop(dev.pid());
    let [agents, supervisors] = ["sluice-agent", "sluice-supervisor"]
        .map(|program| ["h1", "h2", "h3"].map(|host| daemon(&dev, program, host)));
    agents.iter().for_each(|pid| stopped.stop(*pid));
    kill(supervisors[0], Signal::SIGKILL);
    stopped.stop(supervisors[1]);
    // This one dies in the middle of the lease.
    eventually("the hosts to be silent", || {
        let (_, node) = dev.call("GET", "/v1/nodes/h3", None);
        (node["state"] == "unreachable").then_some(())
    });
    kill(supervisors[2], Signal::SIGKILL);
    eventually_within(Duration::from_secs(120), "all second copies", || {
        let twice: [(Vec<u32>, Vec<u32>); 3] = steps.map(|step| {
            [1, 2]
                .map(|n| processes_of_attempt(dev.folder(), step, n))
                .into()
        });
        for (step, (first, second)) in steps.iter().zip(&twice) {
            assert!(
                first.is_empty() || second.is_empty(),
                "{step} runs twice: {first:?} and {second:?}"
            );
        }
        twice
            .iter()
            .all(|(_, second)| !second.is_empty())
            .then_some(())
    });
    drop(stopped);
    for step in steps {
        dev.ok(&["cancel", step]);
    }
}
