//! Hosts with GPUs as the stand-in for NVIDIA's library shows them: a file, which a test may change while it is read.

use std::fs;
use std::path::Path;

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
