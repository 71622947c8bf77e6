//! Nodes for admins: a host of several GPU models with the platforms that a pool declares; and settings of a node that
//! outlive its agent.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_tests::{Daemon, Dev, DevOptions, binaries, eventually};

/// Writes a host with two A100s with 80 GB, two L40S, and one unknown model.
fn mixed_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("nvml/hosts/mixed.json")
}

/// Starts the host with only steps on its GPUs: one that a stranger uses is never granted.
fn mixed() -> (Dev, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.json");
    let mut file: Value = serde_json::from_slice(&fs::read(mixed_file()).unwrap()).unwrap();
    for gpu in file["gpus"].as_array_mut().unwrap() {
        for use_of_strangers in ["processes", "memory_used_mib"] {
            gpu.as_object_mut().unwrap().remove(use_of_strangers);
        }
    }
    fs::write(&path, file.to_string()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((binaries().join("libsluice_nvml_standin.so"), path)),
        ..DevOptions::default()
    });
    (dev, folder)
}

/// Returns the UUIDs of the GPUs whose model contains this word, in the order of the file.
fn uuids(model: &str) -> Vec<String> {
    let file: Value = serde_json::from_slice(&fs::read(mixed_file()).unwrap()).unwrap();
    let gpus = file["gpus"].as_array().unwrap().clone().into_iter();
    let of_model = gpus.filter(|gpu| gpu["name"].as_str().unwrap().contains(model));
    of_model
        .map(|gpu| gpu["uuid"].as_str().unwrap().to_owned())
        .collect()
}

const PLATFORMS: &str = r#"
kind: platform
pool: default
name: big
description: 60 GB and more
selector: {gpu_memory: ">=60GB, <100GB", labels: "sluice/arch"}
---
kind: platform
pool: default
name: ada
selector: {gpu_model: l40s}
---
kind: platform
pool: default
name: unknown-model
selector: {gpu_model: NVIDIA X300-SXM7-512GB, driver: ">=580"}
---
kind: platform
pool: default
name: hopper
selector: {gpu_model: "h100, h200"}
"#;

fn apply(dev: &Dev, text: &str) {
    let file = dev.folder().join("platforms.yaml");
    fs::write(&file, text).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()]);
}

/// Returns the GPUs that a step with these flags gets, as it sees them itself.
fn granted(dev: &Dev, id: &str, flags: &[&str]) -> Vec<String> {
    let script = "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000";
    let (submit, command) = (["submit", "--id", id], ["--", "sh", "-c", script]);
    dev.ok(&[&submit[..], flags, &command].concat());
    let step = dev.step_in(id, &["running"]);
    let line = eventually("its line", || {
        Some(dev.ok(&["logs", id])).filter(|text| text.ends_with('\n'))
    });
    let mut seen: Vec<String> = line.trim().split(',').map(str::to_owned).collect();
    assert_eq!(step["placements"][0]["gpus"], json!(seen), "{line}");
    seen.sort_unstable();
    seen
}

/// Returns what `get platforms` shows of each: hosts, GPUs, used and free.
fn counts(dev: &Dev) -> Vec<(String, [u64; 4])> {
    let listed: Value = serde_json::from_str(&dev.ok(&["get", "platforms", "-o", "json"])).unwrap();
    let items = listed["items"].as_array().unwrap().iter();
    let count = |item: &Value| {
        let name = item["name"].as_str().unwrap().to_owned();
        let numbers = ["nodes", "gpus", "used", "free"];
        (name, numbers.map(|key| item[key].as_u64().unwrap()))
    };
    items.map(count).collect()
}

fn count(dev: &Dev, platform: &str) -> [u64; 4] {
    let all = counts(dev);
    let found = all.iter().find(|(name, _)| name == platform);
    found.unwrap_or_else(|| panic!("{platform}: {all:?}")).1
}

#[test]
fn each_gpu_of_a_mixed_host_is_of_its_own_platforms() {
    let (dev, _folder) = mixed();
    apply(&dev, PLATFORMS);
    for (platform, expected) in [
        ("big", [1, 2, 0, 2]),
        ("a100", [1, 2, 0, 2]),
        ("ada", [1, 2, 0, 2]),
        ("l40s", [1, 2, 0, 2]),
        ("unknown-model", [1, 1, 0, 1]),
        ("hopper", [0, 0, 0, 0]),
    ] {
        assert_eq!(count(&dev, platform), expected, "{platform}");
    }
    let big = granted(&dev, "big", &["--gpus", "2", "--platform", "big"]);
    assert_eq!(big, uuids("A100"));
    let ada = granted(&dev, "ada", &["--gpus", "1", "--platform", "ada"]);
    assert!(uuids("L40S").contains(&ada[0]), "{ada:?}");
    let odd = ["--gpus", "1", "--platform", "unknown-model"];
    assert_eq!(granted(&dev, "odd", &odd), uuids("X300"));
    assert_eq!(count(&dev, "big"), [1, 2, 2, 0]);
    assert_eq!(count(&dev, "l40s"), [1, 2, 1, 1]);
    assert_eq!(count(&dev, "unknown-model"), [1, 1, 1, 0]);
    // A GPU is left on the host, but of another platform.
    dev.ok(&[
        "submit",
        "--id",
        "late",
        "--gpus",
        "1",
        "--platform",
        "big",
        "--",
        "true",
    ]);
    let late = dev.step_in("late", &["queued"]);
    assert_eq!(late["reason"]["code"], "waiting_for_units", "{late}");
    dev.ok(&["cancel", "big"]);
    dev.step_in("late", &["succeeded"]);
    let none = dev.sluice(&["run", "--gpus", "1", "--platform", "hopper", "--", "true"]);
    assert_eq!(none.code, 125, "{none:?}");
    assert!(none.stderr.contains("platform `hopper`"), "{none:?}");
}

