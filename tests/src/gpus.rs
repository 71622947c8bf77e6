//! Hosts with GPUs for the stand-in of NVIDIA's library, in a file that a test may change while it is read; and a copy
//! of the stand-in like that of older drivers.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Writes a host with so many L40S to `host.json` in `folder`; the first is held as `hold` says (`pid_file`, `used_mib`
/// and other fields of the stand-in's file).
///
/// # Panics
/// If the folder cannot be written.
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

/// Functions that drivers before 510 lack.
const NEWER: [&str; 15] = [
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetPciInfoExt",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlEventSetWait_v2",
    "nvmlSystemGetConfComputeState",
];

/// Makes the stand-in of a driver before 510 in `folder`: a copy in whose symbol table the newer functions have other
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
