//! The program as its parent or an admin sees it: its output, its exit codes, and its deaths.
#![expect(
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-coordinator"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_")) {
        command.env_remove(name);
    }
    command
}

fn running(data: &Path) -> Command {
    let mut command = program();
    command.args(["--http", "127.0.0.1:0", "--quic", "127.0.0.1:0"]);
    command.arg("--open-to-all-local-users");
    command.arg("--data-dir").arg(data);
    command
}

/// Runs it to the end; returns the exit code and its stderr.
fn refusal(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A coordinator that has reported that it is ready; killed when dropped.
struct Coordinator {
    child: Child,
    http: String,
}

impl Coordinator {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let addresses = line
            .strip_prefix("ready ")
            .expect("the first line says ready");
        let addresses: Value = serde_json::from_str(addresses).unwrap();
        assert!(
            addresses["quic"]
                .as_str()
                .unwrap()
                .starts_with("127.0.0.1:")
        );
        Self {
            child,
            http: addresses["http"].as_str().unwrap().to_owned(),
        }
    }

    fn submit(&self, id: &str) -> bool {
        let body = format!(r#"{{"id":"{id}","command":["true"]}}"#);
        self.post("/v1/steps", &body).0 == 201
    }

    /// Returns the status and the body of the answer; status 0 if there is none.
    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.http);
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build();
        match ureq::Agent::from(agent).post(url).send(body) {
            Ok(mut answer) => {
                let text = answer.body_mut().read_to_string().unwrap_or_default();
                (answer.status().as_u16(), text)
            }
            Err(error) => (0, error.to_string()),
        }
    }

    fn has(&self, id: &str) -> bool {
        ureq::get(format!("http://{}/v1/steps/{id}", self.http))
            .call()
            .is_ok()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(name)
            .arg(self.child.id().to_string())
            .status();
        assert!(status.unwrap().success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn without_a_word_callers_must_show_the_token_that_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["--http", "127.0.0.1:0", "--quic", "127.0.0.1:0"]);
    command.arg("--data-dir").arg(dir.path());
    let coordinator = Coordinator::start(&mut command);
    let url = format!("http://{}/v1/whoami", coordinator.http);
    let refused = ureq::get(&url).call().unwrap_err().to_string();
    assert!(refused.contains("401"), "{refused}");
    let token = std::fs::read_to_string(dir.path().join("api-token")).unwrap();
    let shown = format!("Bearer {}", token.trim());
    let mut known = ureq::get(&url)
        .header("authorization", shown)
        .call()
        .unwrap();
    let who: Value = serde_json::from_str(&known.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(who["who"], "admin");
}

#[test]
fn it_says_ready_and_ends_well_on_a_signal_or_with_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        let mut coordinator = Coordinator::start(&mut running(dir.path()));
        // A caller that waits for ever does not delay it.
        let follow = format!("http://{}/v1/events?follow=true", coordinator.http);
        let mut events = ureq::get(follow).call().unwrap().into_body().into_reader();
        events.read_exact(&mut [0; 4]).unwrap();
        coordinator.signal(signal);
        assert_eq!(coordinator.exit_code(), Some(0), "{signal}");
        // The store was closed properly.
        let mark = std::fs::read_to_string(dir.path().join("tip")).unwrap();
        assert!(mark.contains("crc32"), "{mark}");
    }
    let mut coordinator = Coordinator::start(running(dir.path()).arg("--exit-with-stdin"));
    assert!(coordinator.submit("a"));
    drop(coordinator.child.stdin.take());
    assert_eq!(coordinator.exit_code(), Some(0));
}

