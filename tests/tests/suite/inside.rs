//! Steps inside allocations of a running cluster, with real processes.

use std::fs;
use std::process::Stdio;

use serde_json::Value;
use sluice_tests::{Daemon, Dev, DevOptions, eventually};

/// Two GPUs, which `own` has a share in and `guest` may borrow.
const CLUSTER: &str = "
{kind: pool, name: two}
---
{kind: policy, pool: two, subject: own, reserved: {gpu: 2}}
---
{kind: policy, pool: two, subject: guest}
---
{kind: host, name: h1, pool: two, gpus: 2, gpu_model: H100}
";

/// A cluster in which `guest` holds both GPUs as `held`.
fn held(more: &[&str]) -> (tempfile::TempDir, Dev) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    fs::write(&file, CLUSTER).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    let ask = ["allocate", "--gpus", "2", "--pool", "two", "--id", "held"];
    let ask = [&ask[..], &["--subject", "guest"], more].concat();
    dev.ok(&ask);
    dev.step_in("held", &["running"]);
    (folder, dev)
}

/// Submits a step inside `held`.
fn submit(dev: &Dev, id: &str, flags: &[&str], script: &str) -> String {
    let first = ["submit", "--in", "held", "--id", id];
    dev.ok(&[&first[..], flags, &["--", "sh", "-c", script]].concat())
}

fn gpus(step: &Value) -> Vec<String> {
    let gpus = step["placements"][0]["gpus"].as_array().unwrap();
    gpus.iter()
        .map(|gpu| gpu.as_str().unwrap().to_owned())
        .collect()
}

/// A program that says when it is told to end, and ends then.
const WAITS: &str = "trap 'echo told; exit 4' TERM; echo began; while :; do sleep 0.1; done";

/// Waits until a step has written a line.
fn wrote(dev: &Dev, id: &str, line: &str) {
    eventually(&format!("{id} to write {line}"), || {
        dev.ok(&["logs", id]).contains(line).then_some(())
    });
}

#[test]
fn they_have_ids_logs_and_ends_of_their_own_and_the_gpus_that_they_ask_for() {
    let (_folder, dev) = held(&[]);
    let all = gpus(&dev.step_in("held", &["running"]));
    let says = "echo $SLUICE_STEP_ID in $SLUICE_ALLOCATION on $CUDA_VISIBLE_DEVICES; exit 3";
    submit(&dev, "one", &["--gpus", "1"], says);
    let step = dev.step_in("one", &["failed"]);
    assert_eq!(step["exit"]["code"], 3, "{step}");
    assert_eq!(
        (&step["inside"], &step["subject"]),
        (&"held".into(), &"guest".into())
    );
    assert_eq!(gpus(&step), all[..1]);
    assert_eq!(
        dev.ok(&["logs", "one"]),
        format!("one in held on {}\n", all[0])
    );
    assert!(dev.ok(&["describe", "step", "one"]).contains("held"));
    // All of the allocation, and the end of the program is that of the command.
    let flags = ["run", "--in", "held", "--"];
    let ran = dev.sluice(
        &[
            &flags[..],
            &["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 5"],
        ]
        .concat(),
    );
    assert_eq!(
        (ran.code, ran.stdout),
        (5, format!("{}\n", all.join(","))),
        "{}",
        ran.stderr
    );
    assert_eq!(dev.step_in("held", &["running"])["attempt"], 1);
}

#[test]
fn they_wait_for_each_other_and_are_rejected_if_they_never_fit() {
    let (_folder, dev) = held(&[]);
    submit(&dev, "first", &["--gpus", "1"], WAITS);
    wrote(&dev, "first", "began");
    // It counts nowhere beside the allocation.
    let (_, pool) = dev.call("GET", "/v1/pools/two", None);
    assert_eq!(
        (&pool["used"]["gpu"], &pool["running"]),
        (&2.into(), &1.into()),
        "{pool}"
    );
    submit(&dev, "large", &["--gpus", "2"], "true");
    let explained = dev.ok(&["explain", "large"]);
    assert!(
        explained.contains("the allocation `held` has 1 free on `h1`: `first` holds the rest"),
        "{explained}"
    );
    let refused = dev.sluice(&["submit", "--in", "held", "--gpus", "3", "--", "true"]);
    assert!(
        refused
            .stderr
            .contains("the allocation `held` has 2 on each"),
        "{refused:?}"
    );
    for (args, part) in [
        (&["--in", "nothing"][..], "no step `nothing`"),
        (&["--in", "first"], "is no allocation"),
        (&["--in", "held", "--pool", "two"], "leave out this field"),
        (
            &["--in", "held", "--subject", "own"],
            "belongs to subject `guest`",
        ),
    ] {
        let refused = dev.sluice(&[&["submit"], args, &["--", "true"]].concat());
        assert!(
            refused.code != 0 && refused.stderr.contains(part),
            "{args:?}: {}",
            refused.stderr
        );
    }
    dev.ok(&["cancel", "first"]);
    dev.step_in("first", &["cancelled"]);
    dev.step_in("large", &["succeeded"]);
}

