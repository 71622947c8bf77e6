//! Exits of the supervisor, and its exclusive use of a directory.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use sluice_common::supervision::{Exit, StopSignal};
use sluice_supervisor::process;

use crate::client::{Client, sh};
use crate::host::{BINARY, Host, as_root, config_args, lives, readable_binary, until};

const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.05; done";

#[test]
fn the_end_of_stdin_stops_everything() {
    let mut host = Host::start();
    let mut client = host.client();
    client.spawn(&sh("stubborn.1", STUBBORN));
    client.spawn(&sh(
        "loose.1",
        "setsid sh -c 'echo $$; exec sleep 1000' & exit 0",
    ));
    // Cannot be identified: it left its session, its parent and its environment.
    client.spawn(&sh(
        "nobody.1",
        "env -i /usr/bin/setsid /bin/sh -c 'echo $$; exec /bin/sleep 1000' & exit 0",
    ));
    let pids = ["stubborn.1", "loose.1", "nobody.1"].map(|id| host.number_in(id, "stdout"));
    assert!(host.close_stdin().success());
    assert!(pids.into_iter().all(|pid| !lives(pid)));
    assert!(!host.socket().exists());
    host.restart();
    let end = host.client().wait_gone(&"stubborn.1".parse().unwrap());
    assert_eq!(
        end.exit,
        Exit::Signal(9),
        "what it saw while it left is recorded"
    );
}

#[test]
fn a_parent_that_is_killed_takes_everything_with_it() {
    // The log goes to a pipe without a reader, which must not prevent the stop of the steps.
    let (dir, config) = (tempfile::tempdir().unwrap(), as_root());
    let mut child = Command::new(BINARY)
        .args(["--exit-with-stdin", "--state-dir"])
        .arg(dir.path())
        .args(config_args(config.path()))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let socket = dir.path().join("supervisor.sock");
    until("it listens", || socket.exists());
    let mut client = Client::connect(&socket);
    let spec = sh("doomed.1", STUBBORN);
    client.spawn(&spec);
    let pid = client.wait_running(&spec.attempt).pid;
    drop(child.stderr.take());
    drop(child.stdin.take());
    until("it has exited", || child.try_wait().unwrap().is_some());
    assert!(!lives(pid));
    assert!(child.wait().unwrap().success());
}

#[test]
fn told_to_leave_it_leaves_the_steps_running() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = sh("left.1", "exec sleep 1000");
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    host.signal(Signal::SIGTERM);
    assert!(host.wait().success());
    assert!(!host.socket().exists());
    assert!(lives(process.pid));
    host.restart();
    assert_eq!(host.client().wait_running(&spec.attempt), process);
}

#[test]
fn told_to_leave_with_stop_on_exit_it_stops_them_first() {
    let mut host = Host::start_with(&["--stop-on-exit"]);
    let mut client = host.client();
    let spec = sh("stopped.1", "exec sleep 1000");
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    host.signal(Signal::SIGTERM);
    assert!(host.wait().success());
    assert!(!lives(process.pid));
}

#[test]
fn the_signals_of_a_terminal_are_left_to_the_parent() {
    let host = Host::start();
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        host.signal(signal);
    }
    assert_eq!(host.client().run(&sh("after.1", "exit 2")), Exit::Code(2));
}

#[test]
fn a_second_supervisor_is_refused() {
    let host = Host::start();
    let mut second = Command::new(BINARY)
        .arg("--state-dir")
        .arg(host.dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    second
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(1));
    let dir = host.dir.path().canonicalize().unwrap();
    assert!(
        text.contains(&format!("another supervisor (pid {})", host.pid())),
        "{text}"
    );
    assert!(text.contains(dir.to_str().unwrap()), "{text}");
    assert_eq!(host.client().run(&sh("first.1", "exit 2")), Exit::Code(2));
}

#[test]
fn a_killed_supervisor_does_not_lock_its_successor_out() {
    let mut host = Host::start();
    let mut client = host.client();
    for n in 1..=10 {
        client.spawn(&sh(&format!("busy.{n}"), "exec sleep 1000"));
    }
    host.kill();
    // `restart` waits for the new one to be ready, so no step holds the lock.
    host.restart();
    host.client();
}

#[test]
fn a_wrong_command_line_says_what_is_wrong() {
    let output = Command::new(BINARY).arg("--state-dri").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--state-dri"));
    let help = Command::new(BINARY).arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("--exit-with-stdin"));
}

#[test]
fn an_ordinary_user_can_run_it() {
    let dir = tempfile::tempdir().unwrap();
    let binary = readable_binary(dir.path());
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let mut command = Command::new(binary);
    command
        .arg("--exit-with-stdin")
        .arg("--state-dir")
        .arg(&state);
    command.stdin(Stdio::piped());
    let mut uid = nix::unistd::geteuid().as_raw();
    if uid == 0 {
        uid = 65534;
        std::os::unix::fs::chown(&state, Some(uid), Some(uid)).unwrap();
        command.uid(uid).gid(uid);
    }
    let mut child = command.spawn().unwrap();
    let socket = state.join("supervisor.sock");
    until("it listens", || socket.exists());
    let mut client = Client::connect(&socket);
    assert_eq!(client.run(&sh("user.1", "id -u; exit 7")), Exit::Code(7));
    let said = fs::read_to_string(state.join("attempts/user.1/stdout")).unwrap();
    assert_eq!(said.trim(), uid.to_string());
    let stray = sh("user.2", "setsid sh -c 'echo $$; exec sleep 1000' & exit 0");
    client.spawn(&stray);
    client.wait_ended(&stray.attempt);
    client.signal(&stray.attempt, StopSignal::Kill);
    client.wait_gone(&stray.attempt);
    drop(child.stdin.take());
    until("it has exited", || child.try_wait().unwrap().is_some());
    assert!(process::stat(child.id()).is_none());
}
