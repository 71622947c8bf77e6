//! Hosts join with the line that an admin pastes, by the installed programs: what they keep, what is refused and logged
//! at both ends, and what root does for a malicious user.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sluice_tests::{Dev, binaries, eventually, eventually_within};

/// Output of `sluice-agent join`, and whether this host has joined.
struct JoinAttempt {
    joined: bool,
    said: String,
}

/// Joins as `node` with the line on standard input, by an agent whose state is in `state_dir`.
fn join(state_dir: &Path, node: &str, line: &str, flags: &[&str]) -> JoinAttempt {
    let mut agent = Command::new(binaries().join("sluice-agent"));
    agent
        .args(["--config", "/nonexistent/agent.toml", "--node", node])
        .args(flags)
        .arg("--state-dir")
        .arg(state_dir)
        .arg("join")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = agent.spawn().unwrap();
    // An early refusal does not read it.
    let _unread = child.stdin.take().unwrap().write_all(line.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    JoinAttempt {
        joined: output.status.success(),
        said: String::from_utf8(said).unwrap(),
    }
}

/// A join token: its id, and the line.
struct JoinToken {
    id: String,
    line: String,
}

fn token(dev: &Dev, flags: &[&str]) -> JoinToken {
    let create = ["token", "create", "-o", "json", "--pool", "default"];
    let made: Value = serde_json::from_str(&dev.ok(&[&create[..], flags].concat())).unwrap();
    JoinToken {
        id: made["token"]["id"].as_str().unwrap().to_owned(),
        line: made["line"].as_str().unwrap().to_owned(),
    }
}

/// Lists the states of all tokens.
fn states(dev: &Dev) -> String {
    let listed: Value = serde_json::from_str(&dev.ok(&["token", "list", "-o", "json"])).unwrap();
    let items = listed["items"].as_array().unwrap().iter();
    let states: Vec<&str> = items
        .map(|token| token["state"].as_str().unwrap())
        .collect();
    states.join(" ")
}

#[test]
fn what_is_refused_is_told_to_the_host_and_to_the_admin() {
    let dev = Dev::start();
    let at = |name: &str| dev.folder().join(name);
    let open = token(&dev, &["--uses", "2"]);
    let first = join(&at("a"), "a", &open.line, &[]);
    assert!(first.joined, "{}", first.said);
    assert!(
        first.said.contains("joined as node a of pool default"),
        "{}",
        first.said
    );
    let kept = fs::metadata(at("a").join("tls/node.pem")).unwrap();
    assert_eq!(kept.mode() & 0o777, 0o600);

    let used_up = token(&dev, &[]);
    assert!(join(&at("b"), "b", &used_up.line, &[]).joined);
    let revoked = token(&dev, &[]);
    dev.ok(&["token", "revoke", &revoked.id]);
    let expired = token(&dev, &["--ttl", "1s"]);
    eventually("the token to expire", || {
        states(&dev).contains("expired").then_some(())
    });
    let only = token(&dev, &["--node", "c"]);
    let half = &open.line[..open.line.len() / 2];
    let forged = open
        .line
        .replacen("sluice-join-1.", "sluice-join-1.AAAA", 1);
    let cases: [(&str, &str, &[&str], &str); 8] = [
        ("late", &used_up.line, &[], "is used up, it was for 1"),
        ("late", &revoked.line, &[], "was revoked"),
        ("late", &expired.line, &[], " ago: make another"),
        ("d", &only.line, &[], "join line is for node `c` alone"),
        (
            "late",
            &open.line,
            &["--pool", "other"],
            "is for pool `default`",
        ),
        ("a", &open.line, &[], "node `a` exists already"),
        ("late", half, &[], "is cut off"),
        ("late", &forged, &[], "copy"),
    ];
    for (node, line, flags, words) in cases {
        let refused = join(&at("refused"), node, line, flags);
        assert!(!refused.joined, "{words}: {}", refused.said);
        assert!(refused.said.contains(words), "{words}: {}", refused.said);
        assert!(!at("refused").join("tls/node.pem").exists(), "{words}");
    }
    // Tries with the secret of a token are events of that token.
    let events = dev.ok(&["get", "events", "-o", "json"]);
    for words in [
        "used up",
        "was revoked",
        " ago: make another",
        "is for pool",
        "exists already",
    ] {
        assert!(events.contains(words), "{words}: {events}");
    }
    assert_eq!(events.matches("join_refused").count(), 5, "{events}");
    let log = fs::read_to_string(at("data/logs/coordinator.log")).unwrap();
    for token in [&open, &used_up, &revoked, &expired, &only] {
        let line = token.line.trim();
        let secret = &line[line.len() / 2..];
        assert!(
            !events.contains(secret) && !log.contains(secret),
            "a secret is told"
        );
    }
}

/// Root joins for an agent's user, who has placed a link at the path of the certificate.
#[test]
fn root_writes_nothing_for_an_agent_s_user_where_that_user_may_not() {
    if !sluice_tests::needs_root() {
        // Only root can join for another user.
        return;
    }
    let dev = Dev::start();
    let open = token(&dev, &["--uses", "2"]);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let [state, precious] = ["state", "precious"].map(|name| folder.path().join(name));
    for dir in [&state, &precious] {
        fs::create_dir(dir).unwrap();
    }
    let agent = 64_123;
    chown(&state, Some(agent), Some(agent)).unwrap();
    symlink(&precious, state.join("tls")).unwrap();
    let deceived = join(&state, "n", &open.line, &[]);
    assert!(!deceived.joined, "{}", deceived.said);
    assert_eq!(fs::read_dir(&precious).unwrap().count(), 0);
    assert_eq!(fs::metadata(&precious).unwrap().uid(), 0);

    fs::remove_file(state.join("tls")).unwrap();
    let joined = join(&state, "m", &open.line, &[]);
    assert!(joined.joined, "{}", joined.said);
    for file in ["tls", "tls/node.pem", "tls/ca.pem", "tls/join.json"] {
        assert_eq!(
            fs::metadata(state.join(file)).unwrap().uid(),
            agent,
            "{file}"
        );
    }
}

/// A daemon that is killed at the end of the test.
struct JoinDaemon(Child);

impl Drop for JoinDaemon {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a daemon that logs to `log`; its standard output goes to `said`.
fn daemon(program: &str, args: &[&str], log: &Path, said: Stdio) -> JoinDaemon {
    let mut command = Command::new(binaries().join(program));
    command.args(args).stdin(Stdio::null()).stdout(said);
    command.stderr(File::create(log).unwrap());
    JoinDaemon(command.spawn().unwrap())
}

fn run(program: &str, args: &[&str]) -> String {
    let mut command = Command::new(binaries().join(program));
    let output = command.args(args).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{program} {args:?}: {said}");
    said
}

#[test]
fn certificates_are_renewed_under_a_link_that_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    let config = format!(
        "quic = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ndata_dir = \"{}\"\nopen_to_all_local_users = true\nnode_cert_ttl = \"60s\"\n[http_tls]\n",
        text("data")
    );
    fs::write(at("coordinator.toml"), config).unwrap();
    run("sluice-coordinator", &["init", "--data-dir", &text("data")]);
    let config = ["--config", &text("coordinator.toml")];
    let said = File::create(at("ready")).unwrap().into();
    let _coordinator = daemon("sluice-coordinator", &config, &at("coordinator.log"), said);
    let http = eventually("the coordinator to be ready", || {
        let said = read("ready");
        let (_, addresses) = said.split_once("ready ")?;
        let addresses: Value = serde_json::from_str(addresses).ok()?;
        Some(addresses["http"].as_str()?.to_owned())
    });
    let context = text("context.json");
    let ca = text("data/tls/ca.pem");
    let login = format!("https://{http}");
    run(
        "sluice",
        &["login", &login, "--ca", &ca, "--context", &context],
    );
    let made = run("sluice", &["token", "create", "--context", &context]);
    let line = made.lines().last().unwrap();
    let joined = join(&at("agent"), "n", line, &[]);
    assert!(joined.joined, "{}", joined.said);
    let first = read("agent/tls/node.pem");
    let own = read("data/tls/coordinator.pem");

    let (state, spool) = (text("agent"), text("supervisor"));
    let supervisor = ["--state-dir", &spool];
    let _supervisor = daemon(
        "sluice-supervisor",
        &supervisor,
        &at("supervisor.log"),
        Stdio::null(),
    );
    fs::write(at("agent.toml"), "").unwrap();
    let agent = [
        "--config",
        &text("agent.toml"),
        "--state-dir",
        &state,
        "--supervisor-socket",
        &text("supervisor/supervisor.sock"),
    ];
    let _agent = daemon("sluice-agent", &agent, &at("agent.log"), Stdio::null());
    // The coordinator's first certificate is valid for days; those issued for 60 s are due after 40 s.
    let patience = Duration::from_secs(120);
    eventually_within(patience, "the node to have another certificate", || {
        (read("agent/tls/node.pem") != first).then_some(())
    });
    eventually_within(patience, "the API to show another certificate", || {
        let shown = "the API uses a new certificate";
        read("coordinator.log").contains(shown).then_some(())
    });
    assert_eq!(read("data/tls/coordinator.pem"), own);
    let nodes = run(
        "sluice",
        &["get", "nodes", "-o", "name", "--context", &context],
    );
    assert_eq!(nodes, "node/n\n");
    let log = read("coordinator.log");
    assert_eq!(log.matches("node linked").count(), 1, "{log}");
    assert!(!log.contains("link closed"), "{log}");
}
