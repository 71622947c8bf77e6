//! GPUs that a platform has cut into slices, on a stand-in for NVIDIA's library: by the real daemons, from the applied
//! document to the granted slice.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_tests::{Dev, DevOptions, as_starter, binaries, eventually};

const UUIDS: [&str; 2] = [
    "GPU-e1000000-0000-4000-8000-000000000000",
    "GPU-e1010000-0000-4000-8000-000000000001",
];

/// A host with H100 that are whole, and a link to the stand-in with the host file beside it, because the helper of the
/// supervisor has no variables that name one.
struct Gpus {
    folder: tempfile::TempDir,
}

impl Gpus {
    fn new(count: usize) -> Self {
        let gpus = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let standin = binaries().join("libsluice_nvml_standin.so");
        symlink(standin, gpus.library()).unwrap();
        let whole = |uuid: &&str| json!({"uuid": uuid, "name": "NVIDIA H100 80GB HBM3"});
        let all: Vec<Value> = UUIDS[..count].iter().map(whole).collect();
        gpus.write(&json!({"driver_version": "570.133.20", "gpus": all}));
        gpus
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.json")
    }

    fn read(&self) -> Value {
        serde_json::from_slice(&fs::read(self.file()).unwrap()).unwrap()
    }

    fn write(&self, host: &Value) {
        let beside = self.folder.path().join("new");
        fs::write(&beside, host.to_string()).unwrap();
        fs::rename(&beside, self.file()).unwrap();
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut host = self.read();
        change(&mut host);
        self.write(&host);
    }

    /// Profiles of a GPU's MIG devices; `None` if it is whole.
    fn slices(&self, gpu: usize) -> Option<Vec<String>> {
        let host = self.read();
        let mig = host["gpus"][gpu]["mig"].as_array()?;
        let mut found: Vec<String> = mig
            .iter()
            .map(|it| it["profile"].as_str().unwrap().to_owned())
            .collect();
        found.sort();
        Some(found)
    }

