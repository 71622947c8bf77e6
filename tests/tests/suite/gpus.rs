//! GPUs, through a stand-in for NVIDIA's library: detected, granted by UUID, never granted twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sluice_tests::{Daemon, Dev, DevOptions, binaries, older_nvml};

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

/// Returns what `sluice detect` prints of a simulated host.
fn detect_with(library: &Path, host: &Path) -> Value {
    let output = Command::new(binaries().join("sluice"))
        .args([
            "detect",
            "-o",
            "json",
            "--config",
            "/nonexistent/agent.toml",
        ])
        .arg("--nvml-library")
        .arg(library)
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

fn detect(host: &Path) -> Value {
    detect_with(&library(), host)
}

/// Copies a host file with some fields changed, into a folder of its own.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.json");
    let mut file: Value = serde_json::from_slice(&fs::read(host(name)).unwrap()).unwrap();
    change(&mut file);
    fs::write(&path, file.to_string()).unwrap();
    (folder, path)
}

fn gpus(found: &Value) -> &Vec<Value> {
    found["gpus"].as_array().unwrap()
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

#[test]
fn every_host_is_told_apart() {
    // The file, the number of grantable GPUs, platform and memory of the first, GPUs that it reaches by NVLink.
    for (name, count, platform, mib, peers) in [
        ("a100x8.json", 8, "a100", 81_920u64, 7),
        ("h100x8.json", 8, "h100", 81_559, 7),
        ("l40sx4.json", 4, "l40s", 46_068, 0),
        ("a100-bridged.json", 2, "a100", 81_920, 1),
        ("mixed.json", 5, "a100", 81_920, 1),
    ] {
        let found = detect(&host(name));
        assert_eq!(gpus(&found).len(), count, "{name}");
        assert_eq!(found["notes"], Value::Array(vec![]), "{name}");
        let gpu = &gpus(&found)[0];
        assert_eq!(
            (&gpu["platform"], &gpu["memory_bytes"]),
            (&platform.into(), &(mib << 20).into()),
            "{name}"
        );
        assert_eq!(gpu["nvlink"].as_array().unwrap().len(), peers, "{name}");
        assert!(
            gpu["pci"].as_str().unwrap().ends_with(".0") && gpu["numa_node"].is_u64(),
            "{gpu}"
        );
        assert_eq!(gpu["ecc"], true, "{name}");
        for key in [
            "memory_used_bytes",
            "memory_free_bytes",
            "utilization_percent",
            "temperature_celsius",
            "power_milliwatts",
        ] {
            assert!(gpu["reading"][key].is_u64(), "{name}: {key}: {gpu}");
        }
    }
    let unknown = detect(&host("mixed.json"));
    let platforms: Vec<&str> = gpus(&unknown)
        .iter()
        .map(|gpu| gpu["platform"].as_str().unwrap())
        .collect();
    assert_eq!(&platforms[..4], ["a100", "a100", "l40s", "l40s"]);
    assert!(
        !platforms[4].is_empty() && !platforms[..4].contains(&platforms[4]),
        "{platforms:?}"
    );
}

#[test]
fn the_board_of_a_gpu_is_told() {
    let (_folder, path) = changed("h100x8.json", |file| {
        file["confidential_computing"] = true.into();
        let odd = serde_json::json!({
            "pcie": {"generation": 1}, "links_down": [3], "nvlink_errors": 5, "fabric_state": 2, "clock_reasons": 1u64 << 40,
            "remapped_rows": {"correctable": 2, "uncorrectable": 1, "pending": true}, "persistence": false,
            "compute_mode": 7, "mig_pending": true, "memory_temperature_c": 70, "virtualization": 1,
        });
        file["gpus"][0]["fabric_cluster"] = 0x0f.into();
        file["gpus"][0]["fabric_clique"] = 3.into();
        let gpu = file["gpus"][1].as_object_mut().unwrap();
        gpu.extend(odd.as_object().unwrap().clone());
    });
    let found = detect(&path);
    let board = &gpus(&found)[0]["board"];
    assert_eq!(board["compute_capability"], "9.0");
    assert!(
        board["serial"].is_string() && board["vbios"].is_string(),
        "{board}"
    );
    assert_eq!(
        (&board["pcie_max_generation"], &board["pcie_max_lanes"]),
        (&5.into(), &16.into())
    );
    assert_eq!(
        (&board["mig_profiles"]["1g.10gb"], &board["virtualization"]),
        (&7.into(), &"none".into())
    );
    assert_eq!(board["confidential_computing"], true);
    let domain = format!("{}.3", "0f".repeat(16));
    assert_eq!(board["nvlink_domain"], domain);
    assert_eq!(gpus(&found)[1]["board"]["nvlink_domain"], Value::Null);
    let now = &gpus(&found)[0]["reading"]["board"];
    let expected = serde_json::json!({
        "memory_temperature_celsius": 42, "sm_clock_mhz": 345, "memory_clock_mhz": 2619, "throttle_reasons": ["idle"],
        "pcie_generation": 5, "pcie_lanes": 16, "nvlinks": 18, "nvlinks_active": 18, "nvlink_errors": 0,
        "fabric": "completed", "persistence": true, "compute_mode": "default",
        "remapped_rows": {"correctable": 0, "uncorrectable": 0, "is_pending": false, "has_failed": false},
        "mig": {"is_enabled": false, "is_enabled_after_reset": false},
    });
    assert_eq!(*now, expected);
    let odd = &gpus(&found)[1];
    assert_eq!(odd["board"]["virtualization"], "passthrough");
    let expected = serde_json::json!({
        "memory_temperature_celsius": 70, "sm_clock_mhz": 345, "memory_clock_mhz": 2619,
        "throttle_reasons": ["bit_40", "idle"], "pcie_generation": 1, "pcie_lanes": 16, "nvlinks": 18, "nvlinks_active": 17,
        "nvlink_errors": 5, "fabric": "in_progress", "persistence": false, "compute_mode": "number 7",
        "remapped_rows": {"correctable": 2, "uncorrectable": 1, "is_pending": true, "has_failed": false},
        "mig": {"is_enabled": false, "is_enabled_after_reset": true},
    });
    assert_eq!(odd["reading"]["board"], expected);
}

#[test]
fn what_a_board_or_an_old_driver_does_not_tell_is_absent() {
    let folder = tempfile::tempdir().unwrap();
    let found = detect_with(&older_nvml(folder.path()), &host("a100x8.json"));
    let gpu = &gpus(&found)[0];
    assert_eq!(
        (&gpu["board"]["compute_capability"], &gpu["platform"]),
        (&"8.0".into(), &"a100".into())
    );
    assert_eq!(gpu["board"]["mig_profiles"], serde_json::json!({}));
    assert!(gpu["board"]["confidential_computing"].is_null(), "{gpu}");
    assert!(gpu["reading"]["board"]["fabric"].is_null(), "{gpu}");

    let refused = [
        "nvmlDeviceGetSerial",
        "nvmlDeviceGetVbiosVersion",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetGpuMaxPcieLinkGeneration",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetVirtualizationMode",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetPersistenceMode",
        "nvmlDeviceGetComputeMode",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkWidth",
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetGpuInstanceProfileInfoV",
    ];
    for error in ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND"] {
        let errors = refused.map(|name| (name.to_owned(), Value::from(error)));
        let errors = Value::Object(errors.into_iter().collect());
        let (_folder, path) = changed("h100x8.json", |file| file["errors"] = errors);
        let found = detect(&path);
        assert_eq!((gpus(&found).len(), notes(&found)), (8, "[]".to_owned()));
        let gpu = &gpus(&found)[0];
        let is_absent = |value: &Value| value.is_null() || *value == serde_json::json!({});
        for part in [&gpu["board"], &gpu["reading"]["board"]] {
            let all = part.as_object().unwrap();
            assert!(all.values().all(is_absent), "{error}: {part}");
        }
    }
}

