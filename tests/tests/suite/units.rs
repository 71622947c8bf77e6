//! The units of `packaging/`: systemd accepts them, they grant no more than needed, and the daemons follow its
//! protocol. `tests/guest/` tests them under a real init.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::socket::sockopt::PassCred;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt};
use sluice_common::limit::{KEEPER_TIMER_ACCURACY, KEEPER_TIMER_PERIOD};
use sluice_common::time::Span;
use sluice_tests::{Daemon, Dev, DevOptions, binaries, kill};

/// Highest score of `systemd-analyze security`, in tenths: the supervisor cannot be sandboxed without sandboxing its
/// steps.
const EXPOSURE: &[(&str, u32)] = &[
    ("sluice-agent.service", 24),
    ("sluice-coordinator.service", 24),
    ("sluice-gateway.service", 24),
    ("sluice-keeper.service", 24),
    ("sluice-steps.service", 24),
    ("sluice-supervisor.service", 88),
];

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

/// Returns every unit with its text.
fn units() -> BTreeMap<String, String> {
    let entries = fs::read_dir(packaging().join("systemd")).unwrap();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

/// Returns the texts of a folder of `packaging/`, one after the other.
fn all_of(folder: &str) -> String {
    let entries = fs::read_dir(packaging().join(folder)).unwrap();
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

/// Returns the values of a key in a unit.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines();
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.collect()
}

/// Runs `systemd-analyze`; returns stdout, stderr and whether it succeeded.
fn analyze(args: &[&str], files: &[PathBuf]) -> (String, String, bool) {
    let output = Command::new("systemd-analyze")
        .args(args)
        .args(files)
        .output()
        .expect("systemd-analyze is there: apt-get install systemd");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        text(output.stdout),
        text(output.stderr),
        output.status.success(),
    )
}

/// On the test machine there are no installed programs, so the units name those of this build.
#[test]
fn systemd_understands_every_unit() {
    let folder = tempfile::tempdir().unwrap();
    let installed = format!("{}/sluice-", binaries().display());
    let cli = format!("{}/sluice ", binaries().display());
    let files: Vec<PathBuf> = units()
        .into_iter()
        .map(|(name, text)| {
            let path = folder.path().join(name);
            let text = text.replace("/usr/bin/sluice-", &installed);
            fs::write(&path, text.replace("/usr/bin/sluice ", &cli)).unwrap();
            path
        })
        .collect();
    assert_eq!(files.len(), EXPOSURE.len() + 1, "all services and a timer");
    let (stdout, stderr, is_content) = analyze(&["verify", "--man=no"], &files);
    // An unknown key is a message on stderr and no failure.
    assert!(is_content && stderr.is_empty(), "{stdout}{stderr}");
}

/// A unit's reload must check what its start reads.
#[test]
fn a_reload_checks_the_config_that_the_daemon_was_started_with() {
    for name in [
        "sluice-agent.service",
        "sluice-coordinator.service",
        "sluice-supervisor.service",
    ] {
        let text = &units()[name];
        let [start] = values(text, "ExecStart")[..] else {
            panic!("{name} starts one program");
        };
        let (program, rest) = start.split_once(' ').unwrap();
        let config = &rest[rest.find("--config ").unwrap()..];
        let check = format!("{program} --check-config {config}");
        let [first, second] = values(text, "ExecReload")[..] else {
            panic!("{name} checks and tells");
        };
        assert!(first.contains(&check), "{first}");
        assert_eq!(second, "/bin/kill -HUP $MAINPID");
    }
}

/// The coordinator's `lost_after` relies on it.
#[test]
fn the_keeper_is_run_as_often_as_leases_need_and_nothing_is_left_failed() {
    let units = units();
    let timer = &units["sluice-keeper.timer"];
    let secs = |span: Span| format!("{}s", span.millis() / 1000);
    for (key, span) in [
        ("OnUnitInactiveSec", KEEPER_TIMER_PERIOD),
        ("AccuracySec", KEEPER_TIMER_ACCURACY),
    ] {
        assert_eq!(values(timer, key), [secs(span)], "{key}");
    }
    for (name, text) in &units {
        let is_service = name.ends_with(".service");
        assert!(
            !is_service || values(text, "StartLimitIntervalSec") == ["0"],
            "{name} stays failed after a few failures"
        );
        let is_keepers = name.starts_with("sluice-keeper");
        assert_eq!(
            values(text, "IgnoreOnIsolate") == ["yes"],
            is_keepers,
            "{name}"
        );
    }
    for name in ["sluice-supervisor.service", "sluice-steps.service"] {
        let wants = values(&units[name], "Wants").join(" ");
        assert!(wants.contains("sluice-keeper.timer"), "{name}: {wants}");
    }
}

