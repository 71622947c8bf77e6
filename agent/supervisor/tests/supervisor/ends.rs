//! Exits of steps, and when no process is left.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use sluice_common::supervision::{Exit, HostPhase, StopSignal};

use crate::client::{Client, sh, spec};
use crate::host::{BINARY, Host, as_root, config_args, lives, until};

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let host = Host::start();
    let mut client = host.client();
    for (n, (script, wanted)) in [
        ("exit 0", Exit::Code(0)),
        ("exit 7", Exit::Code(7)),
        ("exit 255", Exit::Code(255)),
        ("kill -9 $$", Exit::Signal(9)),
        ("kill -s SEGV $$", Exit::Signal(11)),
        ("kill -40 $$", Exit::Signal(40)),
    ]
    .into_iter()
    .enumerate()
    {
        let spec = sh(&format!("end.{}", n + 1), script);
        assert_eq!(client.run(&spec), wanted, "{script}");
    }
}

#[test]
fn a_view_gives_back_memo_process_and_times() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh("view.1", "echo $$; exec sleep 1000");
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    assert_eq!(host.number_in("view.1", "stdout"), process.pid);
    assert_eq!(
        client.views[&spec.attempt].launch_record,
        spec.launch_record
    );
    client.signal(&spec.attempt, StopSignal::Terminate);
    let end = client.wait_gone(&spec.attempt);
    assert_eq!(end.exit, Exit::Signal(15));
    assert_eq!(end.process, Some(process));
    assert!(end.ended_at >= process.started_at);
}

#[test]
fn the_group_is_signalled_and_outlives_its_leader() {
    let host = Host::start();
    let mut client = host.client();
    // The inner shell ignores SIGTERM; the outer one does not.
    let spec = sh(
        "group.1",
        "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' & wait",
    );
    client.spawn(&spec);
    let inner = host.number_in("group.1", "stdout");
    client.signal(&spec.attempt, StopSignal::Terminate);
    assert_eq!(client.wait_ended(&spec.attempt).exit, Exit::Signal(15));
    assert!(matches!(
        client.list()[&spec.attempt].phase,
        HostPhase::Ended(_)
    ));
    assert!(lives(inner));
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Signal(15));
    assert!(!lives(inner));
}

#[test]
fn a_process_that_left_group_and_parent_is_found_and_killed() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh(
        "stray.1",
        "setsid sh -c 'setsid sh -c \"trap : TERM; echo \\$\\$; while :; do sleep 0.05; done\" & exit' & wait; exit 3",
    );
    client.spawn(&spec);
    let stray = host.number_in("stray.1", "stdout");
    assert_eq!(client.wait_ended(&spec.attempt).exit, Exit::Code(3));
    assert!(matches!(
        client.list()[&spec.attempt].phase,
        HostPhase::Ended(_)
    ));
    client.forget(&spec.attempt);
    assert_eq!(client.list().len(), 1, "what is not gone is not forgotten");
    client.signal(&spec.attempt, StopSignal::Kill);
    client.wait_gone(&spec.attempt);
    assert!(!lives(stray));
}

#[test]
fn a_child_in_a_session_of_its_own_is_signalled_while_its_parent_runs() {
    let host = Host::start();
    let mut client = host.client();
    // Found as a descendant, without marks.
    let script = "env -i /usr/bin/setsid -w /bin/sh -c 'echo $$; exec /bin/sleep 1000'; exit 5";
    let spec = sh("inner.1", &format!("trap : TERM; {script}"));
    client.spawn(&spec);
    let inner = host.number_in("inner.1", "stdout");
    client.signal(&spec.attempt, StopSignal::Terminate);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Code(5));
    assert!(!lives(inner));
}

#[test]
fn a_stray_of_one_attempt_does_not_hold_another() {
    let host = Host::start();
    let mut client = host.client();
    let stray = sh(
        "holder.1",
        "setsid sh -c 'echo $$; exec sleep 1000' & exit 0",
    );
    client.spawn(&stray);
    let pid = host.number_in("holder.1", "stdout");
    assert_eq!(client.run(&sh("free.1", "exit 4")), Exit::Code(4));
    assert!(matches!(
        client.list()[&stray.attempt].phase,
        HostPhase::Ended(_)
    ));
    client.signal(&stray.attempt, StopSignal::Terminate);
    client.wait_gone(&stray.attempt);
    assert!(!lives(pid));
}

#[test]
fn a_kill_goes_on_until_nothing_is_left() {
    let host = Host::start();
    let mut client = host.client();
    // Each round leaves its session and starts the next, so a single kill may miss it.
    let script =
        "echo $$; i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i+1)); done; wait";
    let spec = sh("hydra.1", script);
    client.spawn(&spec);
    host.number_in("hydra.1", "stdout");
    client.signal(&spec.attempt, StopSignal::Kill);
    client.wait_gone(&spec.attempt);
    assert_eq!(marked("hydra"), Vec::<u32>::new());
}

