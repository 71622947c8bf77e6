//! Many attempts at once, and deaths of the supervisor at any moment.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::supervision::{Exit, HostPhase, SpawnSpec};

use crate::client::{sh, spec};
use crate::host::{Host, open_files, until};

/// Most wakeups of an idle supervisor in a second: one for the disk, whose child also ends, and one for the
/// keeper.
const LOOKS_IN_A_SECOND: u64 = 4;

#[test]
fn two_hundred_at_once_leave_no_zombie_and_no_descriptor() {
    let host = Host::start();
    let mut client = host.client();
    client.run(&sh("warm.1", "exit 0"));
    let before = open_files(host.pid());
    let specs: Vec<SpawnSpec> = (1..=200)
        .map(|n| {
            sh(
                &format!("storm.{n}"),
                &format!("sleep 0.01 & exit {}", n % 200),
            )
        })
        .collect();
    for spec in &specs {
        client.spawn(spec);
    }
    for (n, spec) in (1..).zip(&specs) {
        assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Code(n % 200));
    }
    until("no child is left", || host.children().is_empty());
    until("no descriptor is left", || open_files(host.pid()) <= before);
}

#[test]
fn no_step_runs_twice_and_none_unrecorded_whenever_the_supervisor_dies() {
    let mut host = Host::start();
    let mut known: BTreeSet<String> = BTreeSet::new();
    for round in 0..12_u64 {
        let specs: Vec<SpawnSpec> = (1..=40)
            .map(|n| sh(&format!("round{round}.{n}"), "echo ran"))
            .collect();
        let mut client = host.client();
        for spec in &specs {
            client.spawn(spec);
        }
        // Each round kills the supervisor at another moment of its work.
        std::thread::sleep(Duration::from_millis(round * 3));
        host.kill();
        host.restart();
        let mut client = host.client();
        for spec in &specs {
            client.spawn(spec);
        }
        for spec in &specs {
            let exit = client.wait_gone(&spec.attempt).exit;
            let ran = host.output(&spec.attempt, "stdout");
            match exit {
                Exit::Code(0) => assert_eq!(ran, "ran\n", "{}", spec.attempt),
                Exit::Unknown => {
                    assert!(ran.is_empty() || ran == "ran\n", "{}: {ran}", spec.attempt)
                }
                other => panic!("{}: {other:?}", spec.attempt),
            }
            known.insert(spec.attempt.to_string());
        }
    }
    let listed: BTreeSet<String> = host
        .client()
        .list()
        .keys()
        .map(ToString::to_string)
        .collect();
    assert_eq!(listed, known);
}

#[test]
fn a_full_host_refuses_and_can_still_tell_all_it_holds() {
    let host = Host::start();
    let mut client = host.client();
    // The longest message of a rejected start.
    let mut refused = spec("full.1", &[&"x".repeat(300)]);
    refused.env.insert("PATH".to_owned(), "/none:".repeat(100));
    for n in 1..=MAX_ATTEMPTS_PER_NODE {
        refused.attempt.number = u32::try_from(n).unwrap();
        refused.workdir = Some(format!("relative{}", "y".repeat(300)));
        client.spawn(&refused);
    }
    let last = refused.attempt.clone();
    client.wait_gone(&last);
    assert_eq!(client.list().len(), MAX_ATTEMPTS_PER_NODE);

    let more = sh("more.1", "exit 0");
    match client.run(&more) {
        Exit::StartFailed(why) => assert!(why.contains("4096"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(
        !client.list().contains_key(&more.attempt),
        "a refusal takes no place"
    );
    client.forget(&last);
    assert_eq!(client.run(&more), Exit::Code(0));
    assert!(matches!(
        client.list()[&more.attempt].phase,
        HostPhase::Gone(_)
    ));
}

#[test]
fn an_end_beside_another_is_seen_without_anything_else_happening() {
    let host = Host::start();
    let mut client = host.client();
    let specs: Vec<SpawnSpec> = (1..=1_000)
        .map(|n| sh(&format!("pair.{n}"), "exec sleep 1000"))
        .collect();
    for spec in &specs {
        client.spawn(spec);
    }
    let pids: Vec<u32> = specs
        .iter()
        .map(|spec| client.wait_running(&spec.attempt).pid)
        .collect();
    // The second of each pair dies slightly later than the first, by a varying delay, so that some die
    // between the supervisor's check of its children and its check of its signals.
    for (n, (specs, pids)) in (0..).zip(specs.chunks(2).zip(pids.chunks(2))) {
        kill(pids[0]);
        let from = Instant::now();
        while from.elapsed() < Duration::from_micros(n % 100) {
            std::hint::spin_loop();
        }
        kill(pids[1]);
        for spec in specs {
            assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Signal(9));
        }
    }
}

fn kill(pid: u32) {
    nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
}

/// Number of times that a process has gone to sleep.
fn sleeps(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn with_nothing_to_do_it_sleeps() {
    let mut host = Host::start();
    let mut client = host.client();
    // One of each: taken over, running, ended with an orphan, failed.
    client.spawn(&sh("old.1", "exec sleep 1000"));
    client.wait_running(&"old.1".parse().unwrap());
    host.kill();
    host.restart();
    let mut client = host.client();
    client.spawn(&sh("runs.1", "exec sleep 1000"));
    client.spawn(&sh("orphan.1", "setsid sleep 1000 & exit 0"));
    client.wait_running(&"runs.1".parse().unwrap());
    client.wait_ended(&"orphan.1".parse().unwrap());
    client.run(&spec("failed.1", &["/no/such"]));
    // The supervisor may wake a few more times until the orphan is identified; then it must sleep except for
    // its periodic checks.
    until("it sleeps", || {
        let before = sleeps(host.pid());
        std::thread::sleep(Duration::from_secs(1));
        sleeps(host.pid()) <= before + LOOKS_IN_A_SECOND
    });
}
