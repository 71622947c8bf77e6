//! Fuzz targets for files that the agent reads: its config and its stored state. `fuzz/host.rs` covers what
//! the host says, `fuzz/orders.rs` the content of peers' messages, `sluice-codec` their bytes.

mod host;
mod orders;

use std::fs;

use sluice_common::id::BootId;
use sluice_fuzz::{Fuzz, place_for_files};

use crate::config::{Overrides, RawConfig};
use crate::credentials_dir::CredentialsDir;
use crate::epoch::EpochFile;
use crate::gpu_file::GpuFile;

fn is_harmless(said: &str) {
    assert!(!said.chars().any(char::is_control), "{said:?}");
}

#[test]
fn the_config() {
    let words = [
        "coordinators = [\"a:1\"]",
        "node = \"n1\"",
        "pool = \"p\"",
        "[labels]",
        "[reserve]",
        "cpu_count = ",
        "memory = \"8GiB\"",
        "tls = { ca = \"a\", cert = \"b\", key = \"c\" }",
        "address = \"\"",
        "'''",
        "\"\"\"",
        "gpu_release_timeout = \"30s\"",
        "suspend_limit = \"1m\"",
        "log_format = \"json\"",
        "log_filter = \"info,a[b{c=d}]=trace\"",
        "join_file = ",
    ];
    let dir = tempfile::tempdir_in(place_for_files()).unwrap();
    let path = dir.path().join("agent.toml");
    Fuzz::new("agent-config").words(&words).run(|input| {
        fs::write(&path, input).unwrap();
        match RawConfig::read(&path) {
            Ok(raw) => {
                if let Err(error) = raw.check(Overrides::default()) {
                    is_harmless(&error.to_string());
                }
            }
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("agent.toml"), "{said:?}");
                is_harmless(&said);
            }
        }
    });
}

/// The first byte selects the file.
#[test]
fn kept_files() {
    let words = [
        "\"boot_id\":\"boot\"",
        "\"gpus\":{",
        "\"GPU-a\":",
        "\"idle_bytes\":",
        "\"held\":",
        "\"pids\":[",
        "\"sick\":",
        "\"left_by\":[\"a.1\"]",
        "\"cluster\":\"c1\"",
        "\"counter\":",
        "\"coordinators\":[",
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
    ];
    let dir = tempfile::tempdir_in(place_for_files()).unwrap();
    let tls = dir.path().join("tls");
    fs::create_dir(&tls).unwrap();
    let boot = BootId::new("boot").unwrap();
    Fuzz::new("agent-state").words(&words).run(|input| {
        let Some((kind, bytes)) = input.split_first() else {
            return;
        };
        match kind % 4 {
            0 => {
                fs::write(dir.path().join("gpus.json"), bytes).unwrap();
                let file = GpuFile::new(dir.path(), boot.clone());
                let kept = file.load();
                file.save(&kept);
                assert_eq!(file.load(), kept);
            }
            1 => epoch(dir.path(), bytes),
            2 => {
                fs::write(tls.join("join.json"), bytes).unwrap();
                let _addresses = CredentialsDir::new(dir.path()).coordinators();
            }
            _ => identity(dir.path(), bytes),
        }
    });
}

fn epoch(dir: &std::path::Path, bytes: &[u8]) {
    fs::write(dir.join("epoch.json"), bytes).unwrap();
    let file = EpochFile::new(dir);
    match file.load() {
        Ok(epoch) => {
            let epoch = epoch.expect("the file is there");
            file.save(&epoch).unwrap();
            assert_eq!(file.load().unwrap(), Some(epoch));
        }
        Err(error) => assert!(error.to_string().contains("epoch.json"), "{error}"),
    }
}

fn identity(dir: &std::path::Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt;
    for file in ["tls/ca.pem", "tls/node.pem"] {
        fs::write(dir.join(file), bytes).unwrap();
        fs::set_permissions(dir.join(file), fs::Permissions::from_mode(0o600)).unwrap();
    }
    if let Err(error) = CredentialsDir::new(dir).identity() {
        is_harmless(&error.to_string());
    }
}
