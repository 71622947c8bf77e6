//! Hosts in network namespaces of their own: a coordinator and hosts that are connected by cables, which can be cut. Needs
//! root and `ip`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{binaries, eventually, kill, processes_of_attempt};

/// Namespaces and processes of one test, all of which end with it.
pub(crate) struct Namespaces {
    folder: tempfile::TempDir,
    tag: String,
    hosts: &'static [&'static str],
    children: Vec<Child>,
}

/// Mounts an empty file system over the first argument, in the mount namespace of this process alone, and becomes the
/// program that follows.
const HIDE: &str = "mount -t tmpfs none \"$1\" && shift && exec \"$@\"";

fn ip(args: &[&str]) {
    let output = Command::new("ip")
        .args(args)
        .output()
        .expect("ip can be run");
    assert!(
        output.status.success(),
        "ip {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Namespaces {
    pub(crate) fn can_be_made() -> bool {
        let probe = format!("sl{}p", std::process::id());
        let made = Command::new("ip")
            .args(["netns", "add", &probe])
            .output()
            .is_ok_and(|o| o.status.success());
        if made {
            ip(&["netns", "del", &probe]);
        }
        made
    }

    /// Makes a namespace for the coordinator and one for each host, connected by cables; hosts are called `1`, `2` and so
    /// on. `tag` differs for each test of one process.
    pub(crate) fn new(tag: &str, hosts: &'static [&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let net = Self {
            folder,
            tag: format!("sl{}{tag}", std::process::id()),
            hosts,
            children: Vec::new(),
        };
        for name in ["c"].iter().chain(hosts) {
            ip(&["netns", "add", &net.ns(name)]);
            ip(&["-n", &net.ns(name), "link", "set", "lo", "up"]);
        }
        for host in hosts {
            let (here, there) = (format!("{}c{host}", net.tag), format!("{}h{host}", net.tag));
            ip(&[
                "link",
                "add",
                &here,
                "netns",
                &net.ns("c"),
                "type",
                "veth",
                "peer",
                "name",
                &there,
                "netns",
                &net.ns(host),
            ]);
            ip(&[
                "-n",
                &net.ns("c"),
                "addr",
                "add",
                &format!("10.231.{host}.1/24"),
                "dev",
                &here,
            ]);
            ip(&[
                "-n",
                &net.ns(host),
                "addr",
                "add",
                &format!("10.231.{host}.2/24"),
                "dev",
                &there,
            ]);
            ip(&["-n", &net.ns("c"), "link", "set", &here, "up"]);
            ip(&["-n", &net.ns(host), "link", "set", &there, "up"]);
        }
        net
    }

    fn ns(&self, name: &str) -> String {
        format!("{}{name}", self.tag)
    }

    /// Lists the processes of one attempt of a step.
    pub(crate) fn running(&self, step: &str, attempt: u32) -> Vec<u32> {
        processes_of_attempt(self.folder.path(), step, attempt)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn cable(&self, host: &str, state: &str) {
        ip(&[
            "-n",
            &self.ns("c"),
            "link",
            "set",
            &format!("{}c{host}", self.tag),
            state,
        ]);
    }

    /// From now on nothing reaches the host, while its own packets arrive: its address is misdirected.
    pub(crate) fn deafen(&self, host: &str) {
        let (address, device) = (format!("10.231.{host}.2"), format!("{}c{host}", self.tag));
        let (namespace, nobody) = (self.ns("c"), "02:00:00:00:00:99");
        ip(&[
            "-n",
            &namespace,
            "neigh",
            "replace",
            &address,
            "lladdr",
            nobody,
            "dev",
            &device,
            "nud",
            "permanent",
        ]);
    }

    pub(crate) fn command(&self, ns: &str, binary: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.ns(ns)])
            .arg(binaries().join(binary))
            .args(args);
        command
    }

    /// Starts a daemon; `ip` becomes it, so the pid is its own.
    pub(crate) fn daemon(&mut self, ns: &str, binary: &str, args: &[&str]) -> u32 {
        let name = binary.rsplit('/').next().unwrap_or(binary);
        let log = fs::File::create(self.path(&format!("{name}-{ns}.log"))).unwrap();
        let child = self
            .command(ns, binary, args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let pid = child.id();
        self.children.push(child);
        pid
    }

    pub(crate) fn sluice(&self, args: &[&str]) -> String {
        let context = self.path("context.json");
        let output = self
            .command("c", "sluice", args)
            .env("SLUICE_CONTEXT", context)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn step(&self, id: &str) -> Value {
        serde_json::from_str(&self.sluice(&["get", "step", id, "-o", "json"])).unwrap()
    }

    pub(crate) fn coordinator(&mut self, terms: &str) {
        let data = self.path("coordinator");
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let init = self
            .command(
                "c",
                "sluice-coordinator",
                &["init", "--data-dir", &text(&data)],
            )
            .output()
            .unwrap();
        assert!(
            init.status.success(),
            "{}",
            String::from_utf8_lossy(&init.stderr)
        );
        let tls = data.join("tls");
        let config = format!(
            "quic = \"0.0.0.0:7443\"\nhttp = \"127.0.0.1:7070\"\ndata_dir = {data:?}\nopen_to_all_local_users = true\n{terms}\
             [tls]\nca = {:?}\ncert = {:?}\nkey = {:?}\n",
            tls.join("ca.pem"),
            tls.join("coordinator.pem"),
            tls.join("coordinator.key"),
        );
        fs::write(self.path("coordinator.toml"), config).unwrap();
        fs::write(
            self.path("context.json"),
            r#"{"http":"127.0.0.1:7070","token":"","subject":"default"}"#,
        )
        .unwrap();
        let config = text(&self.path("coordinator.toml"));
        self.daemon("c", "sluice-coordinator", &["--config", &config]);
    }

    /// Starts a supervisor and an agent, which lists a dead address before the live one; returns both pids.
    pub(crate) fn host(&mut self, host: &str) -> (u32, u32) {
        self.host_without(host, None)
    }

    /// Starts a host as [`Self::host`] does, on which nothing of the directory `hidden` is there for steps.
    pub(crate) fn host_without(&mut self, host: &str, hidden: Option<&Path>) -> (u32, u32) {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (data, state) = (
            text(&self.path("coordinator")),
            self.path(&format!("host-{host}")),
        );
        let tls = state.join("tls");
        let name = format!("host-{host}");
        let issue = [
            "issue-node",
            &name,
            "--data-dir",
            &data,
            "--out",
            &text(&tls),
        ];
        let issued = self
            .command("c", "sluice-coordinator", &issue)
            .output()
            .unwrap();
        assert!(
            issued.status.success(),
            "{}",
            String::from_utf8_lossy(&issued.stderr)
        );
        let supervisor = text(&state.join("supervisor"));
        let config = format!(
            "coordinators = [\"127.0.0.1:9\", \"10.231.{host}.1:7443\"]\nnode = \"{name}\"\naddress = \"10.231.{host}.2\"\nstate_dir = {:?}\n\
             supervisor_socket = \"{supervisor}/supervisor.sock\"\n[tls]\nca = {:?}\ncert = {:?}\nkey = {:?}\n",
            state.join("agent"),
            tls.join("ca.pem"),
            tls.join("node.pem"),
            tls.join("node.key"),
        );
        let file = state.join("agent.toml");
        fs::write(&file, config).unwrap();
        // Network namespaces are root's, and so are the steps.
        let rules = text(&state.join("supervisor.toml"));
        fs::write(&rules, "default_user = \"root\"\nallow_root = true\n").unwrap();
        let args = ["--state-dir", &supervisor, "--stop-on-exit"];
        let args = [&args[..], &["--config", &rules]].concat();
        let supervisor = match hidden {
            None => self.daemon(host, "sluice-supervisor", &args),
            Some(hidden) => {
                let program = text(&binaries().join("sluice-supervisor"));
                let first = ["-c", HIDE, "sh", hidden.to_str().unwrap(), &program];
                self.daemon(host, "/bin/sh", &[&first[..], &args].concat())
            }
        };
        let agent = self.daemon(host, "sluice-agent", &["--config", &text(&file)]);
        (supervisor, agent)
    }

    pub(crate) fn node_is(&self, name: &str, state: &str) {
        eventually(&format!("{name} to be {state}"), || {
            let output = self
                .command("c", "sluice", &["get", "node", name, "-o", "json"])
                .env("SLUICE_CONTEXT", self.path("context.json"))
                .output()
                .unwrap();
            let node: Value = serde_json::from_slice(&output.stdout).ok()?;
            (node["state"] == state).then_some(())
        });
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The supervisor stops its steps when it is asked to end.
            kill(child.id(), Signal::SIGTERM);
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
        for name in ["c"].iter().chain(self.hosts) {
            let _ = Command::new("ip")
                .args(["netns", "del", &self.ns(name)])
                .output();
        }
    }
}
