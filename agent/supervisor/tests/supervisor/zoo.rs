//! Programs that try to outlive their stop, by accident or on purpose: each ends as it should, its groups are
//! removed, and no process is left.

use std::fs;

use sluice_common::id::AttemptId;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::supervision::{Exit, HostPhase, SpawnSpec, StopSignal};
use sluice_supervisor::process::{self, Mark};

use crate::client::{Client, sh, spec};
use crate::host::{Host, lives, open_files, until};

/// Number of processes with the marks of an attempt.
pub(crate) fn marked(id: &AttemptId) -> usize {
    let of = Mark::Of(id.clone());
    let all = process::all().unwrap();
    let theirs = all
        .iter()
        .filter(|p| p.is_alive() && process::mark(p.pid) == of);
    theirs.count()
}

fn holds_groups(client: &Client) -> bool {
    client.capabilities[&Capability::Kill] != Mechanism::ProcessGroup
}

/// Starts the step, and waits until it has this many processes.
fn grown(client: &mut Client, spec: &SpawnSpec, processes: usize) {
    client.spawn(spec);
    client.wait_running(&spec.attempt);
    until("it has grown", || marked(&spec.attempt) >= processes);
}

/// Kills the step and checks that nothing is left.
fn ends_clean(host: &Host, client: &mut Client, id: &AttemptId, how: &Exit) {
    client.signal(id, StopSignal::Kill);
    assert_eq!(client.wait_gone(id).exit, *how);
    assert_eq!(marked(id), 0);
    // The kernel removes a group shortly after its last process.
    until("its groups are gone", || host.groups().is_empty());
}

#[test]
fn a_fork_bomb_stays_within_its_processes_and_dies() {
    let host = Host::start_under("default_user = 0\nallow_root = true\npids_max = 40\n", &[]);
    let mut client = host.client();
    if client.capabilities[&Capability::Pids] == Mechanism::None {
        // Without groups there is no limit on processes.
        return;
    }
    let bomb = sh(
        "bomb.1",
        "b() { b & b & sleep 1000; }; (b) & exec sleep 1000",
    );
    client.spawn(&bomb);
    client.wait_running(&bomb.attempt);
    let failures = || {
        host.output(&bomb.attempt, "stderr")
            .to_lowercase()
            .contains("fork")
    };
    until("it cannot fork any more", failures);
    // Processes end and start during the scan; without the limit their number keeps growing.
    until("it stays within its processes", || {
        marked(&bomb.attempt) <= 40
    });
    ends_clean(&host, &mut client, &bomb.attempt, &Exit::Signal(9));
}

#[test]
fn a_daemon_that_left_session_parent_and_environment_is_not_lost() {
    let host = Host::start();
    let mut client = host.client();
    if !holds_groups(&client) {
        return;
    }
    let daemon =
        "env -i /usr/bin/setsid /bin/sh -c '/bin/sh -c \"echo \\$\\$; exec /bin/sleep 1000\" &' &";
    for (id, script, how) in [
        (
            "daemon.1",
            format!("{daemon} exec sleep 1000"),
            Exit::Signal(9),
        ),
        ("daemon.2", format!("{daemon} exit 3"), Exit::Code(3)),
    ] {
        let spec = sh(id, &script);
        client.spawn(&spec);
        let pid = host.number_in(id, "stdout");
        if how == Exit::Code(3) {
            client.wait_ended(&spec.attempt);
            assert!(matches!(
                client.list()[&spec.attempt].phase,
                HostPhase::Ended(_)
            ));
        }
        assert!(lives(pid));
        ends_clean(&host, &mut client, &spec.attempt, &how);
        assert!(!lives(pid));
    }
}

