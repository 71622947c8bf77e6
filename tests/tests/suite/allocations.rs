//! Allocations of a running cluster: resources that a program elsewhere holds, renews and releases.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{Daemon, Dev, DevOptions, eventually, kill};

/// One GPU, which `own` has a share in and `guest` may borrow.
const CLUSTER: &str = "
{kind: pool, name: one}
---
{kind: policy, pool: one, subject: own, reserved: {gpu: 1}}
---
{kind: policy, pool: one, subject: guest}
---
{kind: host, name: h1, pool: one, gpus: 1, gpu_model: H100}
";

fn dev() -> (tempfile::TempDir, Dev) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    fs::write(&file, CLUSTER).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    (folder, dev)
}

/// Arguments that ask for the GPU.
fn ask<'a>(subject: &'a str, id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let first = ["allocate", "--gpus", "1", "--pool", "one"];
    [&first[..], &["--subject", subject, "--id", id], more].concat()
}

fn allocation(dev: &Dev, id: &str) -> Value {
    let (status, step) = dev.call("GET", &format!("/v1/allocations/{id}"), None);
    assert_eq!(status, 200, "{step}");
    step["allocation"].clone()
}

/// Waits for an allocation to be in a state.
fn in_state(dev: &Dev, id: &str, state: &str) -> Value {
    eventually(&format!("{id} to be {state}"), || {
        let (status, step) = dev.call("GET", &format!("/v1/allocations/{id}"), None);
        let found = (status == 200).then(|| step["allocation"].clone());
        found.filter(|it| it["state"] == state)
    })
}

#[test]
fn programs_run_inside_it_with_its_gpu_and_end_with_it() {
    let (_folder, dev) = dev();
    dev.ok(&ask("guest", "held", &[]));
    in_state(&dev, "held", "allocated");
    let inside = |script| dev.sluice(&["exec", "held", "--", "sh", "-c", script]);
    let ran = inside("echo $SLUICE_STEP_ID $CUDA_VISIBLE_DEVICES; exit 3");
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let (_, step) = dev.call("GET", "/v1/steps/held", None);
    let gpu = step["placements"][0]["gpus"][0].as_str().unwrap();
    assert_eq!(ran.stdout, format!("held {gpu}\n"));
    // Nobody else gets its GPU.
    dev.ok(&ask("guest", "next", &[]));
    let long = dev
        .command(&["exec", "held", "--", "sleep", "1000"])
        .stdin(Stdio::null())
        .spawn();
    eventually("the program to run", || {
        (dev.processes("held").len() == 2).then_some(())
    });
    assert_eq!(allocation(&dev, "next")["state"], "queued");
    let released = dev.ok(&["release", "held"]);
    assert!(released.starts_with("held: rel"), "{released}");
    in_state(&dev, "held", "released");
    in_state(&dev, "next", "allocated");
    assert!(dev.processes("held").is_empty());
    assert_eq!(long.unwrap().wait().unwrap().code(), Some(137));
    let listed = dev.ok(&["get", "allocations", "--columns", "id,state"]);
    assert!(listed.contains("held  released"), "{listed}");
    for verb in ["suspend", "requeue"] {
        let refused = dev.sluice(&[verb, "next"]);
        assert!(refused.stderr.contains("is an allocation"), "{refused:?}");
    }
}

#[test]
fn one_that_nobody_renews_ends_and_frees_its_gpu() {
    let (_folder, dev) = dev();
    dev.ok(&ask("guest", "lapsed", &[]));
    in_state(&dev, "lapsed", "allocated");
    dev.ok(&ask("guest", "kept", &["--lease", "5m"]));
    let short = ["--state", "running", "--lease", "5s"];
    let renewed = dev.ok(&[&["renew", "lapsed"], &short[..]].concat());
    assert!(renewed.contains("its holder is running"), "{renewed}");
    let step = dev.step_in("lapsed", &["stopping", "cancelled"]);
    assert_eq!(step["reason"]["code"], "not_renewed");
    dev.ok(&["release", "lapsed"]);
    in_state(&dev, "lapsed", "expired");
    in_state(&dev, "kept", "allocated");
    let late = dev.sluice(&["renew", "lapsed"]);
    assert!(
        late.stderr
            .contains("has ended (its holder did not renew it"),
        "{}",
        late.stderr
    );
}

