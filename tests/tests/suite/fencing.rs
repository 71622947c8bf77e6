//! Access of steps to GPU devices, from the command line down to the kernel: a step can open what it was granted and
//! nothing else; and pools that require it. The nodes are stand-ins that only root can make.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::Value;
use sluice_tests::{Dev, DevOptions, binaries};

/// Makes a device node, whether or not there is a driver for it.
fn node(path: &Path, major: u64, minor: u64) -> PathBuf {
    let mode = Mode::from_bits_truncate(0o666);
    mknod(path, SFlag::S_IFCHR, mode, makedev(major, minor)).unwrap();
    path.to_owned()
}

/// Returns a command that prints for each node in a folder whether the kernel allows opening it; only then a missing
/// driver is reported.
fn tries(folder: &Path) -> String {
    format!(
        "unset CUDA_VISIBLE_DEVICES; cd {}; for node in gpu*; do \
           if (exec 3<$node) 2>&1 | grep -q 'not permitted'; then echo $node closed; else echo $node open; fi; \
         done",
        folder.display()
    )
}

fn open_in(output: &str) -> Vec<&str> {
    let lines = output.lines();
    lines
        .filter_map(|line| line.strip_suffix(" open"))
        .collect()
}

#[test]
fn a_step_opens_the_gpus_that_it_was_granted_and_no_others() {
    if !sluice_tests::needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for minor in 0..4 {
        node(&folder.path().join(format!("gpu{minor}")), 195, minor);
    }
    let library = binaries().join("libsluice_nvml_standin.so");
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("nvml/hosts/l40sx4.json");
    let dev = Dev::with(DevOptions {
        gpus: Some((library, host)),
        ..DevOptions::default()
    });
    let gpus = dev.call("GET", "/v1/nodes", None).1["items"][0]["inventory"]["gpus"].clone();
    assert_eq!(gpus[3]["devices"], serde_json::json!(["/dev/nvidia3"]));
    dev.ok(&[
        "submit", "--id", "first", "--gpus", "1", "--", "sleep", "1000",
    ]);
    dev.step_in("first", &["running"]);
    let script = tries(folder.path());
    let ids = ["--id", "second", "--gpus", "2", "--", "sh", "-c", &script];
    let output = dev.ok(&[&["run"][..], &ids].concat());
    let step = dev.step_in("second", &["succeeded"]);
    let granted = step["placements"][0]["gpus"].as_array().unwrap();
    let all = gpus.as_array().unwrap().iter().enumerate();
    let own = all.filter(|(_, gpu)| granted.contains(&gpu["uuid"]));
    let own: Vec<String> = own.map(|(minor, _)| format!("gpu{minor}")).collect();
    assert_eq!(own.len(), 2, "{step}");
    assert_eq!(open_in(&output), own, "{output}");
    let output = dev.ok(&["run", "--", "sh", "-c", &script]);
    assert!(open_in(&output).is_empty(), "granted none: {output}");
}

#[test]
fn a_made_host_fences_the_nodes_that_stand_in_for_its_gpus() {
    if !sluice_tests::needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The numbers of /dev/zero and /dev/full.
    let nodes = [("gpu0", 5), ("gpu1", 7)].map(|(name, minor)| {
        node(&folder.path().join(name), 1, minor)
            .display()
            .to_string()
    });
    let file = folder.path().join("hosts.yaml");
    let text = format!(
        "{{kind: host, name: made, gpus: 2, gpu_model: H100, gpu_devices: [{}]}}\n",
        nodes.join(", ")
    );
    fs::write(&file, text).unwrap();
    let dev = Dev::with(DevOptions {
        files: vec![file],
        ..DevOptions::default()
    });
    let script = tries(folder.path());
    let hold = format!("{script}; exec sleep 1000");
    dev.ok(&[
        "submit", "--id", "first", "--gpus", "1", "--", "sh", "-c", &hold,
    ]);
    let output = dev.ok(&[
        "run", "--id", "second", "--gpus", "1", "--", "sh", "-c", &script,
    ]);
    let second = open_in(&output);
    let held = sluice_tests::eventually("two lines", || {
        Some(dev.ok(&["logs", "first"])).filter(|text| text.lines().count() == 2)
    });
    let mut open = [open_in(&held), second].concat();
    open.sort_unstable();
    assert_eq!(open, ["gpu0", "gpu1"], "each its own: {held}{output}");
}

#[test]
fn a_pool_gives_no_work_to_a_host_that_lacks_what_it_requires() {
    let dev = Dev::start();
    let node = || dev.call("GET", "/v1/nodes", None).1["items"][0].clone();
    let has = node()["inventory"]["capabilities"].clone();
    let has = has.as_object().unwrap();
    let (lacking, had): (Vec<_>, Vec<_>) = has.iter().partition(|(_, how)| *how == "none");
    let names = |list: &[(&String, &Value)]| -> Vec<String> {
        list.iter().map(|(name, _)| (*name).clone()).collect()
    };
    let require = |names: &[String]| {
        let file = dev.folder().join("pool.yaml");
        let text = format!(
            "{{kind: pool, name: default, require: [{}]}}\n",
            names.join(", ")
        );
        fs::write(&file, text).unwrap();
        dev.ok(&["apply", "-f", file.to_str().unwrap()])
    };
    require(&names(&had));
    assert_eq!(dev.ok(&["run", "--", "echo", "runs"]), "runs\n");
    assert!(
        dev.ok(&["describe", "pool", "default"])
            .contains("Requires:")
    );
    let Some((missing, _)) = lacking.first() else {
        // This machine has everything that a pool could require.
        return assert_eq!(had.len(), 6);
    };
    dev.ok(&["submit", "--id", "runs", "--", "sleep", "1000"]);
    dev.step_in("runs", &["running"]);
    let said = require(&[(*missing).clone()]);
    assert!(said.contains("require"), "{said}");
    dev.ok(&["submit", "--id", "waits", "--", "true"]);
    let words = format!("lacks capability {missing}, which the pool requires");
    let explained = dev.ok(&["explain", "waits"]);
    assert!(explained.contains(&words), "{explained}");
    assert_eq!(node()["lacks"], serde_json::json!([missing]));
    let listed = dev.ok(&["get", "nodes"]);
    assert!(
        listed.contains(&format!("ready,lacks:{missing}")),
        "{listed}"
    );
    assert_eq!(
        dev.step_in("runs", &["running"])["state"],
        "running",
        "it stays"
    );
    require(&[]);
    dev.step_in("waits", &["succeeded"]);
}
