//! Keepers: they kill attempts with expired leases while their supervisor is dead, stopped or never returns.

use std::process::Command;

use nix::sys::signal::Signal;
use sluice_common::host_health::HostHealth;
use sluice_common::id::AttemptId;
use sluice_common::supervision::{Exit, SpawnSpec, ToSupervisor};
use sluice_common::time::Span;
use sluice_supervisor::clock::{after, boot_now};
use sluice_supervisor::keeper::heartbeat::{Heartbeat, KeeperKind};
use sluice_supervisor::process;

use crate::client::{Client, sh};
use crate::host::{BINARY, Host, lives, send, until, until_some};

const GRACE: Span = Span::from_secs(1);
const FAR: Span = Span::from_secs(3600);

/// Ignores SIGTERM, and so does its daemon, whose pid it writes.
const STUBBORN: &str = "trap '' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.05; done";

fn leased(id: &str, lease: Span) -> SpawnSpec {
    let mut spec = sh(id, STUBBORN);
    spec.lease_until = Some(after(boot_now(), lease));
    spec.lease_grace = GRACE;
    spec
}

/// Starts the step; returns the pids of its first process and its daemon.
fn begin(host: &Host, client: &mut Client, spec: &SpawnSpec) -> [u32; 2] {
    client.spawn(spec);
    let main = client.wait_running(&spec.attempt);
    [
        main.pid,
        host.number_in(&spec.attempt.to_string(), "stdout"),
    ]
}

/// The pid of the permanent keeper, once it runs.
fn keeper_of(host: &Host) -> u32 {
    let boot_id = process::boot_id().unwrap();
    until_some("a keeper lives", || {
        let heartbeat = Heartbeat::last(host.dir.path(), KeeperKind::KeeperLoop)?;
        heartbeat.process(&boot_id).map(|p| p.pid)
    })
}

/// Signal that disables a supervisor, and the one that undoes it.
type Fault = (Signal, Option<Signal>);

/// A supervisor fails before the lease expires; when it runs again, it must report how the attempt ended.
fn a_lease_is_kept_without(fault: Fault, args: &[&str]) {
    let mut host = Host::start_with(args);
    let mut client = host.client();
    let spec = leased("kept.1", Span::from_secs(2));
    let processes = begin(&host, &mut client, &spec);
    drop(client);
    let kill_at = after(spec.lease_until.unwrap(), GRACE);
    let (signal, undo) = fault;
    match undo {
        Some(_) => host.signal(signal),
        None => host.kill(),
    }
    let gone = || !processes.iter().any(|pid| lives(*pid));
    until("the keeper has killed it", gone);
    assert!(boot_now() >= kill_at, "no earlier than its supervisor");
    match undo {
        Some(signal) => host.signal(signal),
        None => host.restart(),
    }
    let end = host.client().wait_gone(&spec.attempt);
    assert_eq!(end.exit, Exit::LeaseExpired);
}

#[test]
fn a_lease_is_kept_while_the_supervisor_is_dead() {
    a_lease_is_kept_without((Signal::SIGKILL, None), &[]);
}

#[test]
fn a_lease_is_kept_while_the_supervisor_is_dead_and_has_no_groups() {
    a_lease_is_kept_without((Signal::SIGKILL, None), &["--cgroup", "none"]);
}

#[test]
fn a_lease_is_kept_while_the_supervisor_is_stopped() {
    a_lease_is_kept_without((Signal::SIGSTOP, Some(Signal::SIGCONT)), &[]);
}

#[test]
fn what_was_renewed_or_has_no_lease_runs_on_without_a_supervisor() {
    let mut host = Host::start();
    let mut client = host.client();
    let short = leased("short.1", Span::from_secs(2));
    let renewed = leased("renewed.1", FAR);
    let free = SpawnSpec {
        lease_until: None,
        ..leased("free.1", FAR)
    };
    let [short_main, _] = begin(&host, &mut client, &short);
    let lasting = [&renewed, &free].map(|spec: &SpawnSpec| begin(&host, &mut client, spec)[0]);
    keeper_of(&host);
    host.kill();
    until("the short one is killed", || !lives(short_main));
    assert!(lasting.iter().all(|pid| lives(*pid)));
    // The renewal applies to every lease, even if a keeper reads it without a supervisor.
    host.restart();
    let mut client = host.client();
    let again = leased("again.1", Span::from_secs(3));
    let [again_main, _] = begin(&host, &mut client, &again);
    let until_far = after(boot_now(), FAR);
    client.send(&ToSupervisor::Renew { until: until_far });
    client.list();
    host.kill();
    until("its first deadline is past", || {
        boot_now() > after(again.lease_until.unwrap(), Span::from_secs(3))
    });
    assert!(lives(again_main));
    host.restart();
    end_all(&host, &[&again, &renewed, &free]);
}

