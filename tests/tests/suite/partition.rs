//! A real network partition: three network namespaces, a coordinator and two hosts, and a cut cable. Needs root and
//! `ip`; says so and passes without them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{binaries, eventually, kill, processes_of_attempt};

/// Timeouts so short that the test need not wait for minutes; `lost_after` is the least that they allow.
const TERMS: &str = "lease = \"2s\"\nstop_limit = \"1s\"\nheartbeat = \"300ms\"\nunreachable_after = \"2s\"\nlost_after = \"23s\"\n";

/// Timeouts under which a silent host is lost long after its leases have expired.
const PATIENT: &str = "lease = \"10s\"\nstop_limit = \"5s\"\nheartbeat = \"1s\"\nunreachable_after = \"8s\"\nlost_after = \"60s\"\n";

/// Namespaces and processes of one test, all of which end with it.
struct Namespaces {
    folder: tempfile::TempDir,
    tag: String,
    children: Vec<Child>,
}

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
    fn can_be_made() -> bool {
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

    /// Makes a namespace for the coordinator and one for each of two hosts, connected by cables. `tag` differs for each
    /// test of one process.
    fn new(tag: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let net = Self {
            folder,
            tag: format!("sl{}{tag}", std::process::id()),
            children: Vec::new(),
        };
        for name in ["c", "1", "2"] {
            ip(&["netns", "add", &net.ns(name)]);
            ip(&["-n", &net.ns(name), "link", "set", "lo", "up"]);
        }
        for host in ["1", "2"] {
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
    fn running(&self, step: &str, attempt: u32) -> Vec<u32> {
        processes_of_attempt(self.folder.path(), step, attempt)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cable(&self, host: &str, state: &str) {
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
    fn deafen(&self, host: &str) {
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

    fn command(&self, ns: &str, binary: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.ns(ns)])
            .arg(binaries().join(binary))
            .args(args);
        command
    }

    /// Starts a daemon; `ip` becomes it, so the pid is its own.
    fn daemon(&mut self, ns: &str, binary: &str, args: &[&str]) -> u32 {
        let log = fs::File::create(self.path(&format!("{binary}-{ns}.log"))).unwrap();
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

    fn sluice(&self, args: &[&str]) -> String {
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

    fn step(&self, id: &str) -> Value {
        serde_json::from_str(&self.sluice(&["get", "step", id, "-o", "json"])).unwrap()
    }

    fn coordinator(&mut self, terms: &str) {
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
    fn host(&mut self, host: &str) -> (u32, u32) {
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
            "coordinators = [\"127.0.0.1:9\", \"10.231.{host}.1:7443\"]\nnode = \"{name}\"\nstate_dir = {:?}\n\
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
        let supervisor = self.daemon(
            host,
            "sluice-supervisor",
            &[
                "--state-dir",
                &supervisor,
                "--stop-on-exit",
                "--config",
                &rules,
            ],
        );
        let agent = self.daemon(host, "sluice-agent", &["--config", &text(&file)]);
        (supervisor, agent)
    }

    fn node_is(&self, name: &str, state: &str) {
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
        for name in ["c", "1", "2"] {
            let _ = Command::new("ip")
                .args(["netns", "del", &self.ns(name)])
                .output();
        }
    }
}

#[test]
fn a_step_behind_a_partition_stops_before_it_is_started_elsewhere() {
    if !Namespaces::can_be_made() {
        sluice_tests::left_out("network namespaces need root and `ip`");
        return;
    }
    let mut net = Namespaces::new("");
    net.coordinator(TERMS);
    let (_, agent) = net.host("1");
    net.node_is("host-1", "ready");
    net.sluice(&[
        "submit",
        "--id",
        "wanderer",
        "--workdir",
        "/",
        "--grace",
        "100ms",
        "--",
        "sh",
        "-c",
        "trap '' TERM; while :; do sleep 0.1; done",
    ]);
    eventually("the first attempt", || {
        (!net.running("wanderer", 1).is_empty()).then_some(())
    });
    net.host("2");
    net.node_is("host-2", "ready");

    net.cable("1", "down");
    // Without an agent the supervisor enforces the lease by itself.
    kill(agent, Signal::SIGKILL);
    net.node_is("host-1", "unreachable");
    assert_eq!(
        net.step("wanderer")["attempt"],
        1,
        "silence alone starts nothing elsewhere"
    );
    eventually("the second attempt", || {
        let second = net.running("wanderer", 2);
        let first = net.running("wanderer", 1);
        assert!(
            second.is_empty() || first.is_empty(),
            "two copies: {first:?} and {second:?}"
        );
        (!second.is_empty()).then_some(())
    });
    let step = net.step("wanderer");
    assert_eq!(
        (&step["attempt"], &step["placements"][0]["node"]),
        (&Value::from(2), &Value::from("host-2")),
        "{step}"
    );
    net.node_is("host-1", "lost");

    net.cable("1", "up");
    let config = net.path("host-1/agent.toml");
    net.daemon("1", "sluice-agent", &["--config", config.to_str().unwrap()]);
    net.node_is("host-1", "ready");
    assert_eq!(
        net.step("wanderer")["attempt"],
        2,
        "what was started elsewhere stays there"
    );
    net.sluice(&["cancel", "wanderer"]);
    eventually("its end", || {
        net.running("wanderer", 2).is_empty().then_some(())
    });
}

#[test]
fn what_a_host_that_hears_nothing_was_told_to_start_goes_elsewhere_before_it_is_lost() {
    if !Namespaces::can_be_made() {
        eprintln!("skipped: network namespaces need root and `ip`");
        return;
    }
    let mut net = Namespaces::new("d");
    net.coordinator(PATIENT);
    net.host("1");
    net.node_is("host-1", "ready");
    net.deafen("1");
    let submit = "submit --id unheard --workdir / -- sleep 1000";
    net.sluice(&submit.split(' ').collect::<Vec<_>>());
    assert_eq!(
        net.step("unheard")["attempt"],
        1,
        "it was sent before anybody knew"
    );
    net.node_is("host-1", "unreachable");
    net.host("2");
    net.node_is("host-2", "ready");
    eventually("the second attempt", || {
        assert_eq!(
            net.running("unheard", 1),
            [0_u32; 0],
            "the order did not arrive"
        );
        (!net.running("unheard", 2).is_empty()).then_some(())
    });
    // Its link has not broken yet, or only now: no test waited for the host to be lost.
    net.node_is("host-1", "unreachable");
    net.sluice(&["cancel", "unheard"]);
    eventually("its end", || {
        net.running("unheard", 2).is_empty().then_some(())
    });
}
