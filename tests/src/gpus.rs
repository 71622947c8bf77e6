//! Hosts with GPUs as the stand-in for NVIDIA's library shows them: a file, which a test may change while it is read. And that
//! library as older drivers have it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// So many L40S, the first of which is held as `hold` says (`pid_file`, `used_mib` and what else the stand-in's file
/// takes). The library reads it from `host.json` in `folder`.
///
/// # Panics
/// Where the folder cannot be written.
pub fn host_of_l40s(folder: &Path, gpus: usize, hold: &Value) -> Value {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("nvml/hosts/l40sx4.json");
    let text = fs::read(source).expect("the stand-in's hosts are there");
    let mut file: Value = serde_json::from_slice(&text).expect("they are JSON");
    let all = file["gpus"].as_array_mut().expect("with GPUs");
    all.truncate(gpus);
    file["gpus"][0]["holds"] = json!([hold]);
    fs::write(folder.join("host.json"), file.to_string()).expect("the folder can be written");
    file
}

/// What drivers before 510 lack.
const NEWER: [&str; 13] = [
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetPciInfoExt",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlEventSetWait_v2",
];

/// The stand-in as drivers before 510 have the library, in `folder`: a copy in whose table of symbols the newer ones have other
/// names, so that the loader does not find them.
///
/// # Panics
/// If the stand-in was not built, or lacks one of them itself.
pub fn older_nvml(folder: &Path) -> PathBuf {
    let library = crate::binaries().join("libsluice_nvml_standin.so");
    let mut bytes = fs::read(&library).expect("the stand-in was built: `cargo build --workspace`");
    for name in NEWER {
        let symbol = [b"\0", name.as_bytes(), b"\0"].concat();
        let found: Vec<usize> = bytes
            .windows(symbol.len())
            .enumerate()
            .filter_map(|(at, text)| (text == symbol).then_some(at))
            .collect();
        assert!(!found.is_empty(), "{name} is no symbol of {library:?}");
        for at in found {
            bytes[at + 1] = b'-';
        }
    }
    let older = folder.join("libsluice_nvml_standin_old.so");
    fs::write(&older, bytes).expect("the folder can be written");
    older
}