#[test]
fn a_slice_of_a_vgpu_is_no_whole_gpu() {
    let slice = |name: &str, mode: u32| {
        let (_folder, path) = changed("a100x8.json", |file| {
            for gpu in file["gpus"].as_array_mut().unwrap() {
                gpu["name"] = name.into();
                gpu["memory_total_mib"] = 10_240.into();
                gpu["virtualization"] = mode.into();
            }
        });
        let found = detect(&path);
        let gpu = &gpus(&found)[0];
        (
            gpu["platform"].clone(),
            gpu["board"]["virtualization"].clone(),
        )
    };
    for name in ["GRID A100-10C", "NVIDIA A100-10C"] {
        assert_eq!(slice(name, 2), ("a100-10c".into(), "vgpu".into()));
    }
    assert_eq!(
        slice("NVIDIA A100-SXM4-80GB", 2),
        ("vgpu-a100".into(), "vgpu".into())
    );
    assert_eq!(
        slice("NVIDIA A100-SXM4-80GB", 1),
        ("a100".into(), "passthrough".into())
    );
    assert_eq!(
        slice("NVIDIA A100-SXM4-80GB", 9),
        ("a100".into(), "number 9".into())
    );
}

#[test]
fn a_cut_gpu_is_offered_by_its_instances_alone() {
    let found = detect(&host("h100-mig.json"));
    let (cut, whole): (Vec<&Value>, Vec<&Value>) =
        gpus(&found).iter().partition(|gpu| gpu["mig"].is_object());
    assert_eq!((cut.len(), whole.len()), (10, 1));
    assert_eq!(cut[0]["mig"]["profile"], "3g.40gb");
    let parents: Vec<&Value> = cut.iter().map(|gpu| &gpu["mig"]["parent"]).collect();
    assert!(
        cut.iter()
            .all(|gpu| gpu["uuid"].as_str().unwrap().starts_with("MIG-"))
    );
    assert!(!parents.contains(&&whole[0]["uuid"]));
    assert!(
        cut[0]["reading"]["temperature_celsius"].is_u64(),
        "that of its GPU: {}",
        cut[0]
    );
    assert!(
        notes(&found).contains("GPU 2 has MIG on and no instance"),
        "{}",
        notes(&found)
    );
}

