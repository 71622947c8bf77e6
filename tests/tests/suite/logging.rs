//! Logs of the daemons: every event once, in the requested format, and never a secret.

mod page;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use sluice_tests::{Daemon, Dev, DevOptions, binaries, eventually};

const DAEMONS: [&str; 3] = ["sluice-coordinator", "sluice-agent", "sluice-supervisor"];

fn log(data: &Path, daemon: &str) -> String {
    fs::read_to_string(data.join(format!("logs/{daemon}.log"))).unwrap()
}

/// Starts a cluster that keeps its state in `data` and logs as `variables` say.
fn dev(data: &Path, variables: &[(&'static str, &str)]) -> Dev {
    Dev::with(DevOptions {
        data: Some(data.to_owned()),
        variables: variables
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
        ..DevOptions::default()
    })
}

/// Counts the lines with all of `parts`.
fn count(log: &str, parts: &[&str]) -> usize {
    log.lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)))
        .count()
}

#[test]
fn each_event_of_a_step_and_its_host_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let dev = dev(&data, &[]);
    assert_eq!(
        dev.sluice(&["run", "--id", "one", "--", "sh", "-c", "exit 7"])
            .code,
        7
    );
    let huge = r#"{"id":"huge","command":["true"],"resources":{"gpu_count":4000}}"#;
    assert_eq!(dev.call("POST", "/v1/steps", Some(huge)).0, 201);
    let (status, _) = dev.stop();
    assert!(status.success());
    let coordinator = log(&data, "coordinator");
    for parts in [
        &["store opened", "seq=0"][..],
        &["coordinator started", "epoch=1"],
        &["node joined", "cpus="],
        &["node is ready"],
        &["node linked", "node=", "from="],
        &["step accepted", "step=one", "subject=dev"],
        &[
            "step allocated",
            "step=one",
            "attempt=1",
            "pool=default",
            "node=",
        ],
        &["step started", "step=one", "attempt=1", "pid="],
        &[
            "step ended",
            "step=one",
            "attempt=1",
            "state=failed",
            "exit_code=7",
            "duration_ms=",
        ],
        &[
            "step rejected",
            "step=huge",
            "reason=exceeds_pool_capacity",
            "why=",
        ],
    ] {
        assert_eq!(count(&coordinator, parts), 1, "{parts:?}:\n{coordinator}");
    }
    assert_eq!(count(&coordinator, &["step=one"]), 4, "{coordinator}");
    let agent = log(&data, "agent");
    for parts in [
        &["linked to the coordinator", "address="][..],
        &["supervisor found"],
        &["attempt started", "step=one", "attempt=1", "node=", "pid="],
        &[
            "attempt ended",
            "step=one",
            "attempt=1",
            "exit_code=7",
            "duration_ms=",
        ],
    ] {
        assert_eq!(count(&agent, parts), 1, "{parts:?}:\n{agent}");
    }
    let supervisor = log(&data, "supervisor");
    for what in ["process started", "process ended"] {
        let parts = [what, "step=one", "attempt=1"];
        assert_eq!(count(&supervisor, &parts), 1, "{supervisor}");
    }
}

#[test]
fn a_peer_that_goes_and_comes_is_two_lines_however_often_it_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let dev = dev(&data, &[]);
    let said = |what: &str, times: usize| {
        eventually(what, || {
            (count(&log(&data, "agent"), &[what]) >= times).then_some(())
        });
    };
    for (daemon, lost, found) in [
        (Daemon::Supervisor, "supervisor lost", "supervisor found"),
        (
            Daemon::Coordinator,
            "link to the coordinator lost",
            "linked to the coordinator",
        ),
    ] {
        for round in 1..=2 {
            dev.kill(daemon);
            said(lost, round);
            said(found, round + 1);
        }
        assert_eq!(count(&log(&data, "agent"), &[lost]), 2);
        assert_eq!(count(&log(&data, "agent"), &[found]), 3);
    }
    let reopened = || {
        let log = log(&data, "coordinator");
        (count(&log, &["store opened", "seq="]) == 3).then_some(())
    };
    eventually("the store to be opened three times", reopened);
}

