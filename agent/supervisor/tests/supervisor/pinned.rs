//! Steps with processors of their own, with the cpuset controller of this machine.

use std::fs;

use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::processors::{CpuMode, CpuSet};
use sluice_common::supervision::{CpuAllocation, Exit, SpawnSpec, StopSignal, ToSupervisor};

use crate::client::{Client, sh};
use crate::host::{Host, until};

/// The processors that a process may run on.
fn allowed(pid: u32) -> CpuSet {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().parse().unwrap()
}

/// Two processors that this process may run on; `None` if there is only one, or pinning is not possible.
fn two(client: &Client) -> Option<[u32; 2]> {
    let mine = allowed(std::process::id());
    let mut mine = mine.iter();
    let two = [mine.next()?, mine.next()?];
    (client.capabilities[&Capability::Cpuset] != Mechanism::None).then_some(two)
}

fn set(number: u32) -> CpuSet {
    [number].into_iter().collect()
}

fn pinned(id: &str, script: &str, own: CpuSet) -> SpawnSpec {
    let mut spec = sh(id, script);
    spec.launch_record.processors = own.clone();
    spec.processors = CpuAllocation {
        mode: CpuMode::Pinned,
        own,
    };
    spec
}

#[test]
fn a_pinned_step_runs_on_its_own_processors_whatever_it_asks_for() {
    let host = Host::start();
    let mut client = host.client();
    let Some([first, second]) = two(&client) else {
        return;
    };
    let script = format!(
        "taskset -p -c {second} $$ >/dev/null 2>&1; setsid sh -c 'grep Cpus_allowed_list /proc/$$/status'; \
         exec sleep 1000"
    );
    let spec = pinned("own.1", &script, set(first));
    client.spawn(&spec);
    let pid = client.wait_running(&spec.attempt).pid;
    let said = || host.output(&spec.attempt, "stdout");
    until("it has said where it may run", || said().ends_with('\n'));
    assert_eq!(
        said().split_whitespace().last(),
        Some(first.to_string().as_str())
    );
    let free = sh("free.1", "exec sleep 1000");
    client.spawn(&free);
    let beside = client.wait_running(&free.attempt).pid;
    assert_eq!(
        allowed(beside),
        allowed(std::process::id()),
        "it is not pinned"
    );

    client.send(&ToSupervisor::Pin {
        attempt: spec.attempt.clone(),
        processors: set(second),
    });
    until("it runs on the other", || allowed(pid) == set(second));
    // Steps that are not pinned are not affected.
    client.send(&ToSupervisor::Pin {
        attempt: free.attempt.clone(),
        processors: set(second),
    });
    let known = client.list()[&spec.attempt]
        .launch_record
        .processors
        .clone();
    assert_eq!(known, set(second), "the next agent is told");
    assert_eq!(allowed(beside), allowed(std::process::id()));

    for spec in [&spec, &free] {
        client.signal(&spec.attempt, StopSignal::Kill);
        client.wait_gone(&spec.attempt);
    }
    assert_eq!(host.groups(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_is_pinned_stays_so_over_a_death_of_the_supervisor() {
    let mut host = Host::start();
    let mut client = host.client();
    let Some([_, second]) = two(&client) else {
        return;
    };
    let spec = pinned("kept.1", "exec sleep 1000", set(second));
    client.spawn(&spec);
    let pid = client.wait_running(&spec.attempt).pid;
    host.kill();
    host.restart();
    let mut client = host.client();
    assert_eq!(
        client.list()[&spec.attempt].launch_record.processors,
        set(second)
    );
    assert_eq!(allowed(pid), set(second));
    client.signal(&spec.attempt, StopSignal::Kill);
    client.wait_gone(&spec.attempt);
    assert_eq!(host.groups(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn where_nobody_can_be_pinned_a_step_that_is_to_be_does_not_begin() {
    let host = Host::start_under(
        "default_user = 0\nallow_root = true\ncgroup = \"none\"\n",
        &[],
    );
    let mut client = host.client();
    assert_eq!(client.capabilities[&Capability::Cpuset], Mechanism::None);
    for (id, own) in [("none.1", set(0)), ("none.2", CpuSet::default())] {
        match client.run(&pinned(id, "exit 0", own)) {
            Exit::StartFailed(why) => assert!(why.contains("`cpu_mode: pinned`"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.run(&sh("free.1", "exit 3")), Exit::Code(3));
}

#[test]
fn processors_that_are_not_there_are_the_host_s_fault_and_leave_nothing() {
    let host = Host::start();
    let mut client = host.client();
    if two(&client).is_none() {
        return;
    }
    match client.run(&pinned("far.1", "exit 0", set(9_999))) {
        Exit::HostFailed(why) => assert!(why.contains("cpuset.cpus"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(host.groups(), Vec::<std::path::PathBuf>::new());
    assert_eq!(client.run(&sh("free.1", "exit 3")), Exit::Code(3));
}