#[test]
fn a_release_stops_them_first_and_others_get_the_gpus_when_they_are_gone() {
    let (_folder, dev) = held(&[]);
    submit(&dev, "one", &[], WAITS);
    submit(&dev, "waits", &[], "true");
    wrote(&dev, "one", "began");
    let next = [
        "submit",
        "--id",
        "next",
        "--subject",
        "guest",
        "--pool",
        "two",
    ];
    dev.ok(&[&next[..], &["--gpus", "2", "--", "true"]].concat());
    dev.ok(&["release", "--grace", "5m", "held"]);
    let step = dev.step_in("one", &["cancelled"]);
    assert_eq!(step["reason"]["code"], "allocation_ended", "{step}");
    let step = dev.step_in("waits", &["cancelled"]);
    assert!(
        step["reason"]["message"]
            .as_str()
            .unwrap()
            .contains("`held`"),
        "{step}"
    );
    // Long before the grace is over, because nothing is inside any more.
    dev.step_in("next", &["succeeded"]);
    assert!(dev.ok(&["logs", "one"]).contains("told"));
    assert!(dev.processes("one").is_empty() && dev.processes("held").is_empty());
    let late = dev.sluice(&["run", "--in", "held", "--", "true"]);
    assert!(
        late.stderr.contains("the allocation `held` has ended"),
        "{}",
        late.stderr
    );
}

#[test]
fn an_allocation_that_gives_way_or_expires_takes_them_along() {
    let (_folder, dev) = held(&["--grace", "2s"]);
    submit(&dev, "one", &["--retries", "3"], WAITS);
    wrote(&dev, "one", "began");
    let own = ["submit", "--id", "own", "--subject", "own", "--pool", "two"];
    let own = [&own[..], &["--gpus", "2", "--non-preemptible"]].concat();
    dev.ok(&[&own[..], &["--", "true"]].concat());
    let step = dev.step_in("one", &["preempted"]);
    assert_eq!(
        (&step["attempt"], &step["reason"]["code"]),
        (&1.into(), &"allocation_ended".into()),
        "{step}"
    );
    dev.step_in("own", &["succeeded"]);
    let ask = ["allocate", "--gpus", "2", "--pool", "two", "--id", "again"];
    dev.ok(&[&ask[..], &["--subject", "guest", "--lease", "6s"]].concat());
    dev.step_in("again", &["running"]);
    let run = dev
        .command(&[
            "run", "--in", "again", "--id", "late", "--", "sh", "-c", WAITS,
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let step = dev.step_in("late", &["cancelled"]);
    assert!(
        step["reason"]["message"]
            .as_str()
            .unwrap()
            .contains("not renewed"),
        "{step}"
    );
    assert_ne!(run.unwrap().wait().unwrap().code(), Some(0));
    let (_, again) = dev.call("GET", "/v1/allocations/again", None);
    assert_eq!(again["allocation"]["state"], "expired", "{again}");
}

#[test]
fn they_outlast_a_killed_agent_supervisor_and_coordinator_and_never_run_twice() {
    let (_folder, dev) = held(&["--lease", "10m"]);
    submit(&dev, "one", &["--gpus", "1"], WAITS);
    wrote(&dev, "one", "began");
    let main = dev.processes("one").into_iter().min();
    for daemon in [Daemon::Agent, Daemon::Supervisor, Daemon::Coordinator] {
        dev.kill(daemon);
        eventually("the cluster to take work again", || {
            let (status, node) = dev.try_call("GET", "/v1/nodes/h1", None)?;
            (status == 200 && node["state"] == "ready").then_some(())
        });
        assert_eq!(dev.processes("one").into_iter().min(), main, "{daemon:?}");
    }
    let step = dev.step_in("one", &["running"]);
    assert_eq!(step["attempt"], 1, "{step}");
    submit(&dev, "two", &["--gpus", "1"], "echo beside");
    dev.step_in("two", &["succeeded"]);
    dev.ok(&["release", "held"]);
    dev.step_in("one", &["cancelled"]);
    dev.step_in("held", &["cancelled"]);
    let said = dev.ok(&["logs", "one"]);
    assert_eq!(said.matches("began").count(), 1, "{said}");
}
