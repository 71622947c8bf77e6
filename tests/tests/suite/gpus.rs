//! GPUs, seen through a stand-in for NVIDIA's library: detected, granted by UUID, never given twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sluice_tests::{Dev, DevOptions, binaries};

fn library() -> PathBuf {
    let path = binaries().join("libsluice_nvml_standin.so");
    assert!(
        path.exists(),
        "{} was not built: run `cargo build --workspace`",
        path.display()
    );
    path
}

fn host(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("nvml/hosts")
        .join(name)
}

fn detect(host: &Path) -> Value {
    let output = Command::new(binaries().join("sluice-agent"))
        .args([
            "detect",
            "--config",
            "/nonexistent/agent.toml",
            "--nvml-library",
        ])
        .arg(library())
        .env("SLUICE_NVML_STANDIN", host)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn notes(inventory: &Value) -> String {
    inventory["notes"].to_string()
}

#[test]
fn what_the_library_says_is_what_is_reported() {
    let found = detect(&host("h100x8.json"));
    assert_eq!(found["driver"], "570.133.20");
    let gpus = found["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 8);
    assert_eq!(gpus[3]["model"], "NVIDIA H100 80GB HBM3");
    assert_eq!(gpus[3]["memory_bytes"], 81_559u64 << 20);
    assert_eq!(gpus[3]["index"], 3);
    assert_eq!(found["notes"], Value::Array(vec![]));
    assert_eq!(detect(&host("none.json"))["gpus"], Value::Array(vec![]));
}

#[test]
fn a_lost_gpu_is_left_out_with_a_note_and_a_missing_driver_leaves_a_cpu_only_host() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.json");
    let mut file: Value = serde_json::from_slice(&fs::read(host("l40sx4.json")).unwrap()).unwrap();
    file["gpus"][2]["lost"] = Value::Bool(true);
    fs::write(&path, file.to_string()).unwrap();
    let found = detect(&path);
    let indexes: Vec<u64> = found["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indexes, [0, 1, 3]);
    assert!(
        notes(&found).contains("GPU 2 does not answer"),
        "{}",
        notes(&found)
    );

    let found = detect(&folder.path().join("nothing.json"));
    assert_eq!(found["gpus"], Value::Array(vec![]));
    assert!(
        found["cpus"].as_u64().unwrap() > 0 && notes(&found).contains("driver is not loaded"),
        "{found}"
    );
}

fn granted(output: &str) -> Vec<String> {
    output.trim().split(',').map(str::to_owned).collect()
}

#[test]
fn steps_get_gpus_by_uuid_and_never_share_one() {
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), host("h100x8.json"))),
        ..DevOptions::default()
    });
    let mut seen: Vec<String> = Vec::new();
    for id in ["one", "two", "three"] {
        let script = "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000";
        dev.ok(&[
            "submit", "--id", id, "--gpus", "2", "--", "sh", "-c", script,
        ]);
        let step = dev.step_in(id, &["running"]);
        let line = sluice_tests::eventually("its line", || {
            Some(dev.ok(&["logs", id])).filter(|text| text.ends_with('\n'))
        });
        let uuids = granted(&line);
        assert_eq!(uuids.len(), 2, "{line}");
        assert_eq!(step["placements"][0]["gpus"], Value::from(uuids.clone()));
        seen.extend(uuids);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 6, "no GPU is given twice: {seen:?}");

    let ran = dev.sluice(&["submit", "--id", "four", "--gpus", "4", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        dev.step_in("four", &["queued"])["reason"]["code"],
        "waiting_for_units"
    );
    dev.ok(&["cancel", "one"]);
    dev.step_in("four", &["succeeded"]);
    assert_eq!(
        dev.sluice(&["run", "--gpus", "9", "--", "true"]).code,
        125,
        "nine of eight never"
    );
    assert_eq!(
        dev.ok(&["run", "--", "sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]"]),
        "[]\n",
        "none asked, none seen"
    );
}

/// Rewrites a host file under the library that reads it.
fn rewrite(path: &Path, host: &Value) {
    let beside = path.with_extension("new");
    fs::write(&beside, host.to_string()).unwrap();
    fs::rename(&beside, path).unwrap();
}

#[test]
fn a_gpu_that_is_lost_leaves_the_capacity_and_comes_back_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.json");
    let whole: Value = serde_json::from_slice(&fs::read(host("l40sx4.json")).unwrap()).unwrap();
    rewrite(&path, &whole);
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    let capacity = || {
        let (_, nodes) = dev.call("GET", "/v1/nodes", None);
        nodes["items"][0]["capacity"]["gpu"].as_u64()
    };
    assert_eq!(capacity(), Some(4));

    let mut short = whole.clone();
    short["gpus"][1]["lost"] = Value::Bool(true);
    rewrite(&path, &short);
    sluice_tests::eventually("three GPUs", || (capacity() == Some(3)).then_some(()));
    let lost = whole["gpus"][1]["uuid"].as_str().unwrap();
    let output = dev.ok(&[
        "run",
        "--gpus",
        "3",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ]);
    assert!(!output.contains(lost), "{output}");

    rewrite(&path, &whole);
    sluice_tests::eventually("four GPUs", || (capacity() == Some(4)).then_some(()));
    let output = dev.ok(&[
        "run",
        "--gpus",
        "4",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ]);
    assert!(output.contains(lost), "{output}");
}
