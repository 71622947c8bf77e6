//! The commands and config keys that messages about pools of hosts advise are carried out literally, and help.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{CommandOutput, Dev, binaries, eventually, kill};

/// Returns the texts between backticks that begin with `begin`, each once.
fn advised(text: &str, begin: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    let mut found: Vec<String> = parts
        .filter(|part| part.starts_with(begin))
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    found.dedup();
    found
}

/// Runs an advised command line, with its placeholders filled in.
fn typed(dev: &Dev, line: &str) -> CommandOutput {
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[0], "sluice", "{line}");
    dev.sluice(&words[1..])
}

fn done(dev: &Dev, line: &str) -> String {
    let ran = typed(dev, line);
    assert_eq!(ran.code, 0, "{line}: {ran:?}");
    ran.stdout
}

fn apply(dev: &Dev, documents: &str) {
    let file = dev.folder().join("documents.yaml");
    fs::write(&file, documents).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()]);
}

fn node(dev: &Dev, name: &str) -> Value {
    dev.call("GET", &format!("/v1/nodes/{name}"), None).1
}

fn in_pool(dev: &Dev, name: &str, pool: &str) -> Value {
    eventually(&format!("{name} to be ready in {pool}"), || {
        let node = node(dev, name);
        (node["pool"] == pool && node["state"] == "ready").then_some(node)
    })
}

/// An installed host besides that of `dev`.
struct SecondHost {
    dir: PathBuf,
    supervisor: Child,
    agent: Option<Child>,
}

impl SecondHost {
    fn new(dev: &Dev) -> Self {
        let dir = dev.folder().join("host");
        fs::create_dir(&dir).unwrap();
        let mut supervisor = Command::new(binaries().join("sluice-supervisor"));
        supervisor.arg("--state-dir").arg(dir.join("supervisor"));
        supervisor.stdin(Stdio::null()).stdout(Stdio::null());
        let supervisor = supervisor
            .stderr(File::create(dir.join("supervisor.log")).unwrap())
            .spawn()
            .unwrap();
        Self {
            dir,
            supervisor,
            agent: None,
        }
    }

    fn config(&self, text: &str) {
        fs::write(self.dir.join("agent.toml"), text).unwrap();
    }

    fn command(&self) -> Command {
        let mut agent = Command::new(binaries().join("sluice-agent"));
        agent
            .args(["--node", "guest", "--config"])
            .arg(self.dir.join("agent.toml"))
            .arg("--state-dir")
            .arg(self.dir.join("agent"))
            .arg("--supervisor-socket")
            .arg(self.dir.join("supervisor/supervisor.sock"));
        agent
    }

    /// Joins by this line; returns whether that succeeded, and its output.
    fn join(&self, line: &str) -> (bool, String) {
        let output = self.command().args(["join", line]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    fn start(&mut self) {
        let log = File::create(self.dir.join("agent.log")).unwrap();
        let mut agent = self.command();
        agent.stdin(Stdio::null()).stdout(Stdio::null());
        self.agent = Some(agent.stderr(log).spawn().unwrap());
    }

    fn stop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            kill(agent.id(), Signal::SIGTERM);
            agent.wait().unwrap();
        }
    }

    /// Restarts the agent with this config, which does not stop it.
    fn restart_with(&mut self, dev: &Dev, config: &str, pool: &str) {
        self.stop();
        eventually("the host to be away", || {
            (node(dev, "guest")["state"] != "ready").then_some(())
        });
        self.config(config);
        self.start();
        in_pool(dev, "guest", pool);
        let ended = self.agent.as_mut().unwrap().try_wait().unwrap();
        assert_eq!(ended, None, "the agent has ended");
    }
}

impl Drop for SecondHost {
    fn drop(&mut self) {
        for child in self.agent.iter_mut().chain([&mut self.supervisor]) {
            let _ended_already = child.kill();
            let _ = child.wait();
        }
    }
}

fn line_of(made: &str) -> String {
    made.lines().last().unwrap().to_owned()
}

const POOLS: &str = "{kind: pool, name: night}\n---\n{kind: pool, name: day}\n---\n\
                     {kind: policy, pool: day, subject: default}\n";