#[test]
fn units_open_no_more_than_they_must() {
    for (name, most) in EXPOSURE {
        let threshold = format!("--threshold={most}");
        let args = ["security", "--offline=true", "--no-pager", &threshold];
        let (stdout, stderr, is_content) =
            analyze(&args, &[packaging().join("systemd").join(name)]);
        assert!(is_content, "{name}: {stdout}{stderr}");
        assert!(
            stdout.contains("Overall exposure level"),
            "{name}: {stdout}"
        );
    }
}

#[test]
fn users_of_units_are_made_and_their_directories_too() {
    let users = all_of("sysusers.d");
    let places = all_of("tmpfiles.d");
    let word = |text: &str, place: usize, first: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| line.starts_with(first));
        lines
            .filter_map(|line| line.split_whitespace().nth(place))
            .map(str::to_owned)
            .collect()
    };
    let made = word(&users, 1, "u ");
    let dirs = word(&places, 1, "d ");
    for (name, text) in units() {
        for user in values(&text, "User") {
            assert!(user == "root" || made.contains(user), "{name}: {user}");
        }
        for dir in values(&text, "StateDirectory") {
            assert!(dirs.contains(&format!("/var/lib/{dir}")), "{name}: {dir}");
        }
    }
    assert_eq!(made.len(), 3);
}

/// A notification to the init system: a pid and a text.
type Notification = (u32, String);

/// Always listens, as an init system does: a sender waits while its queue is full.
fn listen(path: &Path) -> Receiver<Notification> {
    let socket = UnixDatagram::bind(path).unwrap();
    setsockopt(&socket, PassCred, &true).unwrap();
    let (tell, told) = channel();
    thread::spawn(move || while tell.send(next(&socket)).is_ok() {});
    told
}

fn next(socket: &UnixDatagram) -> Notification {
    let mut bytes = [0; 256];
    let mut control = nix::cmsg_space!(UnixCredentials);
    let mut text = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::empty();
    let heard = recvmsg::<()>(socket.as_raw_fd(), &mut text, Some(&mut control), flags);
    let heard = heard.expect("a daemon says something");
    let sender = heard.cmsgs().unwrap().find_map(|message| match message {
        ControlMessageOwned::ScmCredentials(sender) => u32::try_from(sender.pid()).ok(),
        _ => None,
    });
    let length = heard.bytes;
    let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
    (sender.expect("the kernel says who it was"), text)
}

/// Listens until each of these has sent each word so many times.
fn hear(told: &Receiver<Notification>, from: &[u32], words: &[(&str, usize)]) {
    let mut heard: BTreeMap<Notification, usize> = BTreeMap::new();
    let count = |heard: &BTreeMap<Notification, usize>, pid: u32, word: &str| {
        let key = (pid, format!("{word}\n"));
        heard.get(&key).copied().unwrap_or_default()
    };
    while from.iter().any(|pid| {
        let lacks = |(word, times): &(&str, usize)| count(&heard, *pid, word) < *times;
        words.iter().any(lacks)
    }) {
        let said = told.recv_timeout(Duration::from_secs(60));
        let said = said.unwrap_or_else(|_| panic!("waited for {words:?} of {from:?}: {heard:?}"));
        *heard.entry(said).or_default() += 1;
    }
}

/// Listens until this one has reported that it reloads, with the time, and then that it is ready again.
fn hear_reload(told: &Receiver<Notification>, pid: u32) {
    loop {
        let (from, text) = told.recv_timeout(Duration::from_secs(60)).unwrap();
        let since = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        if let Some(since) = since.filter(|_| from == pid) {
            assert!(since.trim().parse::<u64>().is_ok(), "{text}");
            return hear(told, &[pid], &[("READY=1", 1)]);
        }
    }
}

#[test]
fn daemons_say_when_they_are_ready_that_they_live_that_they_reload_and_that_they_leave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify.sock");
    let told = listen(&path);
    let dev = Dev::with(DevOptions {
        variables: vec![
            ("NOTIFY_SOCKET", path.to_str().unwrap().to_owned()),
            ("WATCHDOG_USEC", "200000".to_owned()),
        ],
        ..DevOptions::default()
    });
    let pid = |daemon| dev.daemon(daemon).unwrap();
    let remote = [pid(Daemon::Coordinator), pid(Daemon::Agent)];
    let all = [remote[0], remote[1], pid(Daemon::Supervisor)];
    hear(&told, &all, &[("READY=1", 1), ("WATCHDOG=1", 3)]);
    // The daemons' own variables are not passed to steps.
    let seen = dev.ok(&["run", "--", "env"]);
    assert!(
        seen.contains("SLUICE_STEP_ID=") && !seen.contains("NOTIFY") && !seen.contains("WATCHDOG"),
        "{seen}"
    );
    for pid in remote {
        kill(pid, Signal::SIGHUP);
        hear_reload(&told, pid);
    }
    for pid in remote {
        kill(pid, Signal::SIGTERM);
        hear(&told, &[pid], &[("STOPPING=1", 1)]);
    }
}
