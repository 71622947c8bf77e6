//! The stand-in for NVIDIA's library, tested through external readers: `nvml-wrapper` and NVIDIA's own binding for
//! Python. The library reads one host per process, so each test runs itself again in a process of its own.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    EccCounter, MemoryError, P2pCapabilitiesIndex, P2pStatus, TemperatureSensor,
};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};
use serde_json::{Value, json};
use sluice_tests::{binaries, older_nvml, python_with};

/// Environment variable with the host file; set in the process of a test's own.
const FILE: &str = "SLUICE_NVML_STANDIN";
const MIB: u64 = 1 << 20;
/// Longest time of a call that should return at once, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("nvml")
}

fn library(name: &str) -> PathBuf {
    let path = binaries().join(name);
    assert!(path.exists(), "{path:?}: run `cargo build --workspace`");
    path
}

fn open(library: &Path) -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(library.as_os_str()).init()
}

/// The host of a test in its own process.
struct NvmlHost {
    path: PathBuf,
    json: Value,
}

impl NvmlHost {
    /// Changes the host while the library is loaded.
    fn change(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.json);
        write(&self.path, &self.json);
    }

    fn nvml(&self) -> Nvml {
        open(&library("libsluice_nvml_standin.so")).unwrap()
    }
}

fn write(path: &Path, host: &Value) {
    let beside = path.with_extension("new");
    fs::write(&beside, host.to_string()).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// In a process of the test's own: returns its host. Otherwise runs the test in one, on a copy of this host, and
/// returns none.
fn alone(test: &str, host: &str) -> Option<NvmlHost> {
    if let Some(path) = env::var_os(FILE) {
        let path = PathBuf::from(path);
        let json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        return Some(NvmlHost { path, json });
    }
    let scratch = tempfile::tempdir().unwrap();
    let copy = scratch.path().join(host);
    fs::copy(folder().join("hosts").join(host), &copy).unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("nvml::{test}"), "--nocapture"])
        .env(FILE, &copy)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{host}: {said}\n{words}");
    assert!(said.contains("1 passed"), "{test} did not run: {said}");
    None
}

fn gpus(nvml: &Nvml) -> Vec<Device<'_>> {
    let count = nvml.device_count().unwrap();
    (0..count)
        .map(|index| nvml.device_by_index(index).unwrap())
        .collect()
}

#[test]
fn every_host_file_is_what_is_read() {
    let mut names: Vec<_> = fs::read_dir(folder().join("hosts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "a100-bridged.json",
            "a100x8.json",
            "h100-mig.json",
            "h100x8.json",
            "l40sx4.json",
            "mixed.json",
            "none.json"
        ]
    );
    for name in names {
        let Some(host) = alone("every_host_file_is_what_is_read", &name) else {
            continue;
        };
        let nvml = host.nvml();
        assert_eq!(
            nvml.sys_driver_version().unwrap(),
            host.json["driver_version"]
        );
        let described = host.json["gpus"].as_array().unwrap();
        let gpus = gpus(&nvml);
        assert_eq!(gpus.len(), described.len());
        for (gpu, described) in gpus.iter().zip(described) {
            is_as_described(&nvml, gpu, described);
        }
        return;
    }
}

fn is_as_described(nvml: &Nvml, gpu: &Device<'_>, described: &Value) {
    let uuid = gpu.uuid().unwrap();
    assert_eq!(uuid, described["uuid"]);
    assert_eq!(gpu.name().unwrap(), described["name"]);
    let memory_mib = match described["name"].as_str().unwrap() {
        "NVIDIA A100-SXM4-80GB" | "NVIDIA A100 80GB PCIe" => 81_920,
        "NVIDIA H100 80GB HBM3" => 81_559,
        "NVIDIA L40S" => 46_068,
        _ => described["memory_total_mib"].as_u64().unwrap(),
    };
    let memory = gpu.memory_info().unwrap();
    assert_eq!(memory.total, memory_mib * MIB);
    assert_eq!(memory.free + memory.used + memory.reserved, memory.total);

    let index = gpu.index().unwrap();
    let by_uuid = nvml.device_by_uuid(uuid.clone()).unwrap();
    assert_eq!(by_uuid.index().unwrap(), index);
    let pci = gpu.pci_info().unwrap();
    let by_pci = nvml.device_by_pci_bus_id(pci.bus_id).unwrap();
    assert_eq!(by_pci.uuid().unwrap(), uuid);

    assert!(gpu.temperature(TemperatureSensor::Gpu).unwrap() > 20);
    assert!(gpu.power_usage().unwrap() < gpu.enforced_power_limit().unwrap());
    assert!(gpu.is_ecc_enabled().unwrap().currently_enabled);
    assert!(matches!(gpu.fan_speed(0), Err(NvmlError::NotSupported)));
    // Only if a GPU is a NUMA node itself.
    assert!(matches!(gpu.numa_node_id(), Err(NvmlError::NotSupported)));
    assert_eq!(gpu.memory_affinity(1, 0).unwrap()[0].count_ones(), 1);
}

