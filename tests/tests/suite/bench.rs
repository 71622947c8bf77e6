//! `sluice bench`: what it measures is counted, its steps are real, and none is left when it ends, however it ends.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sluice_tests::{Dev, eventually};

/// The steps of benchmarks in some states.
fn steps(dev: &Dev, states: &str) -> Vec<Value> {
    let (status, page) = dev.call(
        "GET",
        &format!("/v1/steps?labels=sluice-bench&state={states}&limit=1000"),
        None,
    );
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().unwrap().clone()
}

const LIVE: &str = "queued,allocated,starting,running,stopping";

#[test]
fn each_measurement_is_of_as_many_steps_as_asked_for() {
    let dev = Dev::start();
    let flags = [
        "--steps",
        "20",
        "--rounds",
        "3",
        "--clients",
        "2",
        "-o",
        "json",
    ];
    let report: Value = serde_json::from_str(&dev.ok(&[&["bench"], &flags[..]].concat())).unwrap();
    let rows = |part: &str| report[part].as_array().unwrap().clone();
    let counts = |part| {
        rows(part)
            .iter()
            .map(|row| row["count"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(counts("machine")[..3], [3, 3, 3]);
    assert_eq!(counts("cluster"), [3, 3, 3, 20, 20, 20, 3]);
    let end = &rows("cluster")[2];
    assert_eq!(end["what"], "submit to end of /bin/true");
    assert!(end["median_us"].as_f64() > Some(0.0), "{end}");
    assert!(end["floor"]["ratio"].as_f64() > Some(0.0), "{end}");
    let batch = &rows("cluster")[4];
    assert!(batch["per_second"].as_f64() > Some(0.0), "{batch}");
    assert_eq!(steps(&dev, "succeeded").len(), 3 + 20 + 20);
    assert_eq!(steps(&dev, LIVE), [] as [Value; 0]);
}

#[test]
fn a_cluster_that_takes_no_step_is_told_with_its_reason() {
    let dev = Dev::start();
    let refused = dev.sluice(&["bench", "--rounds", "1", "--pool", "nope"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("was rejected: there is no pool `nope`"),
        "{refused:?}"
    );
    let refused = dev.sluice(&["bench", "--clients", "65"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("--clients"), "{refused:?}");
    assert_eq!(dev.sluice(&["bench", "-o", "name"]).code, 2);
}

#[test]
fn what_has_not_ended_is_cancelled_by_a_limit_and_by_ctrl_c() {
    let dev = Dev::start();
    dev.ok(&["cordon", &node(&dev)]);
    let late = dev.sluice(&["bench", "--rounds", "1", "--limit", "200ms"]);
    assert_eq!(late.code, 75, "{late:?}");
    assert!(
        late.stderr.contains("--limit gives it more time"),
        "{late:?}"
    );
    assert_eq!(steps(&dev, LIVE), [] as [Value; 0]);
    let bench = dev
        .command(&["bench", "--rounds", "1"])
        .stderr(Stdio::null())
        .spawn();
    let mut bench = bench.unwrap();
    eventually("a step that waits", || steps(&dev, "queued").pop());
    kill(Pid::from_raw(bench.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    assert_eq!(steps(&dev, LIVE), [] as [Value; 0]);
}

fn node(dev: &Dev) -> String {
    let (_, nodes) = dev.call("GET", "/v1/nodes", None);
    nodes["items"][0]["name"].as_str().unwrap().to_owned()
}
