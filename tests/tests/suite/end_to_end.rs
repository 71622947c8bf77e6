//! End to end: a real program from submit to exit, through every process, as a new user would run it.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{Daemon, Dev, DevOptions, eventually, is_alive, kill, processes_of};

const BOTH_STREAMS: [&str; 5] = ["run", "--", "sh", "-c", "echo hello; echo oops >&2; exit 7"];

#[test]
fn run_prints_each_stream_on_its_descriptor_and_exits_with_the_step_s_code() {
    let dev = Dev::start();
    let ran = dev.sluice(&BOTH_STREAMS);
    assert_eq!((ran.stdout.as_str(), ran.code), ("hello\n", 7), "{ran:?}");
    assert_eq!(ran.stderr, "oops\n", "quiet when piped: {ran:?}");
}

#[test]
fn run_says_one_line_in_a_log_where_the_code_does_not_tell_how_it_ended() {
    let dev = Dev::start();
    for (id, more, said, code) in [
        (
            "slow",
            &["--timeout", "1s", "--", "sleep", "1000"][..],
            "sluice: slow timed out after 1s (signal 15 (SIGTERM))",
            143,
        ),
        (
            "shot",
            &["--", "sh", "-c", "kill -9 $$"][..],
            "sluice: shot failed (signal 9 (SIGKILL)): its process was killed by signal 9, which Sluice did not send",
            137,
        ),
        (
            "huge",
            &["--gpus", "4000", "--", "true"][..],
            "error: huge was rejected",
            125,
        ),
        (
            "odd",
            &["--", "/no/such/program"][..],
            "error: odd failed",
            125,
        ),
    ] {
        let mut args = vec!["run", "--id", id];
        args.extend(more);
        let ran = dev.sluice(&args);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.starts_with(said), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn an_ordinary_user_drives_the_same_road() {
    if !sluice_tests::needs_root() {
        // A user who is not root is an ordinary user, which every other test covers.
        return;
    }
    let dev = Dev::with(DevOptions {
        ordinary_user: true,
        ..DevOptions::default()
    });
    let ran = dev.sluice(&BOTH_STREAMS);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str(), ran.code),
        ("hello\n", "oops\n", 7)
    );
    assert_eq!(dev.ok(&["run", "--", "id", "-u"]), "65534\n");
}

#[test]
fn a_step_is_told_who_it_is_and_nothing_of_its_starter() {
    let dev = Dev::start();
    let environment = dev.ok(&["run", "--id", "told", "--env", "MINE=1", "--", "env"]);
    let mut lines: Vec<&str> = environment.lines().collect();
    lines.sort_unstable();
    for expected in [
        "SLUICE_STEP_ID=told",
        "SLUICE_ATTEMPT=1",
        "SLUICE_POOL=default",
        "CUDA_VISIBLE_DEVICES=",
        "MINE=1",
    ] {
        assert!(
            lines.contains(&expected),
            "{expected} is missing from {lines:?}"
        );
    }
    for leaked in ["SLUICE_CONTEXT=", "XDG_CONFIG_HOME=", "CARGO"] {
        assert!(
            !lines.iter().any(|line| line.starts_with(leaked)),
            "{leaked} came through: {lines:?}"
        );
    }
}