#[test]
fn one_that_ignores_sigterm_runs_on_until_it_is_killed() {
    let host = Host::start();
    let mut client = host.client();
    let deaf = sh(
        "deaf.1",
        "trap 'echo asked' TERM; echo deaf; while :; do sleep 0.02; done",
    );
    let said = |word: &str| host.output(&deaf.attempt, "stdout").contains(word);
    client.spawn(&deaf);
    client.wait_running(&deaf.attempt);
    until("it does not hear", || said("deaf"));
    client.signal(&deaf.attempt, StopSignal::Terminate);
    until("it was asked", || said("asked"));
    client.wait_running(&deaf.attempt);
    ends_clean(&host, &mut client, &deaf.attempt, &Exit::Signal(9));
}

#[test]
fn one_that_fills_its_disk_ends_as_it_says_and_so_does_another() {
    let host = Host::start();
    let mut client = host.client();
    if !crate::left_out::needs_root() {
        // Only root can mount a disk.
        return;
    }
    // The mount disappears with the last process that sees it.
    let fill = "mkdir small && mount -t tmpfs -o size=2m tmpfs small && cd small || exit 1; \
                cat /dev/zero > all 2>../why; echo $?; (cat /dev/zero > more) 2>/dev/null; \
                (setsid sh -c 'while :; do cat /dev/zero > again; done' 2>/dev/null &); ";
    for (id, then, how) in [
        ("full.1", "exec sleep 1000", Exit::Signal(9)),
        ("full.2", "exit 7", Exit::Code(7)),
    ] {
        let full = spec(
            id,
            &["unshare", "--mount", "sh", "-c", &format!("{fill}{then}")],
        );
        client.spawn(&full);
        let said = host.attempt_dir(&full.attempt).join("stdout");
        until("it was told that there is no room", || {
            fs::read_to_string(&said).is_ok_and(|said| said == "1\n")
        });
        let why = host.attempt_dir(&full.attempt).join("work/why");
        let why = fs::read_to_string(why).unwrap();
        assert!(why.contains("No space left on device"), "{why}");
        let other = sh(&format!("beside.{}", full.attempt.number), "exit 3");
        client.spawn(&other);
        assert_eq!(client.wait_gone(&other.attempt).exit, Exit::Code(3));
        if matches!(how, Exit::Code(_)) {
            client.wait_ended(&full.attempt);
        }
        ends_clean(&host, &mut client, &full.attempt, &how);
    }
}

#[test]
fn a_tree_of_a_thousand_dies_at_once() {
    let host = Host::start();
    let mut client = host.client();
    let branch = "i=0; while [ $i -lt 99 ]; do sleep 1000 & i=$((i+1)); done; wait";
    let tree =
        format!("n=0; while [ $n -lt 10 ]; do setsid sh -c '{branch}' & n=$((n+1)); done; wait");
    let tree = sh("tree.1", &tree);
    grown(&mut client, &tree, 1_000);
    ends_clean(&host, &mut client, &tree.attempt, &Exit::Signal(9));
}

#[test]
fn stopped_processes_die_too() {
    let host = Host::start();
    let mut client = host.client();
    let script = "setsid sleep 1000 & kill -STOP $!; sleep 1000 & kill -STOP $!; kill -STOP $$";
    let stopped = sh("stopped.1", script);
    grown(&mut client, &stopped, 3);
    let main = client.wait_running(&stopped.attempt).pid;
    until("it has stopped", || {
        process::stat(main).is_some_and(|p| p.state == b'T')
    });
    client.signal(&stopped.attempt, StopSignal::Terminate);
    ends_clean(&host, &mut client, &stopped.attempt, &Exit::Signal(9));
}

/// `PTRACE_TRACEME` is 0 everywhere; the number of the call differs.
fn traced_sleep() -> Option<String> {
    let call = match std::env::consts::ARCH {
        "x86_64" => 101,
        "aarch64" => 117,
        _ => return None,
    };
    let child = format!("syscall({call}, 0, 0, 0, 0); exec 'sleep', '1000'");
    Some(format!("unless (fork) {{ {child} }} sleep 1000"))
}