#[test]
fn one_in_which_nothing_runs_is_released_at_once_whatever_its_grace() {
    let (_folder, dev) = dev();
    for (id, program) in [("idle", false), ("used", true)] {
        dev.ok(&ask("guest", id, &["--grace", "5m"]));
        in_state(&dev, id, "allocated");
        let command = ["exec", id, "--", "sh", "-c", HOLDS];
        let mut beside = program.then(|| Holder::start(&dev, &command));
        if let Some((_, said)) = &mut beside {
            assert!(line(said).starts_with("holds"));
        }
        let began = Instant::now();
        dev.ok(&["release", "--grace", "5m", id]);
        if let Some((holder, mut said)) = beside {
            assert_eq!(line(&mut said), "told\n");
            assert_eq!(holder.end(), Some(9));
        }
        in_state(&dev, id, "released");
        assert!(began.elapsed() < Duration::from_secs(5), "{id}");
    }
}

#[test]
fn a_renewed_one_outlasts_a_killed_coordinator() {
    let (_folder, dev) = dev();
    dev.ok(&ask("guest", "held", &[]));
    in_state(&dev, "held", "allocated");
    for _ in 0..3 {
        dev.kill(Daemon::Coordinator);
        let renew = "/v1/allocations/held:renew";
        eventually("a renewal", || {
            let answer = dev.try_call(
                "POST",
                renew,
                Some("{\"state\":\"running\",\"lease\":\"20s\"}"),
            );
            answer.filter(|(status, _)| *status == 200)
        });
    }
    let step = dev.step_in("held", &["running"]);
    assert_eq!(step["attempt"], 1, "{step}");
}

/// A program of this machine that holds an allocation.
struct Holder(Child);