#[test]
fn a_cut_gpu_shows_its_devices_and_hides_how_busy_it_is() {
    let test = "a_cut_gpu_shows_its_devices_and_hides_how_busy_it_is";
    let Some(host) = alone(test, "h100-mig.json") else {
        return;
    };
    let nvml = host.nvml();
    let gpus = gpus(&nvml);
    let modes: Vec<u32> = gpus
        .iter()
        .map(|gpu| gpu.mig_mode().unwrap().current)
        .collect();
    assert_eq!(modes, [1, 1, 1, 0]);
    let devices = |gpu: &Device<'_>| -> Vec<String> {
        let max = gpu.mig_device_count().unwrap();
        assert_eq!(max, 7);
        let found = (0..max).filter_map(|index| gpu.mig_device_by_index(index).ok());
        found.map(|device| device.name().unwrap()).collect()
    };
    let cut = ["3g.40gb", "2g.20gb", "1g.10gb"];
    let cut = cut.map(|profile| format!("NVIDIA H100 80GB HBM3 MIG {profile}"));
    assert_eq!(devices(&gpus[0]), cut);
    assert_eq!(devices(&gpus[1]).len(), 7);
    assert!(devices(&gpus[2]).is_empty() && devices(&gpus[3]).is_empty());
    assert!(matches!(
        gpus[2].mig_device_by_index(0),
        Err(NvmlError::NotFound)
    ));
    assert!(matches!(
        gpus[0].utilization_rates(),
        Err(NvmlError::NotSupported)
    ));
    assert!(gpus[3].utilization_rates().is_ok());

    let part = gpus[0].mig_device_by_index(1).unwrap();
    assert!(part.mig_is_mig_device_handle().unwrap());
    assert!(!gpus[0].mig_is_mig_device_handle().unwrap());
    assert_eq!(
        part.mig_parent_device().unwrap().uuid().unwrap(),
        gpus[0].uuid().unwrap()
    );
    let uuid = part.uuid().unwrap();
    assert_eq!(uuid, host.json["gpus"][0]["mig"][1]["uuid"]);
    assert_eq!(
        nvml.device_by_uuid(uuid.clone()).unwrap().uuid().unwrap(),
        uuid
    );
    let memory = part.memory_info().unwrap();
    assert_eq!((memory.total, memory.used), (20_000 * MIB, 1024 * MIB));
    let attributes = part.attributes().unwrap();
    assert_eq!(
        (
            attributes.gpu_instance_slice_count,
            attributes.memory_size_mb
        ),
        (2, 20_000)
    );
    assert!(matches!(
        part.temperature(TemperatureSensor::Gpu),
        Err(NvmlError::NotSupported)
    ));

    let of_gpu = gpus[0].running_compute_processes().unwrap();
    let of_part = part.running_compute_processes().unwrap();
    assert_eq!(of_part, of_gpu);
    assert_eq!(
        (of_part[0].pid, of_part[0].gpu_instance_id),
        (4242, Some(3))
    );
    let other = gpus[0].mig_device_by_index(0).unwrap();
    assert!(other.running_compute_processes().unwrap().is_empty());
}

