//! Frozen attempts run no process, but leases, kills and restarts still work.

use std::time::Duration;

use nix::sys::signal::Signal;
use sluice_common::id::AttemptId;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::supervision::{BootMillis, Exit, FreezeRefusal, FreezerState, StopSignal};
use sluice_supervisor::clock;

use crate::client::{Client, sh};
use crate::host::{Host, until};

/// Counts as fast as it can in a session of its own, into a file and not into its output, because output in
/// the pipe is still written while the step is frozen.
const COUNTER: &str = "setsid sh -c 'while :; do echo; done >counted' & wait";

/// Whether this host can freeze; otherwise the tests check that it says so.
fn freezes(client: &Client) -> bool {
    client.capabilities[&Capability::Freeze] != Mechanism::None
}

fn count(host: &Host, id: &AttemptId) -> u64 {
    let file = host.attempt_dir(id).join("work/counted");
    std::fs::metadata(file).map_or(0, |file| file.len())
}

#[test]
fn a_frozen_attempt_stops_counting_and_goes_on_when_thawed() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh("counter.1", COUNTER);
    let id = &spec.attempt;
    client.spawn(&spec);
    client.wait_running(id);
    if !freezes(&client) {
        assert_eq!(
            client.freeze(id),
            FreezerState::Refused(FreezeRefusal::Unsupported)
        );
        return;
    }
    until("it counts", || count(&host, id) > 0);
    for _ in 0..3 {
        assert_eq!(client.freeze(id), FreezerState::Frozen);
        let stopped_at = count(&host, id);
        // A running step would have counted far in this time.
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(count(&host, id), stopped_at);
        client.thaw(id);
        until("it counts on", || count(&host, id) > stopped_at);
    }
    client.signal(id, StopSignal::Kill);
    assert_eq!(client.wait_gone(id).exit, Exit::Signal(9));
}

#[test]
fn a_frozen_attempt_is_killed_like_any_other() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh("frozen.1", COUNTER);
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    client.freeze(&spec.attempt);
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Signal(9));
    assert_eq!(client.views[&spec.attempt].freezer, FreezerState::Thawed);
}

#[test]
fn a_freeze_that_comes_before_the_program_holds_it_as_soon_as_it_runs() {
    let host = Host::start();
    let mut client = host.client();
    let spec = sh("early.1", COUNTER);
    client.spawn(&spec);
    let state = client.freeze(&spec.attempt);
    assert_eq!(state == FreezerState::Frozen, freezes(&client), "{state:?}");
    client.thaw(&spec.attempt);
    until("it counts", || count(&host, &spec.attempt) > 0);
}

#[test]
fn a_frozen_attempt_loses_its_lease_like_any_other() {
    let host = Host::start();
    let mut client = host.client();
    let mut spec = sh("leased.1", COUNTER);
    spec.lease_until = Some(BootMillis(clock::boot_now().0 + 500));
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    client.freeze(&spec.attempt);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::LeaseExpired);
}

#[test]
fn the_next_supervisor_finds_it_frozen_and_thaws_it() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = sh("kept.1", COUNTER);
    let id = &spec.attempt;
    client.spawn(&spec);
    client.wait_running(id);
    let frozen = client.freeze(id);
    host.signal(Signal::SIGKILL);
    host.wait();
    host.restart();
    let mut client = host.client();
    if !freezes(&client) {
        return;
    }
    assert_eq!(client.list()[id].freezer, frozen);
    let stopped_at = count(&host, id);
    client.thaw(id);
    until("it counts on", || count(&host, id) > stopped_at);
}

#[test]
fn a_host_without_groups_refuses_to_freeze_and_says_by_what_it_holds() {
    let host = Host::start_with(&["--cgroup", "none"]);
    let mut client = host.client();
    assert_eq!(
        client.capabilities[&Capability::Kill],
        Mechanism::ProcessGroup
    );
    assert!(!freezes(&client));
    let said = host.log.lock().unwrap().clone();
    assert!(said.contains("kill=process_group freeze=none"), "{said}");
    let spec = sh("plain.1", "setsid sleep 1000 & exec sleep 1000");
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    let refused = FreezerState::Refused(FreezeRefusal::Unsupported);
    assert_eq!(client.freeze(&spec.attempt), refused);
    client.thaw(&spec.attempt);
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Signal(9));
}