#[test]
fn this_machine_is_reported_with_why_it_has_no_gpu() {
    let missing = Path::new("/nonexistent/libnvidia-ml.so.1");
    let found = detect_with(missing, missing);
    assert!(gpus(&found).is_empty() && found["driver"].is_null());
    for key in ["kernel", "os", "arch"] {
        assert!(
            found[key].as_str().is_some_and(|text| !text.is_empty()),
            "{key}: {found}"
        );
    }
    for key in ["cpus", "memory_bytes", "storage_bytes"] {
        assert!(found[key].as_u64() > Some(0), "{key}: {found}");
    }
    let capabilities = found["capabilities"].as_object().unwrap();
    let all = sluice_common::inventory::Capability::ALL.len();
    assert_eq!(capabilities.len(), all, "{found}");
    assert_ne!(capabilities["kill"], "none");
    assert!(
        notes(&found).contains("cannot be loaded"),
        "{}",
        notes(&found)
    );
}

#[test]
fn a_library_that_cannot_be_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo.so");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // The head of a library for a processor of 32 bits.
    let narrow = folder.path().join("narrow.so");
    let head = [
        &b"\x7fELF\x01\x01\x01"[..],
        &[0; 9],
        &[3, 0, 3, 0],
        &[0; 100],
    ]
    .concat();
    fs::write(&narrow, head).unwrap();
    for (library, why) in [(&fifo, "it is not a file"), (&narrow, "ELF")] {
        let found = detect_with(library, &host("l40sx4.json"));
        let notes = notes(&found);
        assert!(
            gpus(&found).is_empty() && found["gpus_unknown"].is_null(),
            "{found}"
        );
        assert!(
            notes.contains("cannot be loaded") && notes.contains(why),
            "{notes}"
        );
    }
}

#[test]
fn what_a_driver_refuses_costs_that_field_alone() {
    let refused = |errors: Value| changed("h100x8.json", |file| file["errors"] = errors);
    let all = serde_json::json!({
        "nvmlDeviceGetName": "UNKNOWN", "nvmlDeviceGetMemoryInfo_v2": "UNKNOWN", "nvmlDeviceGetPciInfo_v3": "NO_PERMISSION",
        "nvmlDeviceGetEccMode": "NOT_SUPPORTED", "nvmlDeviceGetMigMode": "NOT_SUPPORTED", "nvmlDeviceGetTemperature": "UNKNOWN",
        "nvmlDeviceGetP2PStatus": "NOT_SUPPORTED", "nvmlSystemGetDriverVersion": "UNKNOWN",
    });
    let (_folder, path) = refused(all);
    let found = detect(&path);
    assert_eq!(gpus(&found).len(), 8);
    let gpu = &gpus(&found)[0];
    assert_eq!(
        (&gpu["model"], &gpu["memory_bytes"]),
        (&"".into(), &0.into())
    );
    assert!(gpu["ecc"].is_null() && gpu["reading"]["temperature_celsius"].is_null());
    assert!(gpu["reading"]["power_milliwatts"].is_u64());
    for words in [
        "a GPU's model",
        "a GPU's memory",
        "a GPU's PCI address",
        "the driver's version",
    ] {
        assert!(notes(&found).contains(words), "{words}: {}", notes(&found));
    }
    assert!(
        !notes(&found).contains("ECC"),
        "a model that lacks it is no fault: {}",
        notes(&found)
    );

    let (_folder, path) = changed("h100x8.json", |file| {
        file["init"] = "LIB_RM_VERSION_MISMATCH".into()
    });
    let found = detect(&path);
    assert!(gpus(&found).is_empty());
    assert!(
        notes(&found).contains("different versions"),
        "{}",
        notes(&found)
    );
}

#[test]
fn an_old_driver_is_asked_in_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let old = older_nvml(folder.path());
    let found = detect_with(&old, &host("a100x8.json"));
    assert_eq!(gpus(&found).len(), 8);
    let gpu = &gpus(&found)[0];
    assert_eq!(gpu["memory_bytes"], 81_920u64 << 20, "{}", notes(&found));
    assert!(gpu["reading"]["processes"].is_array(), "{gpu}");
}

#[test]
fn a_driver_that_hangs_keeps_nobody_from_working() {
    let (_folder, path) = changed("l40sx4.json", |file| {
        file["slow_ms"] = serde_json::json!({"nvmlDeviceGetCount_v2": 20_000});
    });
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    let node = || dev.call("GET", "/v1/nodes", None).1["items"][0].clone();
    assert!(
        node()["inventory"]["notes"]
            .to_string()
            .contains("does not answer"),
        "{}",
        node()
    );
    // Its GPUs are not known, so no request for them is rejected.
    assert_eq!(node()["inventory"]["gpus_unknown"], true);
    let listed = dev.ok(&["get", "nodes"]);
    assert!(listed.contains("unknown"), "{listed}");
    dev.ok(&["submit", "--id", "all", "--gpus", "4", "--", "true"]);
    let waits = dev.step_in("all", &["queued"]);
    assert_eq!(waits["reason"]["code"], "gpus_unknown", "{waits}");
    assert_eq!(dev.ok(&["run", "--", "echo", "works"]), "works\n");
    let whole: Value = serde_json::from_slice(&fs::read(host("l40sx4.json")).unwrap()).unwrap();
    rewrite(&path, &whole);
    sluice_tests::eventually_within(Duration::from_secs(60), "four GPUs and no note", || {
        let node = node();
        let quiet = node["inventory"]["notes"] == Value::Array(vec![]);
        (node["capacity"]["gpu"] == 4 && quiet).then_some(())
    });
    assert!(node()["inventory"]["gpus_unknown"].is_null(), "{}", node());
    dev.step_in("all", &["succeeded"]);
}