#[test]
fn json_lines_are_objects_with_node_step_and_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let dev = dev(
        &data,
        &[("SLUICE_LOG_FORMAT", "json"), ("SLUICE_LOG", "debug")],
    );
    dev.ok(&["run", "--id", "one", "--", "true"]);
    dev.stop();
    let found = |daemon: &str, message: &str| -> Value {
        let log = log(&data, daemon);
        let parsed = log.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            for key in ["time", "level", "message", "target"] {
                assert!(line[key].is_string(), "{key}: {line}");
            }
            line
        });
        let lines: Vec<Value> = parsed.filter(|line| line["message"] == message).collect();
        assert_eq!(lines.len(), 1, "{message}: {log}");
        lines[0].clone()
    };
    let host = found("agent", "attempt started");
    let started = found("coordinator", "step started");
    for line in [&host, &started, &found("supervisor", "process started")] {
        assert_eq!(
            (&line["step"], &line["attempt"]),
            (&"one".into(), &1.into()),
            "{line}"
        );
        assert_eq!(line["level"], "INFO");
    }
    assert!(host["node"].is_string() && host["node"] == started["node"]);
    assert_eq!(found("coordinator", "step allocated")["pool"], "default");
    let linked = found("coordinator", "node linked");
    assert_eq!(linked["node"], host["node"], "from the session's span");
    let log = log(&data, "coordinator");
    let submit = [
        "\"call answered\"",
        "\"POST\"",
        "\"/v1/steps\"",
        "\"status\":201",
    ];
    assert_eq!(count(&log, &submit), 1, "{log}");
}

#[test]
fn a_filter_or_a_form_that_cannot_be_read_stops_the_start_and_is_named() {
    for name in DAEMONS {
        for (variable, value, said) in [
            (
                "SLUICE_LOG",
                "info,sluice_agent=loud",
                "`sluice_agent=loud`",
            ),
            ("SLUICE_LOG", "debgu", "did you mean `debug`?"),
            ("SLUICE_LOG_FORMAT", "yaml", "`yaml`"),
        ] {
            let mut command = Command::new(binaries().join(name));
            command.env(variable, value).stdin(Stdio::null());
            let ran = command.args(some_flags(name)).output().unwrap();
            let stderr = String::from_utf8(ran.stderr).unwrap();
            assert!(!ran.status.success(), "{name} {value}: {stderr}");
            assert!(stderr.contains(said), "{name} {value}: {stderr}");
            let way_out = if variable == "SLUICE_LOG" {
                "such as `info,sluice_coordinator"
            } else {
                "`text`, `json` or `auto`"
            };
            assert!(stderr.contains(way_out), "{name} {value}: {stderr}");
        }
    }
}

/// Returns flags with which a daemon would start, and fail, if its log config were valid.
fn some_flags(name: &str) -> [&'static str; 2] {
    match name {
        "sluice-supervisor" => ["--state-dir", "/dev/null/nowhere"],
        _ => ["--config", "/dev/null/nowhere"],
    }
}

#[test]
fn the_journal_gets_priorities_and_no_times_and_nobody_else_does() {
    let folder = tempfile::tempdir().unwrap();
    for name in DAEMONS {
        let path = folder.path().join(name);
        let run = |stream: &str, form: &str| {
            let file = File::create(&path).unwrap();
            let here = file.metadata().unwrap();
            let stream = match stream {
                "ours" => format!("{}:{}", here.dev(), here.ino()),
                other => other.to_owned(),
            };
            let mut command = Command::new(binaries().join(name));
            command.env("JOURNAL_STREAM", stream).stderr(file);
            command.arg("--log-format").arg(form).args(some_flags(name));
            assert!(!command.status().unwrap().success());
            fs::read_to_string(&path).unwrap()
        };
        let journal = run("ours", "auto");
        assert!(journal.starts_with("<3>cannot "), "{name}: {journal}");
        for (stream, form) in [("1:2", "auto"), ("ours", "text")] {
            let plain = run(stream, form);
            let (time, rest) = plain.split_once(' ').unwrap();
            assert!(
                time.ends_with('Z') && rest.starts_with("ERROR cannot "),
                "{plain}"
            );
            assert!(!plain.contains('\u{1b}'), "no colours in a file: {plain}");
        }
        let json: Value = serde_json::from_str(&run("ours", "json")).unwrap();
        assert_eq!(json["level"], "ERROR");
    }
}

