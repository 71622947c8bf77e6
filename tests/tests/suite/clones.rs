//! Copies of a host: real agents over copies of one state directory, with one certificate.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sluice_tests::{Dev, as_starter, binaries, eventually};

/// A daemon of the copy; killed at the end.
struct CloneDaemon(Child);

impl CloneDaemon {
    fn start(program: &str, args: &[&Path], log: &Path) -> Self {
        let mut command = Command::new(binaries().join(program));
        for (flag, value) in ["--config", "--state-dir"].iter().zip(args) {
            command.arg(flag).arg(value);
        }
        let log = fs::File::create(log).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Self(child.spawn().unwrap())
    }
}

impl Drop for CloneDaemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_copy_of_a_state_directory_is_refused_and_what_runs_on_the_first_host_runs_on() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "long", "--", "sleep", "600"]);
    dev.step_in("long", &["running"]);
    let before = dev.processes("long");

    let copy = dev.folder().join("copy");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(dev.data().join("agent"))
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let config = copy.join("agent.toml");
    let text = fs::read_to_string(&config).unwrap();
    let socket = copy.join("s/supervisor.sock");
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        Some(("state_dir", _)) => format!("state_dir = {copy:?}"),
        Some(("supervisor_socket", _)) => format!("supervisor_socket = {socket:?}"),
        _ => line.to_owned(),
    });
    let text: Vec<String> = lines.collect();
    fs::write(&config, text.join("\n")).unwrap();
    let own = copy.join("supervisor.toml");
    fs::write(&own, as_starter()).unwrap();
    let _supervisor = CloneDaemon::start(
        "sluice-supervisor",
        &[&own, &copy.join("s")],
        &dev.folder().join("copy-supervisor.log"),
    );
    let log = dev.folder().join("copy-agent.log");
    let _agent = CloneDaemon::start("sluice-agent", &[&config], &log);

    eventually("the copy to be refused", || {
        let said = fs::read_to_string(&log).unwrap();
        assert!(!said.contains("node linked"), "{said}");
        said.contains("from another state directory on the same machine")
            .then_some(())
    });
    let (_, events) = dev.call("GET", "/v1/events", None);
    let refused = |it: &serde_json::Value| it["type"] == "node_refused";
    assert!(events["items"].as_array().unwrap().iter().any(refused));
    let step = dev.step_in("long", &["running"]);
    assert_eq!(step["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(dev.processes("long"), before);
    dev.ok(&["cancel", "long"]);
    dev.step_in("long", &["cancelled"]);
}