#[test]
fn a_list_falls_back_and_a_default_is_taken_by_who_names_none() {
    let (dev, _folder) = mixed();
    apply(&dev, PLATFORMS);
    let list = ["--gpus", "2", "--platform", "big,ada"];
    assert_eq!(granted(&dev, "first", &list), uuids("A100"));
    assert_eq!(granted(&dev, "second", &list), uuids("L40S"));
    for id in ["first", "second"] {
        dev.ok(&["cancel", id]);
        dev.step_in(id, &["cancelled"]);
    }
    apply(
        &dev,
        &format!("kind: pool\nname: default\ndefault_platform: ada\n---{PLATFORMS}"),
    );
    assert_eq!(granted(&dev, "plain", &["--gpus", "2"]), uuids("L40S"));
    let listed: Value = serde_json::from_str(&dev.ok(&["get", "platforms", "-o", "json"])).unwrap();
    let items = listed["items"].as_array().unwrap().iter();
    let default: Vec<&Value> = items
        .filter(|item| item["default"] == true)
        .map(|item| &item["name"])
        .collect();
    assert_eq!(default, ["ada"], "{listed}");
    let any = granted(&dev, "any", &["--gpus", "3", "--platform", "any"]);
    let mut others = [uuids("A100"), uuids("X300")].concat();
    others.sort_unstable();
    assert_eq!(any, others);
}

#[test]
fn labels_of_an_admin_stay_over_the_end_of_the_agent_and_of_the_coordinator() {
    let (dev, _folder) = mixed();
    let node = dev.call("GET", "/v1/nodes", None).1["items"][0].clone();
    let name = node["name"].as_str().unwrap().to_owned();
    dev.ok(&["label", "node", &name, "team=x", "rack=r7"]);
    let table = dev.ok(&["get", "nodes", "--show-labels"]);
    let mut lines = table.lines();
    assert!(lines.next().unwrap().ends_with("  LABELS"), "{table}");
    assert!(
        lines.next().unwrap().ends_with("  rack=r7,team=x"),
        "{table}"
    );
    for daemon in [Daemon::Agent, Daemon::Coordinator] {
        let before = dev.kill(daemon);
        eventually("the next one, and the node with it", || {
            let now = dev.daemon(daemon).filter(|pid| *pid != before)?;
            let (status, node) = dev.try_call("GET", &format!("/v1/nodes/{name}"), None)?;
            let ready = status == 200 && node["state"] == "ready" && now != before;
            (ready && node["labels"] == json!({"team": "x", "rack": "r7"})).then_some(())
        });
        let meant = dev.ok(&["get", "nodes", "-l", "team=x,rack in (r7)", "-o", "name"]);
        assert_eq!(meant, format!("node/{name}\n"));
        // The node takes work again once its agent is back, and still has its label.
        dev.ok(&["run", "--gpus", "1", "--", "true"]);
    }
}

#[test]
fn memory_that_a_host_does_not_limit_is_warned_of_wherever_it_is_asked_for() {
    // Steps as nobody are held by process groups alone, which limit nothing.
    let dev = Dev::with(DevOptions {
        ordinary_user: true,
        ..DevOptions::default()
    });
    let banner = dev.log();
    assert!(banner.contains("memory is not limited here"), "{banner}");
    let name = dev.ok(&["get", "nodes", "-o", "name"]);
    let node = name.trim().trim_start_matches("node/");
    let told = dev.ok(&["describe", "node", node]);
    assert!(told.contains("memory is not limited here"), "{told}");

    let words = "does not limit memory: the step may use more there than the 1GiB of memory";
    for command in ["run", "submit"] {
        let ran = dev.sluice(&[command, "--memory", "1GiB", "--", "true"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains(words), "{ran:?}");
        let ran = dev.sluice(&[command, "--", "true"]);
        assert_eq!(ran.stderr, "", "{command}");
    }
    let request = r#"{"id": "asks", "command": ["sleep", "60"], "resources": {"memory": "1GiB"}}"#;
    let (status, step) = dev.call("POST", "/v1/steps", Some(request));
    assert_eq!(status, 201, "{step}");
    assert!(
        step["warnings"][0].as_str().unwrap().contains(words),
        "{step}"
    );
    let told = dev.ok(&["describe", "step", "asks"]);
    assert!(told.contains(words), "{told}");

    let pool = dev.folder().join("pool.yaml");
    std::fs::write(&pool, "kind: pool\nname: default\nrequire: [memory]\n").unwrap();
    dev.ok(&["apply", "-f", pool.to_str().unwrap()]);
    dev.ok(&["submit", "--id", "waits", "--memory", "1GiB", "--", "true"]);
    let why = dev.ok(&["explain", "waits"]);
    assert!(
        why.contains("lacks capability memory, which the pool requires"),
        "{why}"
    );
}
