//! A coordinator with TLS, as installed ones have it, for pages that log in to one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sluice_tests::binaries;

use crate::cli::RunningCommand;

/// A running coordinator with TLS. Dropping it kills it.
pub(super) struct SecureCoordinator {
    _running: RunningCommand,
    /// Address of the API, `127.0.0.1:PORT`.
    pub(super) http: String,
    /// Context of its admin.
    pub(super) context: PathBuf,
}

impl SecureCoordinator {
    /// Starts one in a folder, and puts its authority's certificate there as `ca.pem`.
    pub(super) fn start(folder: &Path) -> Self {
        let own = folder.join("coordinator");
        let data = own.join("data");
        fs::create_dir(&own).unwrap();
        let config = own.join("coordinator.toml");
        let text = format!(
            "quic = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ndata_dir = {data:?}\n[http_tls]\n"
        );
        fs::write(&config, text).unwrap();
        let command = |program: &str| Command::new(binaries().join(program));
        ok(command("sluice-coordinator")
            .arg("init")
            .arg("--data-dir")
            .arg(&data));
        let mut coordinator = command("sluice-coordinator");
        coordinator.arg("--config").arg(&config);
        let running = RunningCommand::of(coordinator);
        let said = running.until("address", |line| line.starts_with("ready "));
        let addresses = said.last().unwrap().strip_prefix("ready ").unwrap();
        let addresses: Value = serde_json::from_str(addresses).unwrap();
        let http = addresses["http"].as_str().unwrap().to_owned();
        let ca = folder.join("ca.pem");
        fs::copy(data.join("tls/ca.pem"), &ca).unwrap();
        let context = own.join("context.json");
        let mut login = command("sluice");
        login.arg("login").arg(format!("https://{http}"));
        login.arg("--ca").arg(&ca).arg("--context").arg(&context);
        ok(login.arg("--token-file").arg(data.join("api-token")));
        Self {
            _running: running,
            http,
            context,
        }
    }
}

fn ok(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}
