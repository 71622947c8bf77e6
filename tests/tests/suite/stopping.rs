//! Steps that are stopped, and stopped again with a shorter grace period.

use serde_json::Value;
use sluice_tests::{Dev, DevOptions, eventually};

/// Script that prints each deadline that it gets, and does not end.
const DEAF: &str =
    "trap '' TERM; echo ready; while :; do cat $SLUICE_NOTICE_FILE 2>/dev/null; sleep 0.05; done";

/// Returns the deadlines that it got, each once.
fn deadlines(dev: &Dev) -> Vec<String> {
    let read = dev.ok(&["logs", "deaf"]);
    let notices = read
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let deadline = |notice: Value| notice["deadline"].as_str().unwrap().to_owned();
    let mut deadlines: Vec<String> = notices.map(deadline).collect();
    deadlines.dedup();
    deadlines
}

#[test]
fn a_second_cancel_with_a_shorter_grace_hurries_a_step_that_does_not_hear() {
    let dev = Dev::with(DevOptions::default());
    dev.ok(&[
        "submit", "--id", "deaf", "--grace", "10m", "--", "sh", "-c", DEAF,
    ]);
    eventually("it to be ready", || {
        let said = dev.ok(&["logs", "deaf"]);
        said.contains("ready").then_some(())
    });
    dev.ok(&["cancel", "deaf"]);
    eventually("it to be asked", || {
        (deadlines(&dev).len() == 1).then_some(())
    });
    dev.ok(&["cancel", "deaf"]);
    dev.ok(&["cancel", "--grace", "1h", "deaf"]);
    let (_, step) = dev.call("GET", "/v1/steps/deaf", None);
    assert_eq!(step["state"], "stopping", "neither was sooner");
    dev.ok(&["cancel", "--grace", "9m", "deaf"]);
    let deadlines = eventually("it to be told anew", || {
        Some(deadlines(&dev)).filter(|read| read.len() == 2)
    });
    // Both are in UTC, so their texts sort by time.
    assert!(deadlines[1] < deadlines[0], "{deadlines:?}");
    let told = dev.ok(&["explain", "deaf"]);
    assert!(told.contains("its grace ends at"), "{told}");
    dev.ok(&["cancel", "--grace", "0s", "deaf"]);
    let step = dev.step_in("deaf", &["cancelled"]);
    assert_eq!(step["exit"]["signal"], 9, "{step}");
    eventually("nothing of it to be left", || {
        dev.processes("deaf").is_empty().then_some(())
    });
}