#[test]
fn what_it_answered_outlives_a_kill_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let mut answered: Vec<String> = Vec::new();
    for round in 0..8 {
        let mut coordinator = Coordinator::start(&mut running(dir.path()));
        for id in &answered {
            assert!(coordinator.has(id), "{id} was answered, round {round}");
        }
        let count = AtomicUsize::new(0);
        let more = std::thread::scope(|scope| {
            let submits = scope.spawn(|| {
                let mut more = Vec::new();
                for number in 0.. {
                    let id = format!("s{round}-{number}");
                    if !coordinator.submit(&id) {
                        break;
                    }
                    more.push(id);
                    count.store(more.len(), Ordering::Relaxed);
                }
                more
            });
            let deadline = Instant::now() + SOON;
            while count.load(Ordering::Relaxed) <= round * 2 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_micros(100));
            }
            coordinator.signal("-KILL");
            submits.join().unwrap()
        });
        assert!(more.len() > round * 2, "{} answers", more.len());
        answered.extend(more);
        assert_eq!(coordinator.exit_code(), None);
    }
}

#[test]
fn a_cluster_is_made_and_nodes_are_issued_their_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let output = program()
        .arg("init")
        .arg("--data-dir")
        .arg(&data)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("is ready in"));
    let out = dir.path().join("n1");
    // The environment sets the directory too.
    let mut issue = program();
    issue
        .args(["issue-node", "n1", "--out"])
        .arg(&out)
        .env("SLUICE_DATA_DIR", &data);
    assert_eq!(refusal(&mut issue), (Some(0), String::new()));
    for file in ["ca.pem", "node.pem", "node.key"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let (code, message) = refusal(
        program()
            .args(["issue-node", "a b", "--out", "x"])
            .env("SLUICE_DATA_DIR", &data),
    );
    assert_eq!(code, Some(2));
    assert!(
        message.contains("`a b` is not a valid node name"),
        "{message}"
    );
    Coordinator::start(&mut running(&data));
}

#[test]
fn each_start_that_cannot_be_ends_with_one_line_that_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let coordinator = Coordinator::start(&mut running(&data));
    let pid = coordinator.child.id().to_string();
    let other = dir.path().join("other");
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let quic = udp.local_addr().unwrap().to_string();
    let http = tcp.local_addr().unwrap().to_string();
    let config = dir.path().join("coordinator.toml");
    std::fs::write(&config, "http = \"127.0.0.1:0\"\nretension = 5\n").unwrap();

    let (data, other, config) = (data.display(), other.display(), config.display());
    let free = "--http 127.0.0.1:0 --quic 127.0.0.1:0";
    let cases: [(String, &[&str]); 8] = [
        (
            format!("{free} --data-dir {data}"),
            &["in use by another coordinator", &pid, "--data-dir"],
        ),
        (
            format!("init --data-dir {data}"),
            &["in use by another coordinator", &pid],
        ),
        (
            format!("--http 127.0.0.1:0 --quic {quic} --data-dir {other}"),
            &[&quic, "in use", "--quic"],
        ),
        (
            format!("--http {http} --quic 127.0.0.1:0 --data-dir {other}"),
            &[&http, "in use", "--http"],
        ),
        (
            format!("{free} --data-dir {other} --config {config}"),
            &["coordinator.toml: line 2", "`retension`", "`retention`"],
        ),
        (
            format!("--data-dir {other} --config /nowhere.toml"),
            &["/nowhere.toml"],
        ),
        (
            format!("{free} --data-dir {other} --lost-after 1m"),
            &["lost_after", "at least 5m50s"],
        ),
        (
            format!("--http 0.0.0.0:0 --data-dir {other}"),
            &["http", "`api_token_file`", "127.0.0.1"],
        ),
    ];
    for (arguments, parts) in cases {
        let (code, message) = refusal(program().args(arguments.split(' ')));
        assert_eq!(code, Some(1), "{arguments}: {message}");
        let errors: Vec<&str> = message
            .lines()
            .filter(|line| line.starts_with("error: ") || line.contains(" ERROR "))
            .collect();
        assert_eq!(errors.len(), 1, "{message}");
        for part in parts {
            assert!(errors[0].contains(part), "{part}: {message}");
        }
        assert!(!message.contains("panicked"), "{message}");
    }
    let (code, message) = refusal(program().arg("--htp"));
    assert_eq!(code, Some(2), "{message}");
}