    /// Asks the helper for a layout; returns its answer.
    fn carve(&self, layout: &str) -> Value {
        let output = Command::new(binaries().join("sluice-helper"))
            .args(["carve", "--library"])
            .arg(self.library())
            .args([UUIDS[0], layout])
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A trial cluster whose only host has these GPUs, under a config with these lines.
    fn cluster(&self, config: &str) -> Dev {
        let file = self.folder.path().join("supervisor.toml");
        let library = self.library().display().to_string();
        let lines = format!("{}nvml_library = \"{library}\"\n{config}", as_starter());
        fs::write(&file, lines).unwrap();
        Dev::with(DevOptions {
            gpus: Some((self.library(), self.file())),
            variables: vec![("SLUICE_SUPERVISOR_CONFIG", file.display().to_string())],
            ..DevOptions::default()
        })
    }
}

const ALLOWED: &str = "carve_gpus = true\n";

/// Applies a platform that asks for these slices; returns what is printed.
fn apply(dev: &Dev, folder: &Path, mig: &str) -> String {
    let file = folder.join("platform.yaml");
    let text = format!(
        "kind: platform\npool: default\nname: h100\nselector: {{gpu_model: h100}}\nmig: {mig}\n"
    );
    fs::write(&file, text).unwrap();
    dev.ok(&["apply", "-f", &file.display().to_string()])
}

fn node(dev: &Dev) -> Value {
    dev.call("GET", "/v1/nodes", None).1["items"][0].clone()
}

/// Profiles of the slices that the cluster shows.
fn shown(dev: &Dev) -> Vec<String> {
    let node = node(dev);
    let gpus = node["inventory"]["gpus"].as_array().unwrap().clone();
    let profiles = gpus.iter().filter_map(|gpu| gpu["mig"]["profile"].as_str());
    profiles.map(str::to_owned).collect()
}

fn message(dev: &Dev) -> String {
    node(dev)["carvings"][0]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_platform_has_idle_gpus_cut_and_their_slices_are_granted() {
    let gpus = Gpus::new(2);
    let dev = gpus.cluster(ALLOWED);
    dev.ok(&[
        "submit", "--id", "whole", "--gpus", "1", "--", "sleep", "1000",
    ]);
    let whole = dev.step_in("whole", &["running"]);
    let held = whole["placements"][0]["gpus"][0].as_str().unwrap();
    let held = UUIDS.iter().position(|uuid| *uuid == held).unwrap();
    let said = apply(&dev, gpus.folder.path(), "[3g.40gb, 3g.40gb]");
    let plan = "1 of 2 GPUs is idle and will be cut into 2 x 3g.40gb; 1 of 2 GPUs is in use";
    assert!(said.contains(plan), "{said}");
    eventually("the slices", || {
        (shown(&dev) == ["3g.40gb"; 2]).then_some(())
    });
    let script = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
    let granted = dev.ok(&[&["run", "--mig", "3g.40gb"][..], &script].concat());
    assert!(granted.starts_with("MIG-"), "{granted}");
    assert_eq!(gpus.slices(held), None, "a step has it");
    assert!(message(&dev).contains("it is cut when step `whole` has ended"));

    dev.ok(&["cancel", "whole"]);
    eventually("the other", || (shown(&dev).len() == 4).then_some(()));
    eventually("the end", || message(&dev).is_empty().then_some(()));
    let before = gpus.read();
    let said = apply(&dev, gpus.folder.path(), "[3g.40gb, 3g.40gb]");
    assert!(said.contains("unchanged"), "{said}");
    assert_eq!(gpus.read(), before, "no command for what is there");

    apply(&dev, gpus.folder.path(), "[2g.20gb, 2g.20gb, 3g.40gb]");
    let all = ["2g.20gb", "2g.20gb", "3g.40gb"].map(str::to_owned);
    eventually("the other layout", || {
        let both = [0, 1].map(|gpu| gpus.slices(gpu));
        both.iter()
            .all(|it| it.as_deref() == Some(&all))
            .then_some(())
    });
    apply(&dev, gpus.folder.path(), "[]");
    eventually("whole GPUs", || {
        let both = [0, 1].map(|gpu| gpus.slices(gpu));
        (both == [None, None] && shown(&dev).is_empty()).then_some(())
    });
}

#[test]
fn a_failure_half_way_is_rolled_back_and_told_and_an_admin_has_it_tried_again() {
    let gpus = Gpus::new(1);
    gpus.change(|host| {
        host["errors"] = json!({"nvmlGpuInstanceCreateComputeInstance": "UNKNOWN"});
    });
    let dev = gpus.cluster(ALLOWED);
    apply(&dev, gpus.folder.path(), "[3g.40gb, 3g.40gb]");
    eventually("the failure", || {
        let said = message(&dev);
        let is_told = said.contains("nvmlGpuInstanceCreateComputeInstance (Unknown Error)");
        (is_told && said.contains("it was not cut and is as before")).then_some(())
    });
    assert_eq!(gpus.slices(0), None);
    assert_eq!(
        gpus.read()["gpus"][0]["bare_instances"],
        json!([]),
        "it was half done"
    );
    let listed = dev.ok(&["get", "nodes"]);
    assert!(listed.contains("0/1,1 not cut"), "{listed}");
    let told = dev.ok(&["describe", "node", node(&dev)["name"].as_str().unwrap()]);
    assert!(
        told.contains("GPUs to cut") && told.contains("sluice uncordon NODE --gpu N"),
        "{told}"
    );
    let granted = dev.ok(&[
        "run",
        "--gpus",
        "1",
        "--",
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES",
    ]);
    assert_eq!(granted.trim(), UUIDS[0], "it is granted again");

    gpus.change(|host| host["errors"] = json!({}));
    dev.ok(&[
        "uncordon",
        node(&dev)["name"].as_str().unwrap(),
        "--gpu",
        "0",
    ]);
    eventually("the slices", || (shown(&dev).len() == 2).then_some(()));
}

#[test]
fn a_gpu_that_cannot_be_restored_is_quarantined() {
    let gpus = Gpus::new(1);
    let dev = gpus.cluster("carve_gpus = true\ncarve_timeout = \"2s\"\n");
    gpus.change(|host| {
        host["gpus"][0]["slow_ms"] = json!({"nvmlDeviceSetMigMode": 60_000});
    });
    apply(&dev, gpus.folder.path(), "[7g.80gb]");
    // The mode was never changed, so it is as before.
    eventually("the failure", || {
        message(&dev)
            .contains("did not answer in time")
            .then_some(())
    });
    assert_eq!(gpus.slices(0), None);

    gpus.change(|host| {
        host["gpus"][0]["slow_ms"] = json!({});
        host["errors"] = json!({
            "nvmlGpuInstanceCreateComputeInstance": "UNKNOWN",
            "nvmlGpuInstanceDestroy": "UNKNOWN",
        });
    });
    dev.ok(&[
        "uncordon",
        node(&dev)["name"].as_str().unwrap(),
        "--gpu",
        "0",
    ]);
    eventually("the quarantine", || {
        let unfit = dev.ok(&["describe", "node", node(&dev)["name"].as_str().unwrap()]);
        unfit.contains("nor made as before").then_some(())
    });
}

#[test]
fn a_host_that_does_not_allow_it_says_so() {
    let gpus = Gpus::new(1);
    let dev = gpus.cluster("");
    let said = apply(&dev, gpus.folder.path(), "[3g.40gb, 3g.40gb]");
    assert!(
        said.contains("set carve_gpus = true in supervisor.toml"),
        "{said}"
    );
    assert!(
        message(&dev).contains("platform `h100` asks for 2 x 3g.40gb: the host does not allow")
    );
    assert_eq!(gpus.slices(0), None);
    let file = gpus.folder.path().join("no.yaml");
    let text = "kind: platform\npool: default\nname: h100\nselector: {gpu_memory: '>=80GB'}\nmig: [7g.80gb]\n";
    fs::write(&file, text).unwrap();
    let refused = dev.sluice(&["apply", "-f", &file.display().to_string()]);
    assert!(
        refused.stderr.contains("no longer tell `gpu_memory`"),
        "{}",
        refused.stderr
    );
}

#[test]
fn the_helper_cuts_a_gpu_as_asked_and_tells_why_not() {
    let gpus = Gpus::new(1);
    for layout in [
        "3g.40gb,3g.40gb",
        "2g.20gb,2g.20gb,3g.40gb",
        "1g.10gb",
        "none",
        "whole",
    ] {
        assert_eq!(gpus.carve(layout), Value::Null, "{layout}");
        let profiles = match layout {
            "whole" => None,
            "none" => Some(vec![]),
            layout => Some(layout.split(',').map(str::to_owned).collect()),
        };
        assert_eq!(gpus.slices(0), profiles);
    }
    // A GPU has room for two halves, and each of four slices begins where the other does.
    assert_eq!(gpus.carve("4g.40gb,4g.40gb"), "no_room");
    assert_eq!(gpus.carve("whole"), Value::Null);
    assert_eq!(gpus.carve("5g.60gb"), json!({"not_offered": "5g.60gb"}));
    gpus.change(|host| {
        host["gpus"][0]["errors"] = json!({"nvmlDeviceSetMigMode": "NO_PERMISSION"})
    });
    let refused = "the driver refuses nvmlDeviceSetMigMode (Insufficient Permissions)";
    assert_eq!(gpus.carve("7g.80gb"), json!({"refused": refused}));
    gpus.change(|host| {
        host["gpus"][0]["errors"] = json!({});
        host["gpus"][0]["mig_needs_reset"] = true.into();
    });
    assert_eq!(gpus.carve("7g.80gb"), "needs_reset");
    assert_eq!(gpus.read()["gpus"][0]["mig_pending"], true);
    assert_eq!(gpus.carve("whole"), Value::Null);
    assert_eq!(gpus.read()["gpus"][0]["mig_pending"], Value::Null);
    gpus.change(|host| {
        host["gpus"][0]["mig_needs_reset"] = false.into();
        host["gpus"][0]["processes"] = json!([{"pid": 7, "used_bytes": 1}]);
    });
    assert_eq!(gpus.carve("7g.80gb"), json!({"in_use": "1 processes"}));
}