#[test]
fn links_lead_to_switches_or_across_a_bridge() {
    let test = "links_lead_to_switches_or_across_a_bridge";
    for (name, links, far_ends) in [
        (
            "h100x8.json",
            18,
            vec!["0000:C4", "0000:C5", "0000:C6", "0000:C7"],
        ),
        ("a100-bridged.json", 12, vec!["0000:27"]),
        ("l40sx4.json", 0, vec![]),
    ] {
        let Some(host) = alone(test, name) else {
            continue;
        };
        if host.path.file_name() != Some(OsStr::new(name)) {
            continue;
        }
        let nvml = host.nvml();
        let gpus = gpus(&nvml);
        let active = |link: &u32| gpus[0].link_wrapper_for(*link).is_active().unwrap_or(false);
        assert_eq!((0..36).filter(active).count(), links);
        let mut found: Vec<String> = (0..links as u32)
            .map(|link| {
                let pci = gpus[0].link_wrapper_for(link).remote_pci_info().unwrap();
                pci.bus_id[4..11].to_owned()
            })
            .collect();
        found.sort();
        found.dedup();
        assert_eq!(found, far_ends);
        let peers = gpus[0].p2p_status(&gpus[1], P2pCapabilitiesIndex::NvLink);
        assert_eq!(matches!(peers, Ok(P2pStatus::Ok)), links > 0);
        return;
    }
}

#[test]
fn faults_are_answered_by_their_names_and_go_when_the_file_says_so() {
    let test = "faults_are_answered_by_their_names_and_go_when_the_file_says_so";
    let Some(mut host) = alone(test, "l40sx4.json") else {
        return;
    };
    let nvml = host.nvml();
    let gpus = gpus(&nvml);
    host.change(|host| {
        host["errors"] = json!({"nvmlDeviceGetPowerUsage": "NO_PERMISSION"});
        host["absent"] = json!(["nvmlDeviceGetEccMode"]);
        host["gpus"][1]["errors"] = json!({"nvmlDeviceGetTemperature": "NOT_SUPPORTED"});
        host["gpus"][2]["lost"] = json!(true);
        host["gpus"][3]["slow_ms"] = json!({"nvmlDeviceGetUUID": 300});
    });
    assert!(matches!(
        gpus[0].power_usage(),
        Err(NvmlError::NoPermission)
    ));
    let absent = gpus[0].is_ecc_enabled().map(|_| ()).unwrap_err();
    assert!(absent.to_string().contains("function"), "{absent}");
    let temperature = |gpu: usize| gpus[gpu].temperature(TemperatureSensor::Gpu);
    assert!(temperature(0).is_ok());
    assert!(matches!(temperature(1), Err(NvmlError::NotSupported)));
    assert!(matches!(temperature(2), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(2), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_count().unwrap(), 4);
    let asked = Instant::now();
    gpus[3].uuid().unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(300));

    host.change(|host| host["gpus"][2]["lost"] = json!(false));
    assert!(temperature(2).is_ok());
    host.change(|host| host["gone"] = json!("DRIVER_NOT_LOADED"));
    assert!(matches!(temperature(0), Err(NvmlError::DriverNotLoaded)));
    assert!(matches!(
        open(&library("libsluice_nvml_standin.so")),
        Err(NvmlError::DriverNotLoaded)
    ));
    host.change(|host| {
        host["gone"] = Value::Null;
        host["init"] = json!("LIB_RM_VERSION_MISMATCH");
    });
    assert!(temperature(0).is_ok());
    assert!(matches!(
        open(&library("libsluice_nvml_standin.so")),
        Err(NvmlError::LibRmVersionMismatch)
    ));
    // A misspelt function is an error of the test.
    host.change(|host| host["absent"] = json!(["nvmlDeviceGetEccMood"]));
    assert!(matches!(temperature(0), Err(NvmlError::Unknown)));
}