#[test]
fn traced_processes_die_with_their_tracer() {
    let host = Host::start();
    let mut client = host.client();
    let Some(script) = traced_sleep() else { return };
    let traced = spec("traced.1", &["perl", "-e", &script]);
    grown(&mut client, &traced, 2);
    let is_traced = |p: &process::ProcessStat| {
        p.state == b't' && process::mark(p.pid) == Mark::Of(traced.attempt.clone())
    };
    until("one is held by the other", || {
        process::all().unwrap().iter().any(is_traced)
    });
    ends_clean(&host, &mut client, &traced.attempt, &Exit::Signal(9));
}

#[test]
fn a_group_whose_record_is_lost_does_not_run_on() {
    let mut host = Host::start();
    let mut client = host.client();
    if !holds_groups(&client) {
        return;
    }
    let spec = sh(
        "lost.1",
        "env -i /usr/bin/setsid /bin/sh -c 'echo $$; exec /bin/sleep 1000' & exec sleep 1000",
    );
    client.spawn(&spec);
    let main = client.wait_running(&spec.attempt).pid;
    let daemon = host.number_in("lost.1", "stdout");
    host.kill();
    fs::remove_file(host.record("lost.1")).unwrap();
    host.restart();
    until("nothing of it lives", || !lives(main) && !lives(daemon));
    until("its groups are gone", || host.groups().is_empty());
    assert!(host.client().list().is_empty());
}

#[test]
fn the_next_supervisor_finds_by_group_what_left_everything_else() {
    let mut host = Host::start();
    let mut client = host.client();
    if !holds_groups(&client) {
        return;
    }
    let script = "env -i /usr/bin/setsid /bin/sh -c 'cd /; echo $$; exec /bin/sleep 1000 >/dev/null 2>&1' & exit 0";
    let spec = sh("left.1", script);
    client.spawn(&spec);
    let daemon = host.number_in("left.1", "stdout");
    client.wait_ended(&spec.attempt);
    host.kill();
    host.restart();
    let mut client = host.client();
    assert!(matches!(
        client.list()[&spec.attempt].phase,
        HostPhase::Ended(_)
    ));
    assert!(lives(daemon));
    ends_clean(&host, &mut client, &spec.attempt, &Exit::Code(0));
    assert!(!lives(daemon));
}

/// Number of cycles; `SLUICE_CYCLES` overrides it.
fn cycles() -> usize {
    let asked = std::env::var("SLUICE_CYCLES").ok();
    asked.map_or(1_000, |text| text.parse().unwrap())
}

/// Number of files and directories of attempts, including records.
fn kept_of_attempts(host: &Host) -> usize {
    ["attempts", "spool"]
        .map(|name| {
            let entries = fs::read_dir(host.dir.path().join(name)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            names
                .filter(|name| name.to_string_lossy().starts_with("cycle"))
                .count()
        })
        .iter()
        .sum()
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[test]
fn starting_and_stopping_leaves_nothing_behind() {
    let config = "default_user = 0\nallow_root = true\noutput_retention = \"1s\"\n";
    let host = Host::start_under(config, &[]);
    let mut client = host.client();
    let mut once = |n: usize| {
        let spec = sh(&format!("cycle{n}.1"), "sleep 1000 & exec sleep 1000");
        client.spawn(&spec);
        client.wait_running(&spec.attempt);
        client.signal(&spec.attempt, StopSignal::Kill);
        client.wait_gone(&spec.attempt);
        client.forget(&spec.attempt);
    };
    // Buffers grow to their size first.
    (0..50).for_each(&mut once);
    let before = (open_files(host.pid()), resident_kib(host.pid()));
    (50..50 + cycles()).for_each(&mut once);
    until("no child is left", || host.children().is_empty());
    assert!(client.list().is_empty());
    // One more descriptor is open briefly during a sweep.
    until("no descriptor is left", || {
        open_files(host.pid()) <= before.0
    });
    let grown_kib = resident_kib(host.pid()).saturating_sub(before.1);
    assert!(grown_kib < 512, "{grown_kib} KiB more than before");
    until("what was kept for a second is gone", || {
        kept_of_attempts(&host) == 0
    });
    assert_eq!(host.groups(), Vec::<std::path::PathBuf>::new());
}
