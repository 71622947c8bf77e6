//! Reloads of configs on SIGHUP, by real daemons: what takes effect at once, what is named and waits for the next
//! start, and a mistake, which changes nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_tests::{Daemon, Dev, DevOptions, binaries, eventually, is_alive, kill};
use sluice_transport::files::write_private;

/// Waits until a log has a line with all of `parts` after its first `from` bytes; returns its length then.
fn said(log: &Path, from: usize, parts: &[&str]) -> usize {
    eventually(&format!("a line with {parts:?}"), || {
        let text = fs::read_to_string(log).unwrap();
        let mut lines = text[from..].lines();
        let found = lines.any(|line| parts.iter().all(|part| line.contains(part)));
        found.then_some(text.len())
    })
}

fn node(dev: &Dev) -> Value {
    let (status, nodes) = dev.call("GET", "/v1/nodes", None);
    assert_eq!(status, 200);
    nodes["items"][0].clone()
}

fn labels(dev: &Dev) -> Value {
    node(dev)["labels"].clone()
}

#[test]
fn an_agent_takes_labels_and_limits_at_once_and_goes_on_with_what_it_had_where_there_is_a_mistake()
{
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let dev = Dev::with(DevOptions {
        data: Some(data.clone()),
        ..DevOptions::default()
    });
    let agent = dev.daemon(Daemon::Agent).unwrap();
    let (file, log) = (data.join("agent/agent.toml"), data.join("logs/agent.log"));
    let text = fs::read_to_string(&file).unwrap();
    let write = |from: &str, to: &str| fs::write(&file, text.replace(from, to)).unwrap();
    let told = |from: usize, parts: &[&str]| {
        kill(agent, Signal::SIGHUP);
        said(&log, from, parts)
    };
    assert_eq!(labels(&dev), json!({}));
    dev.ok(&["submit", "--id", "on", "--", "sleep", "1000"]);
    dev.step_in("on", &["running"]);

    write(
        "labels = {  }",
        "labels = { rack = \"8\" }\nlog_filter = \"info,sluice_agent=debug\"",
    );
    let at = told(0, &["config reloaded", "changed=labels,log_filter", "INFO"]);
    eventually("the label to be told", || {
        (labels(&dev) == json!({"rack": "8"})).then_some(())
    });
    let name = node(&dev)["name"].as_str().unwrap().to_owned();
    let described = dev.ok(&["describe", "node", &name]);
    assert!(described.contains("rack=8"), "{described}");

    write("labels = {  }", "labels = { rack = \"a b\" }");
    let refused = "the agent keeps the one before";
    let at = told(
        at,
        &["WARN", refused, "labels: label value `a b`", "use letters"],
    );
    write("labels = {  }", "lables = { rack = \"9\" }");
    let at = told(
        at,
        &[refused, "unknown key `lables`: did you mean `labels`?"],
    );
    fs::remove_file(&file).unwrap();
    let at = told(at, &[refused, "agent.toml", "No such file"]);
    assert_eq!(labels(&dev), json!({"rack": "8"}));

    write("address = \"127.0.0.1\"", "address = \"10.0.0.7\"");
    let waits = "takes effect at the next start";
    let at = told(
        at,
        &[
            "WARN",
            "address changed from \"127.0.0.1\" to \"10.0.0.7\"",
            waits,
        ],
    );
    eventually("the label to go", || {
        (labels(&dev) == json!({})).then_some(())
    });
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text.matches(waits).count(), 1, "{text}");
    assert_eq!(
        text.matches("linked to the coordinator").count(),
        1,
        "{text}"
    );
    assert!(at <= text.len() && is_alive(agent));
    assert_eq!(dev.daemon(Daemon::Agent), Some(agent));
    dev.step_in("on", &["running"]);
}

/// A coordinator that is killed at the end of the test.
struct Coordinator {
    child: Child,
    folder: PathBuf,
    http: String,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Coordinator {
    /// Starts it with the file in `folder`.
    fn start(folder: &Path) -> Self {
        let ready = folder.join("ready");
        let mut command = Command::new(binaries().join("sluice-coordinator"));
        command.arg("--config").arg(folder.join("coordinator.toml"));
        command.stdin(Stdio::null());
        command.stdout(File::create(&ready).unwrap());
        command.stderr(File::create(folder.join("log")).unwrap());
        let child = command.spawn().unwrap();
        let http = eventually("the coordinator to be ready", || {
            let said = fs::read_to_string(&ready).ok()?;
            let addresses: Value = serde_json::from_str(said.strip_prefix("ready ")?).ok()?;
            Some(addresses["http"].as_str()?.to_owned())
        });
        Self {
            child,
            folder: folder.to_owned(),
            http,
        }
    }

    fn reload(&self, from: usize, parts: &[&str]) -> usize {
        kill(self.child.id(), Signal::SIGHUP);
        said(&self.folder.join("log"), from, parts)
    }

    /// Returns the API's status for a caller with this token.
    fn status(&self, token: &str) -> u16 {
        let url = format!("http://{}/v1/pools", self.http);
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .new_agent();
        let call = agent.get(url);
        let answer = call
            .header("authorization", format!("Bearer {token}"))
            .call();
        answer.unwrap().status().as_u16()
    }
}

#[test]
fn a_coordinator_takes_another_token_at_once_and_gives_none_up() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (old, new) = ("the-token-of-the-first-day", "the-token-of-the-second-day");
    write_private(&at("token"), old).unwrap();
    let base = format!(
        "quic = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ndata_dir = {:?}\n",
        at("data")
    );
    let with_token = format!("{base}api_token_file = {:?}\n", at("token"));
    let write = |text: &str| fs::write(at("coordinator.toml"), text).unwrap();
    write(&with_token);
    let coordinator = Coordinator::start(folder.path());
    assert_eq!(
        (coordinator.status(old), coordinator.status(new)),
        (200, 401)
    );

    write_private(&at("token"), new).unwrap();
    let more = "retention = 500\nlog_filter = \"debug\"\nlease = \"4m\"\n";
    write(&format!("{with_token}{more}"));
    let changed = "changed=log_filter,retention,api_token_file";
    let end = coordinator.reload(0, &["INFO", "config reloaded", changed]);
    let end = said(
        &at("log"),
        0,
        &[
            "WARN",
            "lease changed from 5m to 4m: takes effect at the next start",
        ],
    )
    .max(end);
    eventually("the new token to count", || {
        (coordinator.status(new) == 200).then_some(())
    });
    assert_eq!(coordinator.status(old), 401);
    said(&at("log"), 0, &["DEBUG", "call answered"]);

    write(&base);
    let kept = "api_token_file changed from a token to none: takes effect at the next start";
    let end = coordinator.reload(end, &["WARN", kept]);
    assert_eq!(
        (coordinator.status(new), coordinator.status("")),
        (200, 401)
    );
    write(&format!("{base}leas = \"4m\"\n"));
    let refused = "the coordinator keeps the one before";
    coordinator.reload(end, &["WARN", refused, "line 4", "did you mean `lease`?"]);
    assert_eq!(coordinator.status(new), 200);
    let log = fs::read_to_string(at("log")).unwrap();
    assert!(!log.contains(old) && !log.contains(new), "{log}");
}
