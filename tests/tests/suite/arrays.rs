//! An array in a running cluster: one in twenty parts fails and is tried again, and each daemon is killed meanwhile. Each
//! part ends once, and successfully.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_tests::{Daemon, Dev, eventually, eventually_within};

use super::crash::ends;

const PARTS: usize = 100;

/// A part notes each of its runs. One in twenty fails the first time.
fn part(results: &str) -> String {
    format!(
        "echo $SLUICE_ATTEMPT >> {results}/$SLUICE_ARRAY_INDEX; \
         [ $((SLUICE_ARRAY_INDEX % 20)) != 7 ] || [ $SLUICE_ATTEMPT -gt 1 ]"
    )
}

fn step(dev: &Dev, id: &str) -> Option<Value> {
    let (status, step) = dev.try_call("GET", &format!("/v1/steps/{id}"), None)?;
    (status == 200).then_some(step)
}

fn ended(dev: &Dev, id: &str) -> Value {
    let limit = Duration::from_secs(180);
    eventually_within(limit, &format!("the end of {id}"), || {
        let over = ["succeeded", "failed", "cancelled"];
        step(dev, id).filter(|step| over.iter().any(|state| step["state"] == **state))
    })
}

#[test]
fn each_part_of_an_array_ends_once_whichever_daemon_is_killed() {
    let dev = Dev::start();
    let results = tempfile::tempdir().unwrap();
    let last = format!("0-{}", PARTS - 1);
    let command = part(results.path().to_str().unwrap());
    let flags = ["--retries", "9", "--cpus", "0.01", "--memory", "1MB"];
    let submit = ["submit", "--id", "a", "--array", &last];
    let words = ["--", "sh", "-c", &command];
    dev.ok(&[&submit[..], &flags, &words].concat());
    dev.ok(&[
        &["submit", "--id", "b", "--array", &last, "--after", "a:each"][..],
        &flags,
        &["--", "true"],
    ]
    .concat());
    for daemon in [Daemon::Coordinator, Daemon::Agent, Daemon::Supervisor] {
        std::thread::sleep(Duration::from_millis(300));
        dev.kill(daemon);
    }
    for id in ["a", "b"] {
        let array = ended(&dev, id);
        assert_eq!(array["state"], "succeeded", "{array}");
        let parts = &array["array"]["parts"];
        assert_eq!(
            (&parts["total"], &parts["succeeded"]),
            (&json!(PARTS), &json!(PARTS))
        );
    }
    let ends = ends(&dev);
    for index in 0..PARTS {
        for id in ["a", "b"] {
            assert_eq!(
                ends.get(&format!("{id}.{index}")),
                Some(&1),
                "ends of {id}.{index}"
            );
        }
        let runs = fs::read_to_string(results.path().join(index.to_string())).unwrap();
        let failed = index % 20 == 7;
        assert!(
            runs.lines().count() >= if failed { 2 } else { 1 },
            "{index}: {runs}"
        );
    }
    let listed = |query: &str| {
        let (status, page) = dev.call("GET", &format!("/v1/steps?{query}"), None);
        assert_eq!(status, 200, "{page}");
        page["items"].as_array().unwrap().len()
    };
    assert_eq!(listed("limit=1000"), 2, "an array is one line");
    assert_eq!(listed("limit=1000&array=a"), PARTS);
    assert_eq!(listed("limit=10&array=a&state=succeeded"), 10);
}

#[test]
fn an_array_and_its_parts_are_cancelled_and_refused_by_name() {
    let dev = Dev::start();
    dev.ok(&[
        "submit",
        "--id",
        "a",
        "--array",
        "0-99999%2",
        "--cpus",
        "0.1",
        "--",
        "sleep",
        "600",
    ]);
    dev.ok(&["cancel", "a.70000"]);
    assert_eq!(ended(&dev, "a.70000")["state"], "cancelled");
    let (status, unknown) = dev.call("POST", "/v1/steps/a.100000:cancel", None);
    assert_eq!(status, 404, "{unknown}");
    let message = unknown["error"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "array `a` has no part 100000: it has the indexes 0-99999; name one of them, such as `a.0`"
    );
    for command in [
        "describe step",
        "explain",
        "logs",
        "cancel",
        "requeue",
        "wait",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["a.100000"]).collect();
        let refused = dev.sluice(&words);
        assert!(
            refused.code != 0 && refused.stderr.contains(message),
            "{command}: {refused:?}"
        );
    }
    dev.ok(&["cancel", "a", "--grace", "0s"]);
    let array = ended(&dev, "a");
    assert_eq!(array["state"], "cancelled", "{array}");
    assert_eq!(array["array"]["parts"]["cancelled"], 100_000);
    for (array, way_out) in [
        ("0-9999999", "index 9999999 is above 999999"),
        ("", "it has no index"),
        ("9-3", "write `3-9`"),
        ("1-5,5", "name each index once"),
        ("0-9%0", "lets no part start"),
    ] {
        let body = json!({"command": ["true"], "array": array}).to_string();
        let (status, refused) = dev.call("POST", "/v1/steps", Some(&body));
        assert_eq!(
            (status, &refused["error"]["code"]),
            (400, &json!("invalid_array"))
        );
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(way_out), "{message}");
    }
}

#[test]
fn logs_of_an_array_count_the_parts_that_have_not_started() {
    let dev = Dev::start();
    let script = "echo $SLUICE_ARRAY_INDEX; test $SLUICE_ARRAY_INDEX = 0 || exec sleep 600";
    let submit = ["submit", "--id", "few", "--array", "0-3%1", "--cpus", "0.1"];
    dev.ok(&[&submit[..], &["--", "sh", "-c", script]].concat());
    dev.step_in("few.1", &["running"]);
    let read = eventually("the output of both", || {
        let read = dev.sluice(&["logs", "few"]);
        (read.stdout == "few.0: 0\nfew.1: 1\n").then_some(read)
    });
    let said = "2 of 4 parts of few have not started, so they have no output";
    assert!(read.stderr.contains(said), "{read:?}");
    assert_eq!(read.code, 0);
}