#[test]
fn a_step_s_life_is_seen_from_submit_to_end() {
    let dev = Dev::start();
    let id = dev.ok(&[
        "submit",
        "--cpus",
        "0.5",
        "--memory",
        "64MiB",
        "--name",
        "tiny",
        "--",
        "sh",
        "-c",
        "echo done",
    ]);
    let id = id.trim();
    dev.ok(&["wait", id]);
    assert_eq!(dev.ok(&["logs", id]), "done\n");
    let table = dev.ok(&["get", "steps"]);
    assert!(table.lines().next().unwrap().starts_with("ID"), "{table}");
    assert!(
        table
            .lines()
            .any(|line| line.contains(id) && line.contains("succeeded")),
        "{table}"
    );
    let step: Value = serde_json::from_str(&dev.ok(&["get", "step", id, "-o", "json"])).unwrap();
    assert_eq!(step["request"]["cpu"], 0.5);
    assert_eq!(step["request"]["memory"], "64MiB");
    assert_eq!(step["exit"]["code"], 0);
    let described = dev.ok(&["describe", "step", id]);
    assert!(
        described.contains("tiny") && described.contains("succeeded"),
        "{described}"
    );

    let (_, events) = dev.call("GET", &format!("/v1/events?step={id}"), None);
    let types: Vec<&str> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["type"].as_str().unwrap())
        .collect();
    let expected = [
        "step_queued",
        "allocated",
        "starting",
        "started",
        "ended",
        "step_ended",
        "released",
    ];
    let mut seen = types.clone();
    seen.sort_unstable();
    let mut wanted = expected.to_vec();
    wanted.sort_unstable();
    assert_eq!(seen, wanted, "each fact once: {types:?}");
    assert_eq!(&types[..5], &expected[..5], "in the order of a life");
}

#[test]
fn cancel_stops_the_whole_group_even_one_that_does_not_listen() {
    let dev = Dev::start();
    let script = "trap '' TERM; sleep 1000 & echo ready; while :; do sleep 1; done";
    let id = dev.ok(&[
        "submit", "--grace", "300ms", "--id", "deaf", "--", "sh", "-c", script,
    ]);
    let id = id.trim();
    eventually("the step to be ready", || {
        (dev.ok(&["logs", id]) == "ready\n").then_some(())
    });
    let pids = dev.processes(id);
    assert!(pids.len() >= 2, "the shell and its child: {pids:?}");
    dev.ok(&["cancel", id]);
    assert_eq!(dev.step_in(id, &["cancelled"])["exit"]["signal"], 9);
    eventually("its processes to be gone", || {
        dev.processes(id).is_empty().then_some(())
    });
    let ran = dev.sluice(&["wait", id, "--for", "succeeded"]);
    assert_eq!(ran.code, 1, "another end makes success impossible: {ran:?}");
}

#[test]
fn ctrl_c_on_run_cancels_its_step() {
    let dev = Dev::start();
    let mut command = dev.command(&[
        "run",
        "--id",
        "interrupted",
        "--",
        "sh",
        "-c",
        "echo on; sleep 1000",
    ]);
    let mut run = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    dev.step_in("interrupted", &["running"]);
    kill(run.id(), Signal::SIGINT);
    let status = eventually("run to end", || run.try_wait().unwrap());
    assert_eq!(
        status.code(),
        Some(128 + 15),
        "the step's own end: a SIGTERM"
    );
    dev.step_in("interrupted", &["cancelled"]);
}