#[test]
fn a_damaged_store_stops_the_start_without_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut coordinator = Coordinator::start(&mut running(dir.path()));
    assert!(coordinator.submit("a"));
    // At its end the records of the journal go to the tables.
    coordinator.signal("-TERM");
    coordinator.exit_code();
    let file = dir.path().join("store.redb");
    let mut bytes = std::fs::read(&file).unwrap();
    let place = bytes
        .windows(11)
        .position(|window| window == b"step_queued")
        .unwrap();
    bytes[place] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, message) = refusal(&mut running(dir.path()));
    assert_eq!(code, Some(1), "{message}");
    let damage = "table `log`, record 5: the checksum says";
    for part in ["store.redb is damaged", damage] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn a_config_is_checked_and_nothing_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = program()
            .arg("--check-config")
            .arg("--config")
            .arg(&file)
            .output();
        output.unwrap()
    };
    let good = check("lost_after = \"10m\"\n");
    let shown = String::from_utf8(good.stdout).unwrap();
    assert!(
        good.status.success() && shown.contains("lost_after = \"10m\""),
        "{shown}"
    );
    for (text, words) in [
        (
            "lease = \"1m\"\nlost_afte = \"10m\"\n",
            &["line 2", "`lost_after`"][..],
        ),
        ("lease = \"soon\"\n", &["c.toml", "lease"]),
        ("lost_after = \"1m\"\n", &["c.toml", "lost_after"]),
    ] {
        let bad = check(text);
        let error = String::from_utf8(bad.stderr).unwrap();
        assert_eq!(bad.status.code(), Some(1), "{error}");
        assert!(
            words.iter().all(|word| error.contains(word)),
            "{text}: {error}"
        );
    }
}

/// A small file system below a directory, which only root can make.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn of(size: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "sluice-test"])
            .arg(dir.path())
            .status();
        assert!(
            status.unwrap().success(),
            "this test mounts a file system: run it as root"
        );
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_takes_no_steps_keeps_what_it_has_and_takes_them_again() {
    let disk = SmallDisk::of("80m");
    let data = disk.0.path().join("data");
    let coordinator = Coordinator::start(&mut running(&data));
    assert!(coordinator.submit("before"));
    let rest = disk.0.path().join("rest");
    // All but 2 MiB, of which 4 are kept.
    let free = nix::sys::statvfs::statvfs(disk.0.path()).unwrap();
    let free = free.blocks_available() * free.fragment_size();
    std::fs::write(&rest, vec![1; free as usize - (2 << 20)]).unwrap();
    let submit = |path: &str, body: &str| coordinator.post(path, body);
    let step = r#"{"id":"full","command":["true"]}"#;
    for (path, body) in [
        ("/v1/steps", step.to_owned()),
        ("/v1/steps:batch", format!(r#"{{"steps":[{step}]}}"#)),
    ] {
        let (status, text) = submit(path, &body);
        assert_eq!(status, 507, "{text}");
        assert!(
            text.contains("disk_full") && text.contains("nearly full"),
            "{text}"
        );
    }
    assert!(coordinator.has("before") && !coordinator.has("full"));
    assert_eq!(submit("/v1/steps/before:cancel", "{}").0, 200);
    std::fs::remove_file(rest).unwrap();
    assert!(coordinator.submit("after"));
}

#[test]
fn a_disk_that_others_fill_to_the_last_byte_ends_no_coordinator() {
    let disk = SmallDisk::of("80m");
    let data = disk.0.path().join("data");
    let coordinator = Coordinator::start(&mut running(&data));
    let steps = (0..100).map(|n| format!("step-{n}"));
    let steps: Vec<String> = steps.collect();
    assert!(steps.iter().all(|id| coordinator.submit(id)));
    let mut rest = std::fs::File::create(disk.0.path().join("rest")).unwrap();
    let full = std::io::copy(&mut std::io::repeat(1), &mut rest);
    assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    for id in &steps {
        let (status, text) = coordinator.post(&format!("/v1/steps/{id}:cancel"), "{}");
        assert_eq!(status, 200, "{text}");
    }
    assert_eq!(
        coordinator.post("/v1/steps", r#"{"command":["true"]}"#).0,
        507
    );
}
