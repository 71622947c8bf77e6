//! State that survives the supervisor's death, and its use by the next one.

use std::fs;

use sluice_common::supervision::{Exit, HostPhase, StopSignal};

use crate::client::sh;
use crate::host::{Host, lives, until};

#[test]
fn a_step_runs_on_and_is_taken_over() {
    let mut host = Host::start();
    let mut client = host.client();
    let gate = host.dir.path().join("go");
    let script = format!(
        "i=0; while [ ! -e {} ]; do i=$((i+1)); echo $i; sleep 0.01; done; echo last",
        gate.display()
    );
    let spec = sh("kept.1", &script);
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    for _ in 0..3 {
        host.kill();
        host.restart();
        let mut client = host.client();
        assert_eq!(client.wait_running(&spec.attempt), process);
        assert_eq!(
            client.views[&spec.attempt].launch_record,
            spec.launch_record
        );
    }
    let mut client = host.client();
    fs::write(&gate, b"").unwrap();
    let end = client.wait_gone(&spec.attempt);
    assert_eq!((end.exit, end.process), (Exit::Unknown, Some(process)));
    let text = host.output(&"kept.1", "stdout");
    let lines: Vec<&str> = text.lines().collect();
    let (last, counted) = lines.split_last().unwrap();
    assert_eq!(*last, "last");
    let wanted: Vec<String> = (1..=counted.len()).map(|n| n.to_string()).collect();
    assert_eq!(counted, wanted, "no line is lost and none written twice");
}

#[test]
fn a_step_that_was_taken_over_can_be_stopped() {
    let mut host = Host::start();
    let spec = sh("stop.1", "sleep 1000 & echo $!; wait");
    host.client().spawn(&spec);
    let inner = host.number_in("stop.1", "stdout");
    host.kill();
    host.restart();
    let mut client = host.client();
    client.signal(&spec.attempt, StopSignal::Terminate);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Unknown);
    assert!(!lives(inner));
}

#[test]
fn an_end_is_kept_until_it_is_forgotten() {
    let mut host = Host::start();
    let mut client = host.client();
    let good = sh("good.1", "exit 9");
    let bad = sh("bad.1", "exit 0");
    let bad = sluice_common::supervision::SpawnSpec {
        command: vec!["/no/such".to_owned()],
        ..bad
    };
    client.run(&good);
    client.run(&bad);
    let before = client.list().clone();
    for _ in 0..2 {
        host.kill();
        host.restart();
        assert_eq!(*host.client().list(), before);
    }
    let mut client = host.client();
    client.forget(&good.attempt);
    client.forget(&bad.attempt);
    assert!(client.list().is_empty());
    host.kill();
    host.restart();
    assert!(host.client().list().is_empty());
}

#[test]
fn an_end_that_nobody_saw_is_unknown() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = sh("unseen.1", "echo $$; exec sleep 1000");
    client.spawn(&spec);
    let pid = client.wait_running(&spec.attempt).pid;
    host.kill();
    crate::host::send(pid, nix::sys::signal::Signal::SIGKILL);
    until("it is dead", || !lives(pid));
    host.restart();
    assert_eq!(host.client().wait_gone(&spec.attempt).exit, Exit::Unknown);
}

#[test]
fn a_stray_is_found_after_a_restart_and_a_namesake_is_left_alone() {
    let mut host = Host::start();
    let other = Host::start();
    let spec = sh("name.1", "setsid sh -c 'echo $$; exec sleep 1000' & wait");
    host.client().spawn(&spec);
    other.client().spawn(&spec);
    let (stray, namesake) = (
        host.number_in("name.1", "stdout"),
        other.number_in("name.1", "stdout"),
    );
    let main = host.client().wait_running(&spec.attempt).pid;
    host.kill();
    crate::host::send(main, nix::sys::signal::Signal::SIGKILL);
    until("its main process is dead", || !lives(main));
    assert!(lives(stray));
    host.restart();
    let mut client = host.client();
    client.wait_ended(&spec.attempt);
    assert!(matches!(
        client.list()[&spec.attempt].phase,
        HostPhase::Ended(_)
    ));
    client.signal(&spec.attempt, StopSignal::Kill);
    client.wait_gone(&spec.attempt);
    assert!(!lives(stray));
    assert!(lives(namesake));
    other.client().wait_running(&spec.attempt);
}

#[test]
fn a_record_of_another_boot_means_a_reboot() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = sh("boot.1", "echo $$; exec sleep 1000");
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    host.kill();
    crate::host::send(process.pid, nix::sys::signal::Signal::SIGKILL);
    let text = fs::read_to_string(host.record("boot.1")).unwrap();
    let boot = sluice_supervisor::process::boot_id().unwrap();
    fs::write(
        host.record("boot.1"),
        text.replace(boot.as_str(), "another-boot"),
    )
    .unwrap();
    host.restart();
    let end = host.client().wait_gone(&spec.attempt);
    assert_eq!((end.exit, end.process), (Exit::HostRebooted, Some(process)));
}

#[test]
fn another_process_with_the_same_number_is_not_taken_for_the_step() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = sh("reuse.1", "exec sleep 1000");
    client.spawn(&spec);
    let process = client.wait_running(&spec.attempt);
    host.kill();
    let text = fs::read_to_string(host.record("reuse.1")).unwrap();
    let (old, new) = (process.pid.to_string(), std::process::id().to_string());
    let text = text.replace(&format!("\"pid\":{old}"), &format!("\"pid\":{new}"));
    fs::write(host.record("reuse.1"), text).unwrap();
    crate::host::send(process.pid, nix::sys::signal::Signal::SIGKILL);
    until("it is dead", || !lives(process.pid));
    host.restart();
    // The last line would kill this test if it were mistaken for the step.
    let mut client = host.client();
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Unknown);
}

#[test]
fn a_damaged_record_is_set_aside_and_its_step_does_not_run_on() {
    let mut host = Host::start();
    let mut client = host.client();
    let (hit, spared) = (
        sh("hit.1", "echo $$; exec sleep 1000"),
        sh("spared.1", "exec sleep 1000"),
    );
    client.spawn(&hit);
    client.spawn(&spared);
    client.wait_running(&spared.attempt);
    let pid = host.number_in("hit.1", "stdout");
    host.kill();
    fs::write(host.record("hit.1"), b"{\"attempt\":\"hit.1\",").unwrap();
    host.restart();
    let mut client = host.client();
    assert_eq!(client.wait_gone(&hit.attempt).exit, Exit::Unknown);
    assert!(!lives(pid));
    client.wait_running(&spared.attempt);
    assert!(host.dir.path().join("spool/hit.1.json.damaged").exists());
    assert!(host.log.lock().unwrap().contains("hit.1.json"));
}