/// Processes with a step's mark.
fn marked(step: &str) -> Vec<u32> {
    use sluice_supervisor::process::{self, Mark};
    process::all()
        .unwrap()
        .iter()
        .filter(|p| p.is_alive())
        .filter(|p| matches!(process::mark(p.pid), Mark::Of(id) if id.step.as_str() == step))
        .map(|p| p.pid)
        .collect()
}

#[test]
fn signals_to_nobody_are_harmless() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = sh("done.1", "exit 0");
    client.signal(&spec.attempt, StopSignal::Kill);
    client.run(&spec);
    client.signal(&spec.attempt, StopSignal::Kill);
    client.forget(&spec.attempt);
    client.forget(&spec.attempt);
    assert!(client.list().is_empty());
    assert_eq!(host.close_stdin().signal(), None);
}

#[test]
fn a_stopped_step_can_be_killed() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh("frozen.1", "echo $$; exec sleep 1000");
    client.spawn(&spec);
    let pid = host.number_in("frozen.1", "stdout");
    crate::host::send(pid, Signal::SIGSTOP);
    until("it is stopped", || {
        sluice_supervisor::process::stat(pid).is_some_and(|p| p.state == b'T')
    });
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Signal(9));
}

/// Whether a process waits for signals, which end it no longer.
fn waits_for_signals(pid: u32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|it| it.parse().ok());
    number == Some(libc::SYS_rt_sigtimedwait)
}

#[test]
fn the_place_of_an_allocation_is_held_until_it_is_killed() {
    let host = Host::start();
    let mut client = host.client();
    let spec = spec("held.1", &[]);
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    until("it waits for its kill", || waits_for_signals(process.pid));
    client.signal(&spec.attempt, StopSignal::Terminate);
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Signal(9));
}

#[test]
fn a_record_that_cannot_be_written_is_said_once_and_written_when_it_can() {
    let host = Host::start();
    let mut client = host.client();
    let gate = host.dir.path().join("go");
    let early = sh(
        "early.1",
        &format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display()),
    );
    let late = sh("late.1", "sleep 1");
    for spec in [&early, &late] {
        client.spawn(spec);
        client.wait_running(&spec.attempt);
    }
    let (spool, away) = (host.dir.path().join("spool"), host.dir.path().join("away"));
    fs::rename(&spool, &away).unwrap();
    fs::write(&gate, b"").unwrap();
    assert_eq!(client.wait_gone(&early.attempt).exit, Exit::Code(0));
    // The supervisor retries the first record about ten times during the second step.
    client.wait_gone(&late.attempt);
    fs::rename(&away, &spool).unwrap();
    until("the record tells the end", || {
        fs::read_to_string(host.record("early.1")).is_ok_and(|record| record.contains("Gone"))
    });
    let log = host.log.lock().unwrap();
    let said = |line: &&str| line.contains("out of date") && line.contains("step=early attempt=1");
    assert_eq!(log.lines().filter(said).count(), 1, "{log}");
}

/// A program inherits ignored signals, and the starter of a supervisor may ignore SIGCHLD.
#[test]
fn ends_are_seen_where_the_starter_ignores_those_of_its_children() {
    let (dir, config) = (tempfile::tempdir().unwrap(), as_root());
    let mut supervisor = Command::new("env")
        .args([
            "--ignore-signal=CHLD",
            BINARY,
            "--exit-with-stdin",
            "--state-dir",
        ])
        .arg(dir.path())
        .args(config_args(config.path()))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let socket = dir.path().join("supervisor.sock");
    until("the supervisor listens", || socket.exists());
    let mut client = Client::connect(&socket);
    assert_eq!(
        client.run(&sh("seen.1", "sleep 0.1 & exit 3")),
        Exit::Code(3)
    );
    drop(supervisor.stdin.take());
    assert!(supervisor.wait().unwrap().success());
}

/// Limits the descriptors of a process below its current number, so that it can open no file.
fn allow_open_files(pid: u32, most: u32) {
    let status = Command::new("prlimit")
        .args([format!("--pid={pid}"), format!("--nofile={most}:")])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_signal_is_sent_as_soon_as_the_host_can_be_looked_at() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh(
        "blind.1",
        "trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done",
    );
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    until("it listens", || {
        host.output(&spec.attempt, "stdout").contains("up")
    });
    let is_free = |fd: &u32| !Path::new(&format!("/proc/{}/fd/{fd}", host.pid())).exists();
    let lowest = (0..).find(is_free).unwrap();
    allow_open_files(host.pid(), lowest);
    client.signal(&spec.attempt, StopSignal::Terminate);
    host.says("cannot scan the processes of this host", 2);
    client.wait_running(&spec.attempt);
    allow_open_files(host.pid(), 1024);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Code(7));
}