#[test]
fn a_host_without_a_driver_has_no_gpu_and_one_whose_driver_fails_may_have_some() {
    let is_unknown = |found: &Value| found["gpus_unknown"] == true && gpus(found).is_empty();
    let missing = Path::new("/nonexistent/libnvidia-ml.so.1");
    assert!(!is_unknown(&detect_with(missing, missing)));
    assert!(!is_unknown(&detect(missing)), "a driver that is not loaded");
    assert!(!is_unknown(&detect(&host("none.json"))));
    for (fault, error) in [
        ("init", "LIB_RM_VERSION_MISMATCH"),
        ("init", "UNKNOWN"),
        ("gone", "UNKNOWN"),
    ] {
        let (_folder, path) = changed("l40sx4.json", |file| file[fault] = error.into());
        let found = detect(&path);
        assert!(is_unknown(&found), "{fault}: {error}: {found}");
    }
    let (_folder, path) = changed("l40sx4.json", |file| {
        file["errors"] = serde_json::json!({"nvmlDeviceGetCount_v2": "TIMEOUT"});
    });
    let found = detect(&path);
    assert!(is_unknown(&found), "{found}");
}

#[test]
fn readings_and_xids_reach_whoever_asks_and_are_no_facts() {
    let (_folder, path) = changed("l40sx4.json", |_| {});
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    let gpu = || dev.call("GET", "/v1/nodes", None).1["items"][0]["inventory"]["gpus"][1].clone();
    let reading = sluice_tests::eventually("a reading", || {
        Some(gpu()["reading"].clone()).filter(Value::is_object)
    });
    assert!(
        reading["power_milliwatts"].is_u64() && reading["xids"] == serde_json::json!({}),
        "{reading}"
    );
    let records = || {
        dev.call("GET", "/v1/events?limit=1000", None).1["items"]
            .as_array()
            .map(Vec::len)
    };
    let before = records();
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    file["gpus"][1]["xids"] = serde_json::json!([45]);
    file["gpus"][1]["temperature_c"] = 88.into();
    rewrite(&path, &file);
    sluice_tests::eventually("the XID and the heat", || {
        let reading = gpu()["reading"].clone();
        (reading["xids"]["45"] == 1 && reading["temperature_celsius"] == 88).then_some(())
    });
    assert_eq!(
        records(),
        before,
        "how a host does is not in the log of facts"
    );
    let log = fs::read_to_string(dev.data().join("logs/agent.log")).unwrap();
    assert!(log.contains("xid=45"), "{log}");
}

#[test]
fn instances_are_given_by_their_own_uuids() {
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), host("h100-mig.json"))),
        ..DevOptions::default()
    });
    let script = "echo $CUDA_VISIBLE_DEVICES";
    let line = dev.ok(&["run", "--mig", "1g.10gb:2", "--", "sh", "-c", script]);
    let uuids = granted(&line);
    assert!(
        uuids.len() == 2 && uuids.iter().all(|uuid| uuid.starts_with("MIG-")),
        "{line}"
    );
    // A GPU that is cut has one series of what only the whole GPU has.
    let series = sluice_tests::eventually("a reading", || {
        let page = dev.call("GET", "/metrics", None).1;
        let lines = page.as_str().unwrap().lines();
        let lines = lines.filter(|line| line.starts_with("sluice_gpu_mig_enabled{"));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        (!lines.is_empty()).then_some(lines)
    });
    let value = |line: &String| line.rsplit(' ').next().unwrap().to_owned();
    assert_eq!(
        series.iter().map(value).collect::<Vec<_>>(),
        ["1", "1", "0"],
        "{series:?}"
    );
    assert!(
        series.iter().all(|line| line.contains("gpu=\"GPU-")),
        "{series:?}"
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

#[test]
fn steps_with_3_and_2_and_2_gpus_each_get_those_of_one_socket() {
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), host("h100x8.json"))),
        ..DevOptions::default()
    });
    let node = the_node(&dev);
    let numa_node = |uuid: &Value| {
        let mut gpus = node["inventory"]["gpus"].as_array().unwrap().iter();
        let gpu = gpus.find(|gpu| gpu["uuid"] == *uuid).unwrap();
        gpu["numa_node"].as_u64().unwrap()
    };
    for (id, gpus, on) in [("one", "3", 0), ("two", "2", 1), ("three", "2", 1)] {
        dev.ok(&["submit", "--id", id, "--gpus", gpus, "--", "sleep", "1000"]);
        let step = dev.step_in(id, &["running"]);
        let placed = step["placements"][0]["gpus"].as_array().unwrap();
        let nodes: Vec<u64> = placed.iter().map(numa_node).collect();
        assert_eq!(nodes, vec![on; gpus.parse().unwrap()], "{id}");
    }
}