impl Holder {
    fn start(dev: &Dev, args: &[&str]) -> (Self, Box<dyn BufRead>) {
        let mut child = dev
            .command(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        (Self(child), Box::new(said))
    }

    fn end(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

fn line(said: &mut dyn BufRead) -> String {
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    line
}

const HOLDS: &str =
    "trap 'echo told; exit 9' TERM; echo holds $SLUICE_ALLOCATION; while :; do sleep 0.1; done";

#[test]
fn a_holder_is_told_when_another_takes_its_share_and_releases_it() {
    let (_folder, dev) = dev();
    let args = ask("guest", "lent", &["--grace", "5m", "--", "sh", "-c", HOLDS]);
    let (holder, mut said) = Holder::start(&dev, &args);
    assert_eq!(line(&mut said), "holds lent\n");
    assert_eq!(in_state(&dev, "lent", "allocated")["lease"], "2m");
    let own = ["submit", "--id", "own", "--subject", "own", "--pool", "one"];
    let own = [&own[..], &["--gpus", "1", "--non-preemptible"]].concat();
    dev.ok(&[&own[..], &["--", "true"]].concat());
    assert_eq!(line(&mut said), "told\n");
    assert_eq!(holder.end(), Some(9));
    // Long before its grace is over.
    dev.step_in("own", &["succeeded"]);
    in_state(&dev, "lent", "preempted");
    let (_, step) = dev.call("GET", "/v1/steps/lent", None);
    assert_eq!(step["preempted_by"], "own", "{step}");
}

#[test]
fn one_whose_holder_does_not_hear_is_taken_after_its_grace() {
    let (_folder, dev) = dev();
    dev.ok(&ask("guest", "deaf", &["--grace", "1s"]));
    in_state(&dev, "deaf", "allocated");
    let own = ask("own", "own", &["--reclaim-tolerance", "none"]);
    dev.ok(&own);
    in_state(&dev, "own", "allocated");
    let taken = in_state(&dev, "deaf", "preempted");
    assert_eq!(taken["expires_at"], Value::Null);
}

#[test]
fn a_holder_ends_its_program_when_the_cluster_is_gone_for_good() {
    let (_folder, mut dev) = dev();
    let more = ["--lease", "15s", "--", "sh", "-c", HOLDS];
    let (holder, mut said) = Holder::start(&dev, &ask("guest", "held", &more));
    assert_eq!(line(&mut said), "holds held\n");
    dev.kill_dev();
    assert_eq!(line(&mut said), "told\n");
    assert_eq!(holder.end(), Some(9));
}

#[test]
fn a_holder_that_is_ended_releases_it() {
    let (_folder, dev) = dev();
    let args = ask("guest", "held", &["--", "sh", "-c", HOLDS]);
    let (holder, mut said) = Holder::start(&dev, &args);
    assert_eq!(line(&mut said), "holds held\n");
    let second = dev.sluice(&args);
    assert_eq!(second.code, 125, "{}", second.stderr);
    assert!(
        second.stderr.contains("is there already"),
        "{}",
        second.stderr
    );
    kill(holder.0.id(), Signal::SIGTERM);
    assert_eq!(line(&mut said), "told\n");
    assert_eq!(holder.end(), Some(9));
    in_state(&dev, "held", "released");
    dev.ok(&ask("own", "first", &[]));
    in_state(&dev, "first", "allocated");
    let (waits, _) = Holder::start(&dev, &ask("own", "waits", &["--", "true"]));
    in_state(&dev, "waits", "queued");
    kill(waits.0.id(), Signal::SIGTERM);
    assert_eq!(waits.end(), Some(143));
    in_state(&dev, "waits", "released");
}

/// Two licences without any host, of which `own` has a share.
const LICENCES: &str = "
{kind: pool, name: licences, hosts: none, capacity: {solver: 2}}
---
{kind: policy, pool: licences, subject: own, reserved: {solver: 2}}
---
{kind: policy, pool: licences, subject: guest}
";

#[test]
fn a_pool_without_hosts_counts_licences_and_survives_the_coordinator() {
    let (folder, dev) = dev();
    let file = folder.path().join("licences.yaml");
    fs::write(&file, LICENCES).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()]);
    let ask = |subject, id, more: &[&'static str]| {
        let first = ["allocate", "--pool", "licences", "--resource", "solver=2"];
        let args = [&first[..], &["--subject", subject, "--id", id], more].concat();
        args.into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    let sluice = |dev: &Dev, args: Vec<String>| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        dev.sluice(&args)
    };
    let ran = sluice(
        &dev,
        ask(
            "guest",
            "first",
            &["--", "sh", "-c", "echo $SLUICE_ALLOCATION"],
        ),
    );
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "first\n"),
        "{}",
        ran.stderr
    );
    let released = in_state(&dev, "first", "released");
    assert_eq!(released["expires_at"], Value::Null);
    sluice(
        &dev,
        ask("guest", "held", &["--grace", "2m", "--lease", "10m"]),
    );
    in_state(&dev, "held", "allocated");
    let (_, step) = dev.call("GET", "/v1/allocations/held", None);
    assert_eq!(
        (&step["pool"], &step["placements"]),
        (&"licences".into(), &Value::Array(Vec::new()))
    );
    for (args, part) in [
        (&["run", "--in", "held", "--", "true"][..], "has no host"),
        (
            &[
                "submit",
                "--subject",
                "own",
                "--pool",
                "licences",
                "--",
                "true",
            ],
            "runs no programs",
        ),
        (
            &["move", "node", "h1", "--pool", "licences"],
            "none can join",
        ),
        (&["delete", "pool", "licences"], "sluice release held"),
    ] {
        let refused = dev.sluice(args);
        assert!(
            refused.code != 0 && refused.stderr.contains(part),
            "{args:?}: {}",
            refused.stderr
        );
    }
    // Its owner takes it back, and the coordinator dies meanwhile.
    sluice(
        &dev,
        ask("own", "mine", &["--non-preemptible", "--lease", "10m"]),
    );
    let before = in_state(&dev, "held", "preempting");
    assert!(before["release_by"].is_string(), "{before}");
    dev.kill(Daemon::Coordinator);
    eventually("the next coordinator", || {
        dev.try_call("GET", "/v1/allocations/held", None)
    });
    in_state(&dev, "held", "preempting");
    let explained = dev.ok(&["explain", "mine"]);
    assert!(!explained.contains("no-host"), "{explained}");
    dev.ok(&["release", "held"]);
    in_state(&dev, "held", "preempted");
    in_state(&dev, "mine", "allocated");
    let explained = dev.ok(&["explain", "mine"]);
    assert!(explained.contains("in pool licences"), "{explained}");
    dev.ok(&["release", "mine"]);
    in_state(&dev, "mine", "released");
    dev.ok(&["delete", "pool", "licences"]);
}

#[test]
fn who_asks_and_releases_is_in_the_audit() {
    let (_folder, dev) = dev();
    dev.ok(&ask("own", "held", &[]));
    dev.step_in("held", &["running"]);
    dev.ok(&["renew", "held", "--lease", "10m"]);
    dev.ok(&["release", "held"]);
    let (_, page) = dev.call("GET", "/v1/events?limit=1000", None);
    let events = page["items"].as_array().unwrap();
    let audited = events.iter().filter(|event| event["type"] == "audited");
    let entries = audited.map(|event| &event["entry"]);
    let of_it = entries.filter(|entry| entry["name"] == "held");
    let verbs: Vec<&Value> = of_it.map(|entry| &entry["verb"]).collect();
    assert_eq!(verbs, ["create", "cancel"]);
    let renewed = |event: &Value| event["type"] == "renewed" && event["step"] == "held";
    assert!(
        events.iter().any(renewed),
        "a renewal is a record of its own"
    );
}