#[test]
fn a_file_that_is_no_host_is_an_unknown_error_until_it_is_mended() {
    let test = "a_file_that_is_no_host_is_an_unknown_error_until_it_is_mended";
    let Some(mut host) = alone(test, "h100-mig.json") else {
        return;
    };
    let nvml = host.nvml();
    let whole = host.json.clone();
    for (place, value) in [
        ("/gpus/0/temperatur_c", json!(80)),
        ("/gpus/0/name", json!("NVIDIA Nobody Knows")),
        ("/gpus/0/uuid", whole["gpus"][1]["uuid"].clone()),
        ("/gpus/0/memory_total_mib", json!(u64::MAX)),
        ("/gpus/0/pci", json!("1B:00")),
        ("/gpus/0/mig/0/profile", json!("9g.10gb")),
        ("/gpus/0/mig/0/uuid", json!("GPU-1")),
        ("/gpus/0/xids", json!([{"xid": 31, "mig": 3}])),
        (
            "/gpus/0/errors",
            json!({"nvmlDeviceGetName": "NOT_AN_ERROR"}),
        ),
        ("/bridges", json!([[0, 4]])),
        ("/gone", json!("SUCCESS")),
    ] {
        let (parent, field) = place.rsplit_once('/').unwrap();
        host.change(|host| host.pointer_mut(parent).unwrap()[field] = value);
        let count = nvml.device_count();
        assert!(
            matches!(count, Err(NvmlError::Unknown)),
            "{place}: {count:?}"
        );
        host.change(|host| host.clone_from(&whole));
        assert_eq!(nvml.device_count().unwrap(), 4, "{place}");
    }
}

#[test]
fn handles_mean_the_same_gpu_when_others_go() {
    let test = "handles_mean_the_same_gpu_when_others_go";
    let Some(mut host) = alone(test, "l40sx4.json") else {
        return;
    };
    let nvml = host.nvml();
    let gpus = gpus(&nvml);
    host.change(|host| drop(host["gpus"].as_array_mut().unwrap().remove(0)));
    assert!(matches!(gpus[0].uuid(), Err(NvmlError::GpuLost)));
    assert_eq!(gpus[3].uuid().unwrap(), host.json["gpus"][2]["uuid"]);
    assert_eq!(gpus[3].index().unwrap(), 2);
}

#[test]
fn memory_and_errors_are_counted_as_the_file_has_them() {
    let test = "memory_and_errors_are_counted_as_the_file_has_them";
    let Some(mut host) = alone(test, "l40sx4.json") else {
        return;
    };
    let nvml = host.nvml();
    let gpu = nvml.device_by_index(0).unwrap();
    host.change(|host| {
        host["gpus"][0]["processes"] =
            json!([{"pid": 7, "used_bytes": 100 * MIB}, {"pid": 8}, {"pid": 9, "graphics": true}]);
        host["gpus"][0]["ecc"] = json!({
            "volatile": {"corrected": 2, "uncorrected": 1},
            "aggregate": {"corrected": 10},
        });
    });
    assert_eq!(gpu.memory_info().unwrap().used, 100 * MIB);
    let processes = gpu.running_compute_processes().unwrap();
    let processes: Vec<_> = processes
        .iter()
        .map(|process| (process.pid, &process.used_gpu_memory))
        .collect();
    assert_eq!(
        processes,
        [
            (7, &UsedGpuMemory::Used(100 * MIB)),
            (8, &UsedGpuMemory::Unavailable)
        ]
    );
    assert_eq!(gpu.running_graphics_processes().unwrap()[0].pid, 9);
    let errors = |kind, counter| gpu.total_ecc_errors(kind, counter).unwrap();
    assert_eq!(errors(MemoryError::Corrected, EccCounter::Volatile), 2);
    assert_eq!(errors(MemoryError::Corrected, EccCounter::Aggregate), 12);
    assert_eq!(errors(MemoryError::Uncorrected, EccCounter::Aggregate), 1);

    // More than its processes hold: an invisible user.
    host.change(|host| host["gpus"][0]["memory_used_mib"] = json!(5000));
    assert_eq!(gpu.memory_info().unwrap().used, 5000 * MIB);
    host.change(|host| host["gpus"][0]["ecc"] = json!({"enabled": false}));
    let off = gpu.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile);
    assert!(matches!(off, Err(NvmlError::NotSupported)));
}

/// Returns an event set that listens to a GPU.
fn listening<'nvml>(nvml: &'nvml Nvml, gpu: &Device<'nvml>) -> EventSet<'nvml> {
    let set = nvml.create_event_set().unwrap();
    let kinds = EventTypes::CRITICAL_XID_ERROR | EventTypes::DOUBLE_BIT_ECC_ERROR;
    gpu.register_events(kinds, set).unwrap()
}