/// Rewrites a host file that the library reads.
fn rewrite(path: &Path, host: &Value) {
    let beside = path.with_extension("new");
    fs::write(&beside, host.to_string()).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// The node of a cluster of one host.
fn the_node(dev: &Dev) -> Value {
    dev.call("GET", "/v1/nodes", None).1["items"][0].clone()
}

#[test]
fn a_gpu_that_is_lost_is_shown_and_not_granted_until_it_answers() {
    let (_folder, path) = changed("l40sx4.json", |_| {});
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    let unfit = || the_node(&dev)["unfit_gpus"].clone();
    let mut short = whole.clone();
    short["gpus"][1]["lost"] = Value::Bool(true);
    rewrite(&path, &short);
    sluice_tests::eventually("a lost GPU", || {
        (unfit()[0]["fault"] == "lost").then_some(())
    });
    sluice_tests::eventually("its note", || {
        let notes = the_node(&dev)["inventory"]["notes"].to_string();
        notes.contains("GPU 1 does not answer").then_some(())
    });
    assert_eq!(the_node(&dev)["capacity"]["gpu"], 4, "no step is rejected");
    let lost = whole["gpus"][1]["uuid"].as_str().unwrap();
    let script = "echo $CUDA_VISIBLE_DEVICES";
    let output = dev.ok(&["run", "--gpus", "3", "--", "sh", "-c", script]);
    assert!(!output.contains(lost), "{output}");

    dev.ok(&["submit", "--id", "all", "--gpus", "4", "--", "true"]);
    dev.step_in("all", &["queued"]);
    rewrite(&path, &whole);
    let all = dev.step_in("all", &["succeeded"]);
    assert!(all["placements"][0].to_string().contains(lost), "{all}");
}

/// A cluster on a host with one H100, which has these MIG instances or is whole.
fn h100(instances: Option<&[&str]>) -> (tempfile::TempDir, PathBuf, Value, Dev) {
    let (folder, path) = changed("h100-mig.json", |file| {
        let whole = file["gpus"][3].clone();
        file["gpus"] = Value::from(vec![whole]);
        set_instances(file, instances);
    });
    let file = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    (folder, path, file, dev)
}

fn set_instances(file: &mut Value, instances: Option<&[&str]>) {
    let of = |uuid: &&str| serde_json::json!({"uuid": uuid, "profile": "3g.40gb"});
    file["gpus"][0]["mig"] = match instances {
        Some(uuids) => Value::from(uuids.iter().map(of).collect::<Vec<_>>()),
        None => Value::Null,
    };
}

/// Waits until the host has looked at its GPUs again and noted this.
fn noted(dev: &Dev, words: &str) {
    sluice_tests::eventually(words, || {
        let notes = the_node(dev)["inventory"]["notes"].to_string();
        notes.contains(words).then_some(())
    });
}

fn listed(dev: &Dev) -> Vec<String> {
    let node = the_node(dev);
    let gpus = node["inventory"]["gpus"].as_array().unwrap();
    let uuid = |gpu: &Value| gpu["uuid"].as_str().unwrap().to_owned();
    gpus.iter().map(uuid).collect()
}

const SLEEP: [&str; 3] = ["--", "sleep", "1000"];

#[test]
fn whole_gpus_and_slices_are_never_granted_together() {
    let (_folder, path) = changed("h100-mig.json", |file| {
        let slice = |n: u32| serde_json::json!({"uuid": format!("MIG-{n}"), "profile": "2g.20gb"});
        file["gpus"][0]["mig"] = (1..=3).map(slice).collect();
        for whole in 1..4 {
            file["gpus"][whole]["mig"] = Value::Null;
        }
    });
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path)),
        ..DevOptions::default()
    });
    dev.sluice(&["submit", "--id", "six", "--gpus", "6", "--", "true"]);
    let why = dev.step_in("six", &["rejected"])["reason"]["message"].to_string();
    assert!(why.contains("6") && why.contains("3"), "{why}");
    let granted = |ask: &[&str]| {
        let script = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
        let shown = dev.ok(&[&["run"], ask, &script].concat());
        let uuids = shown.trim().split(',').map(str::to_owned);
        uuids.collect::<Vec<String>>()
    };
    let three = granted(&["--gpus", "3"]);
    assert!(
        three.len() == 3 && three.iter().all(|uuid| uuid.starts_with("GPU-")),
        "{three:?}"
    );
    assert_eq!(granted(&["--mig", "2g.20gb"]), ["MIG-1"]);
    let two = granted(&["--mig", "2g.20gb:2"]);
    assert!(
        two.len() == 2 && two.iter().all(|uuid| uuid.starts_with("MIG-")),
        "{two:?}"
    );
    let platform = ["--platform", "h100-2g.20gb", "--mig", "2g.20gb"];
    assert_eq!(granted(&platform), ["MIG-1"]);
    dev.sluice(&["submit", "--id", "other", "--mig", "3g.40gb", "--", "true"]);
    let why = dev.step_in("other", &["rejected"])["reason"]["message"].to_string();
    assert!(why.contains("3 slices `2g.20gb`"), "{why}");
    let both = dev.sluice(&["submit", "--gpus", "1", "--mig", "2g.20gb", "--", "true"]);
    let said = "--mig: the step asks for 1 gpu as well";
    assert!(both.stderr.contains(said), "{}", both.stderr);
}

