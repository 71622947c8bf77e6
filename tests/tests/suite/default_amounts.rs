//! Default amounts of pools: how many steps that say nothing run at once, and what is told about them.

use std::fs;

use sluice_tests::{Dev, DevOptions, eventually};

const CLUSTER: &str = "
{kind: pool, name: small}
---
{kind: policy, pool: small, subject: dev}
---
{kind: host, name: h1, pool: small, cpu: 4, memory: 64GB}
";

fn submit(dev: &Dev, id: &str, more: &[&str]) -> String {
    let first = ["submit", "--id", id, "--pool", "small"];
    let ran = dev.sluice(&[&first[..], more, &["--", "sleep", "1000"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stderr
}

#[test]
fn steps_that_say_nothing_run_on_as_many_cores_as_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    fs::write(&file, CLUSTER).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    for number in 0..25 {
        assert_eq!(submit(&dev, &format!("s{number}"), &[]), "");
    }
    for number in 0..4 {
        dev.step_in(&format!("s{number}"), &["running"]);
    }
    let steps = dev.ok(&["get", "steps", "--pool", "small"]);
    let count = |state: &str| steps.lines().filter(|line| line.contains(state)).count();
    assert_eq!((count(" running "), count(" queued ")), (4, 21), "{steps}");
    let node = dev.ok(&["get", "nodes", "h1"]);
    assert!(node.contains(" 4/4 "), "{node}");
    let why = dev.ok(&["explain", "s24"]);
    assert!(
        why.contains("it asks for 1 core (default of pool `small`)"),
        "{why}"
    );
    let (_, explained) = dev.call("GET", "/v1/steps/s24/explain", None);
    let keys = &explained["pools"][0]["keys"];
    assert_eq!(
        (&keys[0]["key"], &keys[0]["asked"], &keys[0]["used"]),
        (&"cpu".into(), &1.into(), &4.into()),
        "{keys}"
    );
    assert_eq!(
        (&keys[1]["key"], &keys[1]["asked"]),
        (&"memory".into(), &"2GiB".into()),
        "{keys}"
    );
    let told = dev.ok(&["describe", "step", "s24"]);
    assert!(told.contains("pool small, defaults"), "{told}");
    // One that asks for nothing starts on the full host, and its submit says what that means.
    let warned = submit(&dev, "free", &["--cpus", "0", "--memory", "0B"]);
    assert!(
        warned.contains("it asks for 0 cpu: what it uses is not counted"),
        "{warned}"
    );
    dev.step_in("free", &["running"]);
    // The pool says what it does, and what it says is applied without a change.
    let pool = dev.ok(&["get", "pool", "small", "-o", "yaml"]);
    assert!(pool.contains("  cpu: 1\n  memory: 2GiB\n"), "{pool}");
    let said = folder.path().join("pool.yaml");
    fs::write(&said, pool).unwrap();
    let apply = || dev.ok(&["apply", "-f", said.to_str().unwrap()]);
    assert_eq!(apply(), "pool/small unchanged\n");
    // Without defaults, a step that says nothing is not counted either; the others wait on.
    fs::write(
        &said,
        "{kind: pool, name: small, defaults: {cpu: 0, memory: 0B}}\n",
    )
    .unwrap();
    assert_eq!(
        apply(),
        "pool/small changed: defaults.cpu 1 -> 0, defaults.memory 2GiB -> 0B\n"
    );
    submit(&dev, "open", &[]);
    dev.step_in("open", &["running"]);
    eventually("the first to make room", || {
        dev.ok(&["cancel", "s0"]);
        dev.ok(&["get", "steps", "--pool", "small"])
            .lines()
            .any(|line| line.starts_with("s4 ") && line.contains(" running "))
            .then_some(())
    });
}
