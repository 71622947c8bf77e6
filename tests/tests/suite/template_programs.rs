//! Programs of templates before and after steps, on a running cluster: after every kind of end, including cancel,
//! timeout and preemption, with the step's outcome unchanged, and resources released only when they are over.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_tests::{Dev, DevOptions, eventually};

const CLUSTER: &str = r#"
kind: template
name: followed
hooks:
  before:
  - {name: stage, command: [sh, -c, "echo staged in {{workdir}} >> DIR/{{step}}; cd / && test -e DIR/open"]}
  after:
  - {name: clean, command: [sh, -c, "echo clean {{attempt}} $SLUICE_EXIT_CODE$SLUICE_EXIT_SIGNAL >> DIR/{{step}}"]}
  - {name: fails, command: [sh, -c, "echo no luck; exit 5"]}
  - {name: last, command: [sh, -c, "while [ -e DIR/hold ]; do sleep 0.02; done; echo last {{attempt}} >> DIR/{{step}}"], timeout: 5m}
---
{kind: pool, name: laid, templates: [followed]}
---
{kind: policy, pool: laid, subject: low, priority: 1}
---
{kind: policy, pool: laid, subject: high, priority: 9}
---
{kind: host, name: h1, pool: laid, gpus: 1, gpu_model: H100}
"#;

fn dev() -> (tempfile::TempDir, Dev) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    let dir = folder.path().to_str().unwrap();
    fs::write(&file, CLUSTER.replace("DIR", dir)).unwrap();
    fs::write(folder.path().join("open"), "").unwrap();
    let files = vec![file];
    let dev = Dev::with(DevOptions {
        files,
        ..DevOptions::default()
    });
    (folder, dev)
}

fn submit(dev: &Dev, id: &str, more: &[&str], script: &str) {
    let first = ["submit", "--pool", "laid", "--workdir", "/tmp", "--id", id];
    let command = ["--", "sh", "-c", script];
    dev.ok(&[&first[..], more, &command].concat());
}

fn notes(folder: &Path, id: &str) -> String {
    fs::read_to_string(folder.join(id)).unwrap_or_default()
}

fn hold(folder: &Path) -> PathBuf {
    let hold = folder.join("hold");
    fs::write(&hold, "").unwrap();
    hold
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

const LOW: &[&str] = &["--subject", "low"];

#[test]
fn programs_after_a_step_run_whatever_its_end_was_and_change_nothing_about_it() {
    let (folder, dev) = dev();
    let asks = |more: &[&'static str]| [LOW, more].concat();
    submit(&dev, "well", LOW, "echo ran");
    submit(&dev, "badly", LOW, "exit 3");
    submit(
        &dev,
        "late",
        &asks(&["--timeout", "1s", "--grace", "1s"]),
        "sleep 1000",
    );
    submit(&dev, "gone", LOW, "sleep 1000");
    dev.step_in("gone", &["running"]);
    dev.ok(&["cancel", "gone"]);
    for (id, state, told) in [
        ("well", "succeeded", "0"),
        ("badly", "failed", "3"),
        ("late", "failed", "15"),
        ("gone", "cancelled", "15"),
    ] {
        dev.step_in(id, &[state]);
        let all = format!("staged in /tmp\nclean 1 {told}\nlast 1\n");
        until("all hooks have run", || notes(folder.path(), id) == all);
    }
    assert_eq!(dev.ok(&["logs", "well", "--stdout"]), "ran\nno luck\n");
    assert_eq!(
        dev.ok(&["logs", "well", "--stderr"]),
        "sluice: after the step, hook `fails` ended with code 5\n"
    );
    fs::remove_file(folder.path().join("open")).unwrap();
    submit(&dev, "closed", LOW, "echo never");
    let closed = dev.step_in("closed", &["failed"]);
    let why = closed["reason"]["message"].as_str().unwrap();
    assert!(why.contains("hook `stage` ended with code 1"), "{why}");
    assert_eq!(notes(folder.path(), "closed"), "staged in /tmp\n");
}

#[test]
fn who_preempts_a_step_waits_for_what_runs_after_it() {
    let (folder, dev) = dev();
    let hold = hold(folder.path());
    submit(
        &dev,
        "victim",
        &[LOW, &["--gpus", "1"]].concat(),
        "sleep 1000",
    );
    dev.step_in("victim", &["running"]);
    submit(
        &dev,
        "waiter",
        &["--subject", "high", "--gpus", "1"],
        "true",
    );
    let path = folder.path();
    until("it is cleaned up", || {
        notes(path, "victim").contains("clean 1 15")
    });
    let (_, waiter) = dev.call("GET", "/v1/steps/waiter", None);
    assert_eq!(waiter["state"], "queued", "{waiter}");
    assert_eq!(waiter["reason"]["code"], "waiting_for_release", "{waiter}");
    fs::remove_file(hold).unwrap();
    dev.step_in("waiter", &["succeeded"]);
    assert!(notes(path, "victim").starts_with("staged in /tmp\nclean 1 15\nlast 1\n"));
    // It is requeued, and the program runs again after it.
    dev.step_in("victim", &["running"]);
    dev.ok(&["cancel", "victim"]);
    until("both are over", || {
        notes(path, "victim").ends_with("last 2\n")
    });
}