#[test]
fn a_cut_gpu_whose_mig_mode_cannot_be_read_stays_cut() {
    let (_folder, path, mut file, dev) = h100(Some(&["MIG-1", "MIG-2"]));
    dev.ok(&[&["submit", "--id", "slice", "--mig", "3g.40gb"][..], &SLEEP].concat());
    dev.step_in("slice", &["running"]);
    file["gpus"][0]["errors"] = serde_json::json!({"nvmlDeviceGetMigMode": "UNKNOWN"});
    rewrite(&path, &file);
    noted(&dev, "does not tell whether MIG is on");
    assert_eq!(listed(&dev), ["MIG-1", "MIG-2"]);
    // Nor do instances vanish that cannot be read.
    file["gpus"][0]["errors"] =
        serde_json::json!({"nvmlDeviceGetMigDeviceHandleByIndex": "TIMEOUT"});
    rewrite(&path, &file);
    noted(&dev, "some MIG instances of GPU 0 do not answer");
    assert_eq!(listed(&dev), ["MIG-1", "MIG-2"]);
    dev.step_in("slice", &["running"]);
}

#[test]
fn a_gpu_whose_mig_mode_was_never_read_is_not_offered() {
    let (_folder, path) = changed("h100-mig.json", |file| {
        file["gpus"][0]["errors"] = serde_json::json!({"nvmlDeviceGetMigMode": "UNKNOWN"});
    });
    let found = detect(&path);
    assert!(gpus(&found).iter().all(|gpu| gpu["index"] != 0), "{found}");
    let expected = "GPU 0 is not used until it tells whether MIG is on";
    assert!(notes(&found).contains(expected), "{}", notes(&found));
}

#[test]
fn a_gpu_that_is_cut_under_a_step_is_granted_when_that_step_is_gone() {
    let (_folder, path, mut file, dev) = h100(None);
    dev.ok(&[&["submit", "--id", "whole", "--gpus", "1"][..], &SLEEP].concat());
    dev.step_in("whole", &["running"]);
    set_instances(&mut file, Some(&["MIG-1", "MIG-2"]));
    rewrite(&path, &file);
    sluice_tests::eventually("the instances", || {
        (listed(&dev) == ["MIG-1", "MIG-2"]).then_some(())
    });
    dev.ok(&[&["submit", "--id", "slice", "--mig", "3g.40gb"][..], &SLEEP].concat());
    let why = dev.step_in("slice", &["queued"])["reason"]["message"].to_string();
    assert!(why.contains("step `whole` holds its whole GPU"), "{why}");
    dev.ok(&["cancel", "whole"]);
    dev.step_in("slice", &["running"]);
    // It is made whole under the step on an instance.
    set_instances(&mut file, None);
    rewrite(&path, &file);
    sluice_tests::eventually("the whole GPU", || (listed(&dev).len() == 1).then_some(()));
    dev.ok(&[&["submit", "--id", "next", "--gpus", "1"][..], &SLEEP].concat());
    dev.step_in("next", &["queued"]);
    dev.ok(&["cancel", "slice"]);
    dev.step_in("next", &["running"]);
    let unfit = &the_node(&dev)["unfit_gpus"];
    assert_eq!(*unfit, serde_json::json!([]), "no instance is left behind");
}

/// Returns why each GPU of a host is not granted, by index.
fn unfit(dev: &Dev) -> Vec<(u64, String)> {
    let node = the_node(dev);
    let all = node["unfit_gpus"].as_array().unwrap();
    let one = |gpu: &Value| {
        let message = gpu["message"].as_str().unwrap().to_owned();
        (gpu["index"].as_u64().unwrap(), message)
    };
    all.iter().map(one).collect()
}

