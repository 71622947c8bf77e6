//! A coordinator that loses its store, or gets an older one back, while hosts run steps: real daemons on loopback.

mod epochs;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{as_starter, binaries, eventually, kill, processes_of};

/// Timeouts so short that the test need not wait for minutes; `lost_after` is the least that they allow.
const TERMS: &str = "lease = \"8s\"\nstop_limit = \"1s\"\nheartbeat = \"300ms\"\nunreachable_after = \"2s\"\nlost_after = \"29s\"\n";

/// Processes of one test, all of which end with it.
struct RecoveryCluster {
    folder: tempfile::TempDir,
    coordinator: Option<Child>,
    hosts: Vec<Child>,
    http: String,
    quic: String,
}

impl RecoveryCluster {
    fn new() -> Self {
        let any = "127.0.0.1:0".to_owned();
        let mut site = Self {
            folder: tempfile::tempdir().unwrap(),
            coordinator: None,
            hosts: Vec::new(),
            http: any.clone(),
            quic: any,
        };
        site.admin(&["init"]);
        site.start();
        site.host("one");
        site
    }

    fn pids_of(&self, step: &str) -> Vec<u32> {
        processes_of(self.folder.path(), step)
    }

    /// Returns the process of a step: the shell, not its children.
    fn runs(&self, step: &str) -> u32 {
        eventually(&format!("{step} to run"), || {
            self.pids_of(step).into_iter().min()
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("coordinator")
    }

    fn command(&self, binary: &str) -> Command {
        let mut command = Command::new(binaries().join(binary));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_")) {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command of the coordinator's program on its data directory.
    fn try_admin(&self, args: &[&str]) -> Output {
        let mut command = self.command("sluice-coordinator");
        command.args(args).arg("--data-dir").arg(self.data());
        command.output().unwrap()
    }

    fn admin(&self, args: &[&str]) -> String {
        let output = self.try_admin(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts the coordinator, after the first time at the same addresses.
    fn start(&mut self) {
        let config = self.path("coordinator.toml");
        let text = format!(
            "http = {:?}\nquic = {:?}\ndata_dir = {:?}\nopen_to_all_local_users = true\n{TERMS}",
            self.http,
            self.quic,
            self.data()
        );
        fs::write(&config, text).unwrap();
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.path("coordinator.log"));
        let mut child = self
            .command("sluice-coordinator")
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let ready = line
            .strip_prefix("ready ")
            .unwrap_or_else(|| panic!("{line:?}: {}", self.log()));
        let ready: Value = serde_json::from_str(ready).unwrap();
        let text = |name: &str| ready[name].as_str().unwrap().to_owned();
        (self.http, self.quic) = (text("http"), text("quic"));
        self.coordinator = Some(child);
        let context = format!(
            r#"{{"http":{:?},"token":"","subject":"default"}}"#,
            self.http
        );
        fs::write(self.path("context.json"), context).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("coordinator.log")).unwrap_or_default()
    }

    fn kill_coordinator(&mut self) {
        let mut child = self.coordinator.take().expect("it runs");
        kill(child.id(), Signal::SIGKILL);
        child.wait().unwrap();
    }

    /// Starts a supervisor and an agent.
    fn host(&mut self, name: &str) {
        let dir = self.path(name);
        let tls = dir.join("tls");
        self.admin(&["issue-node", name, "--out", tls.to_str().unwrap()]);
        let supervisor = dir.join("supervisor");
        let config = format!(
            "coordinators = [{:?}]\nnode = {name:?}\nstate_dir = {:?}\nsupervisor_socket = {:?}\n[tls]\nca = {:?}\ncert = {:?}\nkey = {:?}\n",
            self.quic,
            dir.join("agent"),
            supervisor.join("supervisor.sock"),
            tls.join("ca.pem"),
            tls.join("node.pem"),
            tls.join("node.key"),
        );
        fs::write(dir.join("agent.toml"), config).unwrap();
        fs::write(dir.join("supervisor.toml"), as_starter()).unwrap();
        let log = |name: &str| fs::File::create(dir.join(name)).unwrap();
        let supervisor = self
            .command("sluice-supervisor")
            .arg("--state-dir")
            .arg(&supervisor)
            .arg("--stop-on-exit")
            .arg("--config")
            .arg(dir.join("supervisor.toml"))
            .stdin(Stdio::null())
            .stderr(log("supervisor.log"))
            .spawn();
        let agent = self
            .command("sluice-agent")
            .arg("--config")
            .arg(dir.join("agent.toml"))
            .stdin(Stdio::null())
            .stderr(log("agent.log"))
            .spawn();
        self.hosts.extend([supervisor.unwrap(), agent.unwrap()]);
        self.node_is(name, "ready");
    }

    fn try_sluice(&self, args: &[&str]) -> Output {
        let mut command = self.command("sluice");
        command
            .args(args)
            .env("SLUICE_CONTEXT", self.path("context.json"));
        command.output().unwrap()
    }

    fn sluice(&self, args: &[&str]) -> String {
        let output = self.try_sluice(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {error}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Option<Value> {
        let output = self.try_sluice(&[args, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).ok()
    }

    fn node_is(&self, name: &str, state: &str) {
        eventually(&format!("{name} to be {state}"), || {
            let node = self.json(&["get", "node", name])?;
            (node["state"] == state).then_some(())
        });
    }

    fn step_is(&self, id: &str, state: &str) -> Value {
        eventually(&format!("{id} to be {state}: {}", self.log()), || {
            let step = self.json(&["get", "step", id])?;
            (step["state"] == state).then_some(step)
        })
    }

    /// Submits a step that ends with a line when the file is there, and leaves one line for each start.
    fn submit(&self, id: &str, until: &str) {
        let script = format!(
            "echo {id} >> {}; while [ ! -e {} ]; do sleep 0.05; done; echo done",
            self.path("begun").display(),
            self.path(until).display()
        );
        self.sluice(&[
            "submit",
            "--id",
            id,
            "--workdir",
            "/",
            "--env",
            "PLANTED=hidden",
            "--",
            "sh",
            "-c",
            &script,
        ]);
    }

    fn begun(&self, id: &str) -> usize {
        let begun = fs::read_to_string(self.path("begun")).unwrap_or_default();
        begun.lines().filter(|line| *line == id).count()
    }

    fn let_go(&self, until: &str) {
        fs::write(self.path(until), "").unwrap();
    }
}

impl Drop for RecoveryCluster {
    fn drop(&mut self) {
        let all = || self.coordinator.iter().chain(&self.hosts);
        all().for_each(|child| kill(child.id(), Signal::SIGTERM));
        for child in self.coordinator.iter_mut().chain(&mut self.hosts) {
            let _ = child.wait();
        }
    }
}

#[test]
fn an_older_backup_is_restored_under_running_steps_and_each_of_them_ends_once() {
    let mut site = RecoveryCluster::new();
    site.submit("known", "known.go");
    site.step_is("known", "running");
    let backup = site.path("backup");
    let backup = backup.to_str().unwrap();
    let said = site.admin(&["backup", backup]);
    assert!(
        said.contains("holds     1 pools, 1 nodes, 1 steps"),
        "{said}"
    );
    assert!(site.admin(&["check"]).contains("every record is whole"));

    // After the backup: one more host, a step on each, and one that has ended by then.
    site.host("two");
    site.sluice(&["cordon", "one"]);
    site.submit("later", "later.go");
    site.step_is("later", "running");
    site.submit("over", "over.go");
    site.let_go("over.go");
    site.step_is("over", "succeeded");
    let (known, later) = (site.runs("known"), site.runs("later"));

    site.kill_coordinator();
    let refused = site.try_admin(&["restore", backup]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && error.contains("--force"),
        "{error}"
    );
    let said = site.admin(&["restore", backup, "--force"]);
    assert!(
        said.contains("before-restore-") && said.contains("recovers"),
        "{said}"
    );
    site.start();

    // Both run on where they ran, and nothing new starts.
    let found = site.step_is("later", "running");
    assert_eq!(found["placements"][0]["node"], "two", "{found}");
    assert_eq!(found["attempt"], 1);
    site.step_is("known", "running");
    assert_eq!((site.runs("known"), site.runs("later")), (known, later));
    site.submit("new", "new.go");
    let waits = site.step_is("new", "queued");
    assert_eq!(waits["reason"]["code"], "recovering", "{waits}");
    assert!(
        site.sluice(&["recovery"])
            .contains("restored from a backup")
    );
    assert_eq!(
        site.json(&["get", "pool", "default"]).unwrap()["status"],
        "recovering"
    );
    assert!(site.sluice(&["explain", "new"]).contains("recover"));
    let refused = site.try_sluice(&["recovery", "end"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"));
    assert_eq!(site.begun("new"), 0);

    // It ends by itself, and every step ends once.
    site.step_is("new", "running");
    assert!(site.sluice(&["recovery"]).contains("not recovering"));
    for (id, go) in [
        ("known", "known.go"),
        ("later", "later.go"),
        ("new", "new.go"),
    ] {
        site.let_go(go);
        let step = site.step_is(id, "succeeded");
        assert_eq!(
            (&step["attempt"], site.begun(id)),
            (&Value::from(1), 1),
            "{step}"
        );
        assert!(site.sluice(&["logs", id]).contains("done"));
    }
    let events = site.sluice(&["get", "events", "-o", "json"]);
    for kind in ["recovery_began", "adopted", "recovery_ended"] {
        assert!(events.contains(kind), "{kind} is no event");
    }
    assert!(
        !events.contains("hidden") && !site.log().contains("hidden"),
        "a secret was told"
    );
}

#[test]
fn a_lost_disk_is_made_good_from_the_keys_and_what_hosts_know() {
    let mut site = RecoveryCluster::new();
    site.submit("long", "long.go");
    site.step_is("long", "running");
    let before = site.runs("long");
    site.kill_coordinator();
    for name in ["store.redb", "journal", "tip", "lock"] {
        fs::remove_file(site.data().join(name)).unwrap();
    }
    site.admin(&["init"]);
    site.start();
    let found = site.step_is("long", "running");
    assert_eq!(found["placements"][0]["node"], "one", "{found}");
    assert!(site.sluice(&["recovery"]).contains("was lost"));
    site.sluice(&["recovery", "end", "--force"]);
    site.submit("next", "long.go");
    site.step_is("next", "running");
    assert_eq!(site.runs("long"), before);
    site.let_go("long.go");
    for id in ["long", "next"] {
        assert_eq!(site.step_is(id, "succeeded")["attempt"], 1);
        assert_eq!(site.begun(id), 1);
    }
}

#[test]
fn a_host_whose_warrant_nobody_knows_is_not_believed() {
    let mut site = RecoveryCluster::new();
    site.submit("forged", "forged.go");
    site.step_is("forged", "running");
    let warrant = site.path("one/agent/warrants/forged.1");
    let text = fs::read_to_string(&warrant).unwrap();
    let changed = match text.strip_prefix("2.A") {
        Some(rest) => format!("2.B{rest}"),
        None => format!("2.A{}", &text[3..]),
    };
    assert_ne!(text, changed);
    fs::write(&warrant, changed).unwrap();
    site.kill_coordinator();
    lose(&site.data());
    site.start();
    eventually("its end", || {
        site.pids_of("forged").is_empty().then_some(())
    });
    assert!(
        site.json(&["get", "step", "forged"])
            .is_none_or(|step| step["id"] != "forged")
    );
    assert!(site.log().contains("has not signed"), "{}", site.log());
}

/// The array that is lost with the store and submitted again.
fn submit_array(site: &RecoveryCluster) {
    let script = format!(
        "echo $SLUICE_STEP_ID >> {}; while [ ! -e {} ]; do sleep 0.05; done; echo done",
        site.path("begun").display(),
        site.path("go").display()
    );
    let array = ["submit", "--id", "many", "--array", "0-5%2"];
    let rest = ["--cpus", "0.1", "--memory", "1MB", "--workdir", "/"];
    site.sluice(&[&array[..], &rest, &["--", "sh", "-c", &script]].concat());
}

#[test]
fn parts_that_run_on_after_their_array_was_lost_are_its_parts_again_when_it_is_submitted_again() {
    let mut site = RecoveryCluster::new();
    let backup = site.path("backup");
    let backup = backup.to_str().unwrap();
    site.admin(&["backup", backup]);
    submit_array(&site);
    for part in ["many.0", "many.1"] {
        site.step_is(part, "running");
    }
    let before = [site.runs("many.0"), site.runs("many.1")];
    site.kill_coordinator();
    site.admin(&["restore", backup, "--force"]);
    site.start();

    // Adopted without their array, and listed like other steps.
    for part in ["many.0", "many.1"] {
        assert_eq!(site.step_is(part, "running")["attempt"], 1);
    }
    let refused = site.try_sluice(&["get", "step", "many"]);
    assert!(!refused.status.success(), "the array is lost");
    submit_array(&site);
    let array = site.step_is("many", "running");
    let parts = &array["array"]["parts"];
    assert_eq!(
        (&parts["total"], &parts["running"]),
        (&Value::from(6), &Value::from(2)),
        "{array}"
    );
    assert_eq!([site.runs("many.0"), site.runs("many.1")], before);

    site.let_go("go");
    let array = site.step_is("many", "succeeded");
    assert_eq!(array["array"]["parts"]["succeeded"], 6, "{array}");
    for index in 0..6 {
        let part = format!("many.{index}");
        assert_eq!(site.begun(&part), 1, "{part}");
        assert!(site.sluice(&["logs", &part]).contains("done"));
    }
}

fn lose(data: &Path) {
    for name in ["store.redb", "journal", "tip"] {
        fs::remove_file(data.join(name)).unwrap();
    }
}