#[test]
fn the_pool_of_a_host_is_told_by_its_config_once_and_by_its_admin_from_then_on() {
    let dev = Dev::start();
    apply(&dev, POOLS);
    let mut host = SecondHost::new(&dev);

    // For a pool without hosts, the advice is how to add one.
    dev.ok(&[
        "submit",
        "--id",
        "waits",
        "--pool",
        "day",
        "--subject",
        "default",
        "--",
        "true",
    ]);
    let why = dev.ok(&["explain", "waits"]);
    let ways = advised(&why, "sluice ");
    assert_eq!(ways[0], "sluice token create --pool day", "{why}");
    let narrow = line_of(&done(&dev, &ways[0]));
    assert!(
        ways[1].starts_with("sluice move node NODE --pool day"),
        "{why}"
    );

    // A token for one pool and a config with another conflict; both advised solutions work.
    host.config("pool = \"night\"\n");
    let (joined, said) = host.join(&narrow);
    assert!(!joined, "{said}");
    let ways = advised(&said, "sluice ");
    assert_eq!(ways, ["sluice token create --pool night"], "{said}");
    line_of(&done(&dev, &ways[0]));
    assert!(said.contains("leave `pool` out of agent.toml"), "{said}");

    // A token without a pool leaves it to the config; an unknown one is reported.
    let open = line_of(&dev.ok(&["token", "create"]));
    host.config("pool = \"nigth\"\n");
    let (joined, said) = host.join(&open);
    assert!(
        !joined && said.contains("set `pool` in agent.toml"),
        "{said}"
    );
    host.config("pool = \"night\"\n");
    let (joined, said) = host.join(&open);
    assert!(
        joined && said.contains("node guest of pool night"),
        "{said}"
    );
    host.start();
    in_pool(&dev, "guest", "night");

    // A pool with hosts is not deleted; the advice empties it.
    let refused = dev.sluice(&["delete", "pool", "night"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let ways = advised(&refused.stderr, "sluice ");
    assert_eq!(ways[0], "sluice move node guest --pool POOL", "{refused:?}");
    done(&dev, &ways[0].replace("POOL", "day"));
    in_pool(&dev, "guest", "day");
    let told = dev.ok(&["describe", "node", "guest"]);
    let keys = advised(&told, "pool = ");
    assert_eq!(keys, ["pool = \"day\""], "{told}");
    let back = advised(&told, "sluice move");
    assert_eq!(back, ["sluice move node guest --pool night"], "{told}");

    // With the advised config, and any other, the agent stays where the admin has moved it.
    host.restart_with(&dev, &keys[0], "day");
    let told = dev.ok(&["describe", "node", "guest"]);
    assert!(!told.contains("Warning:          pool"), "{told}");
    for config in ["pool = \"default\"\n", "pool = \"gone\"\n", ""] {
        host.restart_with(&dev, config, "day");
    }
    assert_eq!(
        node(&dev, "guest")["pool_of_config"],
        "night",
        "its certificate says so"
    );
    done(&dev, &back[0]);
    in_pool(&dev, "guest", "night");

    // The other solution for a pool that is to be deleted.
    host.stop();
    let away = ways[1].clone();
    assert_eq!(away, "sluice delete node guest");
    eventually("the host to be deleted", || {
        (typed(&dev, &away).code == 0).then_some(())
    });
    dev.ok(&["delete", "pool", "night"]);
}

/// Runs a command line with a pipe, like a shell.
fn piped(dev: &Dev, line: &str) {
    let output = Command::new("sh")
        .args(["-c", line])
        .env("PATH", format!("{}:/usr/bin:/bin", binaries().display()))
        .env("SLUICE_CONTEXT", &dev.context)
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
}

#[test]
fn who_has_no_policy_is_told_the_document_that_gives_one() {
    let dev = Dev::start();
    let submit = |id: &str| {
        dev.sluice(&[
            "submit",
            "--id",
            id,
            "--subject",
            "prod",
            "--pool",
            "default",
            "--",
            "true",
        ])
    };
    let refused = submit("before");
    assert_eq!(refused.code, 1, "{refused:?}");
    let ways = advised(&refused.stderr, "echo ");
    assert_eq!(ways.len(), 1, "{refused:?}");
    piped(&dev, &ways[0]);
    assert_eq!(submit("after").code, 0);
    dev.step_in("after", &["succeeded"]);
}

#[test]
fn whoever_makes_a_pool_can_use_it_at_once() {
    let dev = Dev::start();
    let file = dev.folder().join("fresh.yaml");
    fs::write(&file, "{kind: pool, name: fresh}\n").unwrap();
    let made = dev.ok(&["apply", "-f", file.to_str().unwrap()]);
    assert_eq!(
        made,
        "pool/fresh created: defaults.cpu 1, defaults.memory 2GiB\npolicy/fresh/dev created: priority 0\n"
    );
    let again = dev.ok(&["apply", "-f", file.to_str().unwrap()]);
    assert_eq!(again, "pool/fresh unchanged\n");
    dev.ok(&["submit", "--id", "waits", "--pool", "fresh", "--", "true"]);
    dev.step_in("waits", &["queued"]);
    // A policy of the admin's makes the default one unnecessary.
    apply(
        &dev,
        "{kind: pool, name: own}\n---\n{kind: policy, pool: own, subject: prod}\n",
    );
    assert_eq!(
        dev.ok(&["get", "policies", "--pool", "own", "-o", "name"]),
        "policy/own/prod\n"
    );
}

#[test]
fn what_a_scoped_token_may_is_told_as_it_is_judged() {
    let dev = Dev::start();
    apply(&dev, "{kind: policy, pool: default, subject: prod}\n");
    let made = dev.ok(&[
        "api-token",
        "create",
        "ci",
        "--role",
        "submitter",
        "--subject",
        "prod",
        "--pool",
        "default",
    ]);
    let context = dev.folder().join("ci.json");
    let secret = made.trim();
    fs::write(
        &context,
        serde_json::json!({"http": dev.http, "token": secret, "subject": "prod"}).to_string(),
    )
    .unwrap();
    fs::set_permissions(
        &context,
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    let as_ci = |args: &[&str]| {
        let with = ["--context", context.to_str().unwrap()];
        dev.sluice(&[&args[..1], &with, &args[1..]].concat())
    };
    // Its only pool is that of steps that name none.
    let can = as_ci(&["auth", "can-i", "create", "steps"]);
    assert_eq!((can.code, can.stdout.as_str()), (0, "yes\n"), "{can:?}");
    let run = as_ci(&["run", "--", "true"]);
    assert_eq!(run.code, 0, "{run:?}");
    let can = as_ci(&["auth", "can-i", "create", "steps", "--pool", "other"]);
    assert_eq!(can.code, 1, "{can:?}");
    let run = as_ci(&["run", "--pool", "other", "--", "true"]);
    assert_eq!(run.code, 125, "{run:?}");
}

#[test]
fn who_may_submit_to_several_pools_is_told_to_name_one() {
    let dev = Dev::start();
    apply(
        &dev,
        "{kind: pool, name: other}\n---\n{kind: policy, pool: default, subject: prod}\n",
    );
    let role = ["--role", "submitter", "--subject", "prod"];
    let pools = ["--pool", "default", "--pool", "other"];
    let made = dev.ok(&[&["api-token", "create", "ci"], &role[..], &pools].concat());
    let context = dev.folder().join("ci.json");
    let own = serde_json::json!({"http": dev.http, "token": made.trim(), "subject": "prod"});
    fs::write(&context, own.to_string()).unwrap();
    let as_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&context, as_owner).unwrap();
    let as_ci = |args: &[&str]| {
        let with = ["--context", context.to_str().unwrap()];
        dev.sluice(&[&args[..1], &with, &args[1..]].concat())
    };
    let can = as_ci(&["auth", "can-i", "create", "steps", "-o", "json"]);
    assert_eq!(can.code, 1, "{can:?}");
    assert!(can.stdout.contains("--pool"), "{can:?}");
    let run = as_ci(&["run", "--", "true"]);
    assert_eq!(run.code, 125, "{run:?}");
    assert!(run.stderr.contains("--pool"), "{run:?}");
    let run = as_ci(&["run", "--pool", "default", "--", "true"]);
    assert_eq!(run.code, 0, "{run:?}");
}