#[test]
fn a_request_that_no_host_could_hold_is_rejected_at_once_with_the_numbers() {
    let dev = Dev::start();
    let ran = dev.sluice(&["run", "--gpus", "4096", "--", "true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.stderr.contains("4096"), "the numbers: {}", ran.stderr);
    let (status, step) = dev.call(
        "POST",
        "/v1/steps",
        Some(r#"{"command":["true"],"resources":{"cpu_count":100000}}"#),
    );
    assert_eq!(
        (status, &step["state"]),
        (201, &Value::from("rejected")),
        "{step}"
    );
    assert_eq!(step["reason"]["code"], "no_host_fits");
    assert_eq!(step["reason"]["detail"]["asked"], 100_000);
}

#[test]
fn steps_wait_their_turn_and_start_when_units_are_free() {
    let dev = Dev::start();
    let (_, nodes) = dev.call("GET", "/v1/nodes", None);
    let cores = nodes["items"][0]["capacity"]["cpu"].as_u64().unwrap();
    let all = cores.to_string();
    dev.ok(&[
        "submit", "--id", "first", "--cpus", &all, "--", "sleep", "1000",
    ]);
    dev.step_in("first", &["running"]);
    dev.ok(&["submit", "--id", "second", "--cpus", "1", "--", "true"]);
    let second = dev.step_in("second", &["queued"]);
    assert_eq!(second["reason"]["code"], "waiting_for_units", "{second}");
    dev.ok(&["cancel", "first"]);
    dev.step_in("second", &["succeeded"]);
}

#[test]
fn running_steps_outlive_the_coordinator_and_the_agent() {
    let dev = Dev::start();
    let go = dev.folder().join("go");
    let script = format!(
        "i=0; while [ ! -e {} ]; do i=$((i+1)); echo $i; sleep 0.02; done; echo last",
        go.display()
    );
    let mut command = dev.command(&["run", "--id", "survivor", "--", "sh", "-c", &script]);
    let run = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    dev.step_in("survivor", &["running"]);
    let pid = dev.step_in("survivor", &["running"]);
    let process = dev.processes("survivor");
    for daemons in [
        &[Daemon::Coordinator][..],
        &[Daemon::Agent],
        &[Daemon::Coordinator, Daemon::Agent],
    ] {
        daemons.iter().for_each(|daemon| {
            dev.kill(*daemon);
        });
        dev.step_in("survivor", &["running"]);
        assert!(process.iter().any(|pid| is_alive(*pid)), "{pid}");
    }
    // A step accepted while the agent is away must start when it is back.
    std::fs::write(&go, "").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (last, counted) = lines.split_last().unwrap();
    assert_eq!(*last, "last");
    for (index, line) in counted.iter().enumerate() {
        assert_eq!(
            *line,
            (index + 1).to_string(),
            "no line is lost or repeated"
        );
    }
    let step = dev.step_in("survivor", &["succeeded"]);
    assert_eq!(step["attempts"].as_array().unwrap().len(), 1, "one attempt");
}

#[test]
fn stopping_dev_stops_its_steps() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "left-behind", "--", "sleep", "1000"]);
    dev.step_in("left-behind", &["running"]);
    let folder = dev.folder().to_owned();
    let [step] = dev.processes("left-behind")[..] else {
        panic!("one process of the step runs")
    };
    let (status, log) = dev.stop();
    assert!(status.success(), "{status:?}\n{log}");
    assert!(!is_alive(step));
    assert_eq!(processes_of(&folder, "left-behind"), Vec::<u32>::new());
}

#[test]
fn a_killed_dev_leaves_nothing_running() {
    let mut dev = Dev::start();
    dev.ok(&[
        "submit",
        "--id",
        "orphan",
        "--",
        "sh",
        "-c",
        "trap '' TERM; sleep 1000; sleep 1000",
    ]);
    dev.step_in("orphan", &["running"]);
    assert!(!dev.processes("orphan").is_empty());
    let daemons = [Daemon::Coordinator, Daemon::Agent, Daemon::Supervisor]
        .map(|daemon| dev.daemon(daemon).unwrap());
    dev.kill_dev();
    eventually("daemons and steps to be gone", || {
        let none = daemons.iter().all(|pid| !is_alive(*pid)) && dev.processes("orphan").is_empty();
        none.then_some(())
    });
}

#[test]
fn a_step_that_runs_longer_than_its_timeout_is_stopped_and_says_so() {
    let dev = Dev::start();
    let ran = dev.sluice(&[
        "run",
        "--id",
        "late",
        "--timeout",
        "500ms",
        "--",
        "sleep",
        "1000",
    ]);
    assert_eq!(ran.code, 128 + 15, "{ran:?}");
    let step = dev.step_in("late", &["failed"]);
    assert_eq!(step["reason"]["code"], "timed_out", "{step}");
    let ran = dev.sluice(&["run", "--timeout", "1h", "--", "echo", "in time"]);
    assert_eq!((ran.stdout.as_str(), ran.code), ("in time\n", 0), "{ran:?}");
}
