//! A hundred steps run while their agent is killed and replaced again and again and their supervisor is upgraded: none
//! is lost, none starts twice, and their output is complete to the byte.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sluice_tests::{Daemon, Dev, DevOptions, eventually, eventually_within, kill};

use crate::crash::ends;

const STEPS: u32 = 100;
/// Number of kills of the agent; every third time another copy of its program takes over.
const KILLS: u32 = 6;
/// Number of kills between upgrades of the supervisor.
const BETWEEN_UPGRADES: u32 = 2;

/// Returns the output of a step that has counted so far.
fn written(id: &str, counted: u32) -> (String, String) {
    let lines = |word: &str| -> String { (1..=counted).map(|n| format!("{word} {n}\n")).collect() };
    (lines(id) + "last\n", lines("err"))
}

/// Submits a step that counts until it may end, notes its count, and ends with a code of its own.
fn submit(dev: &Dev, number: u32) -> String {
    let id = format!("s{number}");
    let folder = dev.folder().display();
    let script = format!(
        "n=0; while [ ! -e {folder}/go ]; do n=$((n+1)); echo {id} $n; echo err $n >&2; sleep 0.3; done; \
         echo last; echo $n > {folder}/{id}; exit {}",
        code(number)
    );
    let body =
        json!({"id": id, "command": ["sh", "-c", script], "resources": {"cpu_count": 0.001}});
    let (status, answer) = dev.call("POST", "/v1/steps", Some(&body.to_string()));
    assert_eq!(status, 201, "{answer}");
    id
}

fn code(number: u32) -> u32 {
    number % 7
}

fn upgrades_seen(dev: &Dev) -> usize {
    let log = fs::read_to_string(dev.data().join("logs/supervisor.log")).unwrap_or_default();
    log.matches("upgraded=true").count()
}

/// Upgrades the supervisor to another copy of its program; the agent may be away meanwhile.
fn upgrade_supervisor(dev: &Dev) {
    let (pid, seen) = (dev.daemon(Daemon::Supervisor), upgrades_seen(dev));
    dev.replace(Daemon::Supervisor);
    kill(pid.unwrap(), Signal::SIGHUP);
    eventually("the newer supervisor", || {
        (dev.is_current(Daemon::Supervisor) && upgrades_seen(dev) > seen).then_some(())
    });
    assert_eq!(
        dev.daemon(Daemon::Supervisor),
        pid,
        "it is the same process"
    );
}

/// Waits until the installed agent reports all of them.
fn all_run(dev: &Dev) -> Option<()> {
    let (_, steps) = dev.try_call("GET", "/v1/steps?state=running&limit=1000", None)?;
    let all = steps["items"].as_array()?.len() == STEPS as usize;
    let serves = dev
        .try_call("GET", "/v1/steps/s0/logs?stream=stdout", None)?
        .0
        == 200;
    (all && serves && dev.is_current(Daemon::Agent)).then_some(())
}

fn judge(dev: &Dev, id: &str, number: u32) {
    let limit = Duration::from_secs(120);
    let step = eventually_within(limit, &format!("{id} to end"), || {
        let (_, step) = dev.try_call("GET", &format!("/v1/steps/{id}"), None)?;
        matches!(step["state"].as_str(), Some("succeeded" | "failed")).then_some(step)
    });
    assert_eq!(step["exit"]["code"], code(number), "{step}");
    assert_eq!(step["attempts"].as_array().unwrap().len(), 1, "{step}");
    let counted = fs::read_to_string(dev.folder().join(id)).unwrap();
    let (out, err) = written(id, counted.trim().parse().unwrap());
    let ran = dev.sluice(&["logs", id]);
    assert!(ran.stdout == out, "{id} wrote {out}, and there is {ran:?}");
    assert!(ran.stderr == err, "{id} wrote {err}, and there is {ran:?}");
}

#[test]
fn a_hundred_steps_outlive_the_deaths_and_upgrades_of_agent_and_supervisor() {
    let dev = Dev::with(DevOptions {
        own_programs: true,
        ..DevOptions::default()
    });
    let ids: Vec<String> = (0..STEPS).map(|number| submit(&dev, number)).collect();
    eventually("all to run", || all_run(&dev));
    for round in 1..=KILLS {
        let is_replaced = round % 3 == 0;
        if is_replaced {
            dev.replace(Daemon::Agent);
        }
        dev.kill(Daemon::Agent);
        if round % BETWEEN_UPGRADES == 0 {
            upgrade_supervisor(&dev);
        }
        eventually("the agent to be back", || all_run(&dev));
    }
    open_gate(dev.folder());
    for (number, id) in (0..STEPS).zip(&ids) {
        judge(&dev, id, number);
    }
    let ends = ends(&dev);
    assert!(ids.iter().all(|id| ends.get(id) == Some(&1)), "{ends:?}");
    let (status, log) = dev.stop();
    assert!(status.success() || status.code() == Some(130), "{log}");
}

fn open_gate(folder: &Path) {
    fs::write(folder.join("go"), "").unwrap();
}
