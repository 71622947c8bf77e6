//! Leases: enforced by the supervisor alone, with or without an agent.

use sluice_common::supervision::{BootMillis, Exit, SpawnSpec, ToSupervisor};
use sluice_common::time::Span;
use sluice_supervisor::clock::{after, boot_now};

use crate::client::sh;
use crate::host::{Host, lives, until};

fn leased(id: &str, script: &str, lease: Span, grace: Span) -> SpawnSpec {
    let mut spec = sh(id, script);
    spec.lease_until = Some(after(boot_now(), lease));
    spec.lease_grace = grace;
    spec
}

const FAR: Span = Span::from_secs(3600);

#[test]
fn a_lease_passes_with_no_agent_there() {
    let host = Host::start();
    let script = "trap 'echo asked' TERM; echo $$ >&2; while :; do sleep 0.05; done";
    let spec = leased("lease.1", script, Span::from_secs(1), Span::from_secs(1));
    let until_killed = after(spec.lease_until.unwrap(), spec.lease_grace);
    let mut client = host.client();
    client.spawn(&spec);
    drop(client);
    let pid = host.number_in("lease.1", "stderr");
    until("the lease has passed", || !lives(pid));
    assert!(
        boot_now() >= until_killed,
        "it is killed no earlier than its grace ends"
    );
    let mut client = host.client();
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::LeaseExpired);
    assert_eq!(
        host.output(&"lease.1", "stdout"),
        "asked\n",
        "SIGTERM came once, and first"
    );
}

#[test]
fn what_ended_before_its_lease_ended_by_itself() {
    let host = Host::start();
    let mut client = host.client();
    let spec = leased("early.1", "exit 6", FAR, Span::ZERO);
    assert_eq!(client.run(&spec), Exit::Code(6));
}

#[test]
fn a_lease_that_has_passed_starts_nothing() {
    let host = Host::start();
    let mut client = host.client();
    let spec = leased("late.1", "echo ran", Span::ZERO, Span::ZERO);
    client.spawn(&spec);
    let end = client.wait_gone(&spec.attempt);
    assert!(matches!(end.exit, Exit::NotBegun(_)), "{end:?}");
    assert_eq!(end.process, None);
    assert!(!host.attempt_dir(&"late.1").join("stdout").exists());
}

#[test]
fn a_renewal_outlives_the_supervisor_and_does_not_undo_what_has_passed() {
    let mut host = Host::start();
    let mut client = host.client();
    let kept = leased("kept.1", "exec sleep 1000", Span::from_secs(3), Span::ZERO);
    let deadline = kept.lease_until.unwrap();
    // The step ignores SIGTERM and has a long grace, so it still runs with an expired lease when the renewal
    // arrives.
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let lost = leased("lost.1", script, Span::ZERO, Span::from_secs(2));
    let lost = SpawnSpec {
        lease_until: Some(after(boot_now(), Span::from_secs(1))),
        ..lost
    };
    client.spawn(&kept);
    client.spawn(&lost);
    client.wait_running(&kept.attempt);
    client.wait_running(&lost.attempt);
    until("the shorter lease has passed", || {
        host.log.lock().unwrap().contains("its lease has expired")
    });
    let until_far = after(boot_now(), FAR);
    client.send(&ToSupervisor::Renew { until: until_far });
    client.send(&ToSupervisor::Renew {
        until: BootMillis(1),
    });
    client.list();
    host.kill();
    until("the old deadline is past", || {
        boot_now() > after(deadline, Span::from_millis(300))
    });
    host.restart();
    let mut client = host.client();
    assert_eq!(client.wait_gone(&lost.attempt).exit, Exit::LeaseExpired);
    client.wait_running(&kept.attempt);
    assert_eq!(
        host.log
            .lock()
            .unwrap()
            .matches("its lease has expired")
            .count(),
        1
    );
}

#[test]
fn a_lease_that_passed_with_no_supervisor_there_is_seen_by_the_next() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = leased(
        "away.1",
        "exec sleep 1000",
        Span::from_millis(1500),
        Span::ZERO,
    );
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    host.kill();
    until("the deadline is past", || {
        boot_now() > spec.lease_until.unwrap()
    });
    host.restart();
    assert_eq!(
        host.client().wait_gone(&spec.attempt).exit,
        Exit::LeaseExpired
    );
}