#[test]
fn an_event_is_told_once_to_each_who_asked() {
    let test = "an_event_is_told_once_to_each_who_asked";
    let Some(mut host) = alone(test, "h100-mig.json") else {
        return;
    };
    host.change(|host| host["gpus"][3]["xids"] = json!([13]));
    let nvml = host.nvml();
    let gpu = nvml.device_by_index(3).unwrap();
    let first = listening(&nvml, &gpu);
    let second = listening(&nvml, &gpu);
    let elsewhere = listening(&nvml, &nvml.device_by_index(0).unwrap());
    // Earlier errors count as reported.
    assert!(matches!(first.wait(0), Err(NvmlError::Timeout)));
    let asked = Instant::now();
    assert!(matches!(first.wait(200), Err(NvmlError::Timeout)));
    assert!(asked.elapsed() >= Duration::from_millis(200));

    let long = SOON.as_millis() as u32;
    let told = std::thread::scope(|threads| {
        threads.spawn(|| host.change(|host| host["gpus"][3]["xids"] = json!([13, 79, 48])));
        first.wait(long).unwrap().event_data
    });
    assert_eq!(told, Some(XidError::Value(79)));
    for set in [&first, &second] {
        let mut left = Vec::new();
        while let Ok(event) = set.wait(0) {
            assert_eq!(event.device.uuid().unwrap(), gpu.uuid().unwrap());
            left.push(event.event_data);
        }
        assert_eq!(left.last(), Some(&Some(XidError::Value(48))));
    }
    assert!(matches!(elsewhere.wait(0), Err(NvmlError::Timeout)));

    host.change(|host| host["gpus"][3]["ecc"] = json!({"volatile": {"uncorrected": 1}}));
    let event = second.wait(long).unwrap();
    assert_eq!(
        (event.event_type, event.event_data),
        (EventTypes::DOUBLE_BIT_ECC_ERROR, None)
    );
    host.change(|host| host["gpus"][3]["lost"] = json!(true));
    assert!(matches!(second.wait(long), Err(NvmlError::GpuLost)));
    assert!(matches!(elsewhere.wait(0), Err(NvmlError::Timeout)));
}

#[test]
fn an_older_library_lacks_what_came_later() {
    let test = "an_older_library_lacks_what_came_later";
    let Some(_host) = alone(test, "a100x8.json") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let nvml = open(&older_nvml(folder.path())).unwrap();
    let gpu = nvml.device_by_index(7).unwrap();
    assert_eq!(gpu.name().unwrap(), "NVIDIA A100-SXM4-80GB");
    assert_eq!(gpu.mig_mode().unwrap().current, 0);
    let lacks = |error: NvmlError| matches!(error, NvmlError::FailedToLoadSymbol(_));
    assert!(lacks(gpu.memory_info().unwrap_err()));
    assert!(lacks(gpu.running_compute_processes().unwrap_err()));
    assert!(lacks(gpu.numa_node_id().unwrap_err()));
    assert!(lacks(listening(&nvml, &gpu).wait(0).unwrap_err()));
}

/// Version of NVIDIA's binding for which `check.py` was written.
const BINDING: &str = "nvidia-ml-py==13.615.71";

#[test]
fn nvidia_s_own_binding_reads_every_host() {
    let python = python_with(&BINDING.replace("==", "-"), BINDING)
        .unwrap_or_else(|why| panic!("{BINDING} cannot be installed: {why}"));
    let loaded = tempfile::tempdir().unwrap();
    for (kind, file) in [
        ("new", library("libsluice_nvml_standin.so")),
        ("old", older_nvml(loaded.path())),
    ] {
        let folder = loaded.path().join(kind);
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(file, folder.join("libnvidia-ml.so.1")).unwrap();
        let output = Command::new(&python)
            .arg(self::folder().join("check.py"))
            .arg(self::folder().join("hosts"))
            .arg(kind)
            .env("LD_LIBRARY_PATH", &folder)
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {words}");
        assert!(words.contains("OK"), "{kind}: nothing was checked: {words}");
    }
}