#[test]
fn no_secret_reaches_a_log_an_event_or_a_description() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let dev = dev(&data, &[("SLUICE_LOG", "trace")]);
    let mut secrets = [
        "by-flag",
        "by-call",
        "rejected",
        "never-started",
        "wrong-token",
        "in-query",
    ]
    .map(|kind| format!("s3cret-{kind}-k8v2"))
    .to_vec();
    let [flag, call, rejected, unstarted, token, query] =
        [0, 1, 2, 3, 4, 5].map(|at| secrets[at].clone());

    let variable = format!("PASSWORD={flag}");
    let run = [
        "run",
        "--id",
        "one",
        "--env",
        &variable,
        "--",
        "sh",
        "-c",
        "test -n \"$PASSWORD\"",
    ];
    dev.ok(&run);
    for (id, command, value, resources) in [
        ("two", r#"["sleep","1000"]"#, &call, "{}"),
        ("three", r#"["true"]"#, &rejected, r#"{"gpu_count":4000}"#),
        ("four", r#"["/no/such/program"]"#, &unstarted, "{}"),
    ] {
        let body = format!(
            r#"{{"id":"{id}","command":{command},"env":{{"PASSWORD":"{value}"}},"resources":{resources}}}"#
        );
        assert_eq!(dev.call("POST", "/v1/steps", Some(&body)).0, 201);
    }
    dev.step_in("two", &["running"]);
    dev.step_in("four", &["failed"]);
    // Every daemon reads again what it knows of the running step.
    for daemon in [Daemon::Supervisor, Daemon::Agent, Daemon::Coordinator] {
        dev.kill(daemon);
        eventually("the daemon to be back", || dev.daemon(daemon));
    }
    call_with(&dev, &token, &query);
    eventually("a node", || {
        let (_, nodes) = dev.try_call("GET", "/v1/nodes", None)?;
        (nodes["items"][0]["state"] == "ready").then_some(())
    });
    dev.ok(&["cancel", "two"]);
    dev.step_in("two", &["cancelled"]);

    secrets.push(dev.token());
    secrets.extend(private_keys(&data));
    let mut told = vec![
        (
            "get events".to_owned(),
            dev.ok(&["get", "events", "-o", "json"]),
        ),
        (
            "/metrics".to_owned(),
            dev.call("GET", "/metrics", None).1.to_string(),
        ),
    ];
    for step in ["one", "two", "three", "four"] {
        told.push((step.to_owned(), dev.ok(&["describe", "step", step])));
    }
    assert!(told.iter().any(|(_, text)| text.contains("PASSWORD=***")));
    assert!(told[0].1.contains("PASSWORD"), "events name the variables");
    let (_, words) = dev.stop();
    told.push(("dev".to_owned(), words));
    for daemon in ["coordinator", "agent", "supervisor"] {
        let log = log(&data, daemon);
        assert!(
            count(&log, &["step=two"]) > 0,
            "{daemon} says what it does: {log}"
        );
        told.push((daemon.to_owned(), log));
    }
    for (place, text) in &told {
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "{place} tells {secret}");
        }
    }
}

/// Makes a call with a wrong token, and another in the query.
fn call_with(dev: &Dev, token: &str, query: &str) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .into();
    let url = format!("http://{}/v1/steps?token={query}", dev.http);
    let status = eventually("an answer", || {
        let request = agent
            .get(&url)
            .header("authorization", format!("Bearer {token}"));
        request.call().ok().map(|answer| answer.status().as_u16())
    });
    assert_eq!(status, 401);
}

/// Returns a line from the middle of each private key below `dir`.
fn private_keys(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut places = vec![dir.to_owned()];
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            if entry.is_dir() {
                places.push(entry);
            } else if entry
                .extension()
                .is_some_and(|extension| extension == "key")
            {
                let text = fs::read_to_string(entry).unwrap();
                // Some are not PEM.
                let line = text.lines().nth(1).unwrap_or(&text);
                found.push(line.trim().to_owned());
            }
        }
    }
    assert!(
        found.len() >= 2,
        "the keys of the coordinator and of the node"
    );
    found
}