fn end_all(host: &Host, specs: &[&SpawnSpec]) {
    let mut client = host.client();
    for spec in specs {
        client.signal(&spec.attempt, sluice_common::supervision::StopSignal::Kill);
    }
    for spec in specs {
        client.wait_gone(&spec.attempt);
    }
}

#[test]
fn a_keeper_that_dies_is_followed_by_another_and_none_outlives_its_work() {
    let mut host = Host::start();
    let first = keeper_of(&host);
    send(first, Signal::SIGKILL);
    let second = until_some("another keeper lives", || {
        Some(keeper_of(&host)).filter(|pid| *pid != first)
    });
    // The keeper stays while there are leases, and exits when there are none.
    let mut client = host.client();
    let spec = leased("left.1", Span::from_secs(3));
    let [main, _] = begin(&host, &mut client, &spec);
    host.kill();
    until("the step was killed", || !lives(main));
    until("the keeper has left", || !lives(second));
    host.restart();
    let third = keeper_of(&host);
    host.close_stdin();
    assert!(!lives(third), "a supervisor that leaves for good ends it");
}

#[test]
fn without_a_keeper_nothing_with_a_lease_begins() {
    let dir = tempfile::tempdir().unwrap();
    let binary = crate::host::readable_binary(dir.path());
    let mut host = Host::start();
    host.close_stdin();
    host.binary.clone_from(&binary);
    host.restart();
    let mut client = host.client();
    let keeper = keeper_of(&host);
    std::fs::remove_file(&binary).unwrap();
    send(keeper, Signal::SIGKILL);
    host.says("no step with a lease is started", 1);
    let spec = leased("refused.1", FAR);
    client.spawn(&spec);
    let end = client.wait_gone(&spec.attempt);
    let Exit::HostFailed(why) = end.exit else {
        panic!("{:?}", end.exit);
    };
    assert!(why.contains("no keeper of leases"), "{why}");
    client.wait("the host is unfit", |c| match &c.health {
        Some(HostHealth::Unfit(why)) if why.contains("keeper") => Some(()),
        _ => None,
    });
    // An attempt without a lease needs no keeper.
    let free: AttemptId = "free.1".parse().unwrap();
    client.spawn(&sh("free.1", "exit 3"));
    assert_eq!(client.wait_gone(&free).exit, Exit::Code(3));
    crate::host::copy_file(BINARY.as_ref(), &binary);
    client.wait("the host is fit again", |c| {
        (c.health == Some(HostHealth::Fit)).then_some(())
    });
}

fn keep(host: &Host, flag: &str) -> bool {
    keep_aloud(host, flag).0
}

/// Whether the command succeeded, and its output.
fn keep_aloud(host: &Host, flag: &str) -> (bool, String) {
    let mut keep = Command::new(BINARY);
    keep.args(["keep", "--state-dir"]).arg(host.dir.path());
    let output = keep.arg(flag).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), said)
}

#[test]
fn one_look_is_enough_and_an_end_spares_nobody() {
    let mut host = Host::start();
    let mut client = host.client();
    let due = leased("due.1", Span::from_secs(3));
    let lasting = leased("lasting.1", FAR);
    let free = SpawnSpec {
        lease_until: None,
        ..leased("free.1", FAR)
    };
    let [due_main, due_daemon] = begin(&host, &mut client, &due);
    let others = [&lasting, &free].map(|spec: &SpawnSpec| begin(&host, &mut client, spec));
    // The init system runs it thousands of times a day, so it must print nothing.
    assert_eq!(keep_aloud(&host, "--once"), (true, String::new()));
    // A stopped keeper checks nothing; another process must do its work.
    let stopped = keeper_of(&host);
    send(stopped, Signal::SIGSTOP);
    host.signal(Signal::SIGSTOP);
    until("its kill is due", || {
        assert!(keep(&host, "--once"));
        !lives(due_main) && !lives(due_daemon)
    });
    assert!(others.iter().flatten().all(|pid| lives(*pid)));
    assert!(Heartbeat::last(host.dir.path(), KeeperKind::Timer).is_some());
    assert!(keep(&host, "--end"));
    assert!(!others.iter().flatten().any(|pid| lives(*pid)));
    send(stopped, Signal::SIGCONT);
    host.signal(Signal::SIGCONT);
    assert_eq!(
        host.client().wait_gone(&due.attempt).exit,
        Exit::LeaseExpired
    );
    host.close_stdin();
}

#[test]
fn a_directory_that_others_can_write_names_nobody_to_be_killed() {
    use std::os::unix::fs::PermissionsExt;
    let host = Host::start();
    let open = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(host.dir.path(), permissions).unwrap();
    };
    open(0o777);
    assert!(!keep(&host, "--end"));
    open(0o711);
    assert!(keep(&host, "--end"));
}