#[test]
fn what_makes_a_gpu_unfit_keeps_it_from_being_granted_while_it_lasts() {
    let (_folder, path) = changed("h100x8.json", |_| {});
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    assert_eq!(unfit(&dev), []);
    let mut file = whole.clone();
    let faults = serde_json::json!([
        {"compute_mode": 2},
        {"remapped_rows": {"failed": true}},
        {"remapped_rows": {"pending": true}, "retired_pages": {"pending": true}},
        {"fabric_state": 2},
        {"pcie": {"width": 8}},
        {"links_down": [3]},
        {"clock_reasons": 64, "utilization": {"gpu": 90}},
        {"memory_used_mib": 20_000},
    ]);
    for (gpu, fault) in file["gpus"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .zip(faults.as_array().unwrap())
    {
        gpu.as_object_mut()
            .unwrap()
            .extend(fault.as_object().unwrap().clone());
    }
    file["gpus"][0]["persistence"] = false.into();
    rewrite(&path, &file);
    let expected = [
        "its compute mode is prohibited: run `nvidia-smi -c DEFAULT`",
        "rows of its memory could not be remapped",
        "it needs a reset to remap rows of its memory; it needs a reset to retire pages of its memory",
        "its registration with the NVLink fabric is not finished: look at the fabric manager (`systemctl status nvidia-fabricmanager`)",
        "its PCIe link has 8 of 16 lanes",
        "1 of its 18 NVLinks are down",
        "heat slows it down",
        "more than 1 GiB of its memory is in use, by no process that the driver shows",
    ];
    let expected = expected.map(|why| format!("quarantined: {why}"));
    let expected: Vec<(u64, String)> = (0..).zip(expected).collect();
    sluice_tests::eventually("eight unfit GPUs", || {
        (unfit(&dev) == expected).then_some(())
    });
    noted(&dev, "persistence mode of GPU 0 is off");
    dev.ok(&[&["submit", "--id", "a", "--gpus", "1"][..], &SLEEP].concat());
    dev.step_in("a", &["queued"]);

    // A check that cannot be made now is as it was.
    file["gpus"][1]["errors"] = serde_json::json!({"nvmlDeviceGetRemappedRows": "UNKNOWN"});
    file["gpus"][0]["compute_mode"] = 7.into();
    rewrite(&path, &file);
    sluice_tests::eventually("a mode of later drivers", || {
        unfit(&dev)[0]
            .1
            .contains("its compute mode is number 7")
            .then_some(())
    });
    assert_eq!(unfit(&dev)[1], expected[1]);

    // An admin accepts one.
    let node = the_node(&dev)["name"].as_str().unwrap().to_owned();
    dev.ok(&["uncordon", &node, "--gpu", "4"]);
    let step = dev.step_in("a", &["running"]);
    assert_eq!(step["placements"][0]["gpus"][0], whole["gpus"][4]["uuid"]);

    rewrite(&path, &whole);
    let slow = (6, "quarantined: heat slows it down".to_owned());
    sluice_tests::eventually(
        "GPUs that are fit, but for the one that was hot just now",
        || (unfit(&dev) == [slow.clone()]).then_some(()),
    );
}

#[test]
fn each_form_of_a_condition_counts() {
    let (_folder, path) = changed("h100x8.json", |_| {});
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    assert_eq!(unfit(&dev), []);
    let faults = serde_json::json!([
        {"compute_mode": 1},
        {"compute_mode": 3},
        {"fabric_state": 1},
        {"clock_reasons": 128},
        {"clock_reasons": 8},
        {"ecc": {"volatile": {"uncorrected": 2}}},
    ]);
    for (number, fault) in faults.as_array().unwrap().iter().enumerate() {
        let gpu = file["gpus"][number].as_object_mut().unwrap();
        gpu.extend(fault.as_object().unwrap().clone());
    }
    rewrite(&path, &file);
    let expected = [
        "its compute mode is exclusive to one thread: run `nvidia-smi -c DEFAULT`",
        "its compute mode is exclusive to one process: run `nvidia-smi -c DEFAULT`",
        "its registration with the NVLink fabric has not begun: look at the fabric manager (`systemctl status nvidia-fabricmanager`)",
        "power brake slows it down",
        "heat or a power brake slows it down",
        "2 errors of its memory could not be corrected",
    ];
    let expected = expected.map(|why| format!("quarantined: {why}"));
    let expected: Vec<(u64, String)> = (0..).zip(expected).collect();
    sluice_tests::eventually("six unfit GPUs", || (unfit(&dev) == expected).then_some(()));
}

#[test]
fn a_slow_pcie_link_counts_under_load_alone() {
    let (_folder, path) = changed("l40sx4.json", |file| {
        file["gpus"][0]["pcie"] = serde_json::json!({"generation": 1});
    });
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    assert_eq!(unfit(&dev), [], "an idle one saves power");
    file["gpus"][0]["utilization"] = serde_json::json!({"gpu": 50});
    rewrite(&path, &file);
    let why = "quarantined: its PCIe link runs at generation 1 of 4 under load";
    let slow = [(0, why.to_owned())];
    sluice_tests::eventually("a slow link", || (unfit(&dev) == slow).then_some(()));
    file["gpus"][0]["utilization"] = Value::Null;
    file["gpus"][0]["pcie"] = serde_json::json!({"generation": 4});
    file["gpus"][0]
        .as_object_mut()
        .unwrap()
        .remove("utilization");
    rewrite(&path, &file);
    sluice_tests::eventually("a fast link", || unfit(&dev).is_empty().then_some(()));
}

/// Returns the number of GPUs that are listed, and the number that are withheld because the driver is silent.
fn listed_and_silent(dev: &Dev) -> (u64, usize) {
    let why = "quarantined: the NVIDIA driver does not answer";
    let silent = unfit(dev).iter().filter(|(_, it)| it == why).count();
    let capacity = the_node(dev)["capacity"]["gpu"].as_u64();
    (capacity.unwrap_or(0), silent)
}

#[test]
fn a_driver_that_crashes_stops_neither_the_agent_nor_steps_without_gpus() {
    let (_folder, path) = changed("l40sx4.json", |_| {});
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    let agent = dev.daemon(Daemon::Agent);
    dev.ok(&[&["submit", "--id", "a", "--gpus", "1"][..], &SLEEP].concat());
    dev.step_in("a", &["running"]);
    let mut file = whole.clone();
    file["crashes"] = serde_json::json!(["nvmlDeviceGetCount_v2"]);
    rewrite(&path, &file);
    noted(&dev, "the process that asks the NVIDIA driver has ended");
    assert_eq!(dev.ok(&["run", "--", "echo", "works"]), "works\n");
    sluice_tests::eventually("GPUs that are not granted", || {
        (listed_and_silent(&dev) == (4, 4)).then_some(())
    });
    dev.ok(&["submit", "--id", "b", "--gpus", "1", "--", "true"]);
    dev.step_in("b", &["queued"]);
    rewrite(&path, &whole);
    dev.step_in("b", &["succeeded"]);
    dev.step_in("a", &["running"]);
    assert_eq!(the_node(&dev)["inventory"]["notes"], serde_json::json!([]));
    assert_eq!(dev.daemon(Daemon::Agent), agent, "the same agent");
}

#[test]
fn an_agent_that_starts_while_the_driver_hangs_shows_the_gpus_that_it_knew() {
    let (_folder, path) = changed("l40sx4.json", |_| {});
    let whole: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    let stored = dev.data().join("agent/driver.json");
    sluice_tests::eventually("the stored report", || stored.exists().then_some(()));
    let mut file = whole.clone();
    file["slow_ms"] = serde_json::json!({"nvmlDeviceGetCount_v2": 600_000});
    rewrite(&path, &file);
    dev.kill(Daemon::Agent);
    sluice_tests::eventually("GPUs that are known and not granted", || {
        (listed_and_silent(&dev) == (4, 4)).then_some(())
    });
    dev.ok(&["submit", "--id", "a", "--gpus", "4", "--", "true"]);
    dev.step_in("a", &["queued"]);
    assert_eq!(dev.ok(&["run", "--", "echo", "works"]), "works\n");
    rewrite(&path, &whole);
    // The process that hangs is killed after a minute.
    let done = || (listed_and_silent(&dev) == (4, 0)).then_some(());
    sluice_tests::eventually_within(Duration::from_secs(120), "an answer", done);
    dev.step_in("a", &["succeeded"]);
}

#[test]
fn what_cannot_be_true_is_dropped_and_told() {
    let (_folder, path) = changed("l40sx4.json", |file| {
        file["gpus"][0]["utilization"] = serde_json::json!({"gpu": 4000});
        file["gpus"][0]["temperature_c"] = 65_535.into();
        file["gpus"][1]["uuid"] = "".into();
        file["gpus"][2]["errors"] = serde_json::json!({"nvmlDeviceGetName": "CODE_77"});
    });
    let found = detect(&path);
    let reading = &gpus(&found)[0]["reading"];
    for key in ["utilization_percent", "temperature_celsius"] {
        assert!(reading[key].is_null(), "{key}: {reading}");
    }
    assert!(reading["power_milliwatts"].is_u64(), "{reading}");
    let indexes: Vec<&Value> = gpus(&found).iter().map(|gpu| &gpu["index"]).collect();
    assert_eq!(indexes, [0, 2, 3], "an empty UUID is no GPU");
    for words in [
        "a GPU's utilization in percent: the driver tells 4000, which cannot be true",
        "a GPU's temperature in C: the driver tells 65535, which cannot be true",
        "GPU 1 does not answer",
        "NVML's code 77, which is newer than this program",
    ] {
        assert!(notes(&found).contains(words), "{words}: {}", notes(&found));
    }
}

#[test]
fn the_number_of_replicas_follows_how_busy_their_gpus_are() {
    let (_folder, path) = changed("l40sx4.json", |_| {});
    let dev = Dev::with(DevOptions {
        gpus: Some((library(), path.clone())),
        ..DevOptions::default()
    });
    let document = "kind: service\nname: web\ncommand: [sleep, infinity]\n\
                    resources: {gpu_count: 1, min_replicas: 1, max_replicas: 2}\n\
                    autoscaling: {metric: gpu, target: 50}\n";
    let written = dev.folder().join("web.yaml");
    fs::write(&written, document).unwrap();
    dev.ok(&["apply", "-f", written.to_str().unwrap()]);
    let step = dev.step_in("web-1", &["running"]);
    let gpu = step["placements"][0]["gpus"][0].as_str().unwrap();
    let pid = sluice_tests::eventually("its process", || dev.processes("web-1").first().copied());
    let total = || dev.call("GET", "/v1/services/web", None).1["autoscaling"]["total"].clone();
    sluice_tests::eventually("a measurement", || (total() == 0.0).then_some(()));
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut gpus = file["gpus"].as_array_mut().unwrap().iter_mut();
    let busy = gpus.find(|it| it["uuid"] == gpu).unwrap();
    busy["utilization"] = serde_json::json!({"gpu": 90, "memory": 1});
    busy["processes"] = serde_json::json!([{"pid": pid}]);
    rewrite(&path, &file);
    dev.step_in("web-2", &["running"]);
    let told = dev.ok(&["describe", "service", "web"]);
    assert!(told.contains("`gpu` is "), "{told}");
    assert!([90.0, 140.0].iter().any(|it| total() == *it), "{}", total());
}
