//! Hooks that templates run after a step: after every kind of end, in the step's groups, with a time limit,
//! and without effect on the outcome.

use std::fs;

use nix::sys::signal::Signal;
use sluice_common::supervision::{
    BootMillis, Exit, HostPhase, SpawnSpec, StopSignal, ToSupervisor,
};
use sluice_common::template::launch::HookRun;
use sluice_common::time::Span;
use sluice_supervisor::clock::{after, boot_now};

use crate::client::{Client, sh};
use crate::host::{Host, lives, until};

/// A step with shell scripts as hooks after it.
fn followed(id: &str, script: &str, hooks: &[&str]) -> SpawnSpec {
    let mut spec = sh(id, script);
    let hooks = hooks.iter().zip(1..);
    let hooks = hooks.map(|(hook, n)| HookRun {
        name: n.to_string(),
        command: ["sh", "-c", hook].map(str::to_owned).into(),
        timeout: Span::from_secs(600),
    });
    spec.hooks.after = hooks.collect();
    spec
}

fn gone(client: &mut Client, spec: &SpawnSpec) -> Exit {
    client.wait_gone(&spec.attempt).exit
}

/// Whether no file about the hooks after an attempt is left.
fn is_dropped(host: &Host, id: &str) -> bool {
    !host
        .dir
        .path()
        .join("spool")
        .join(format!("{id}.after"))
        .exists()
}

#[test]
fn hooks_run_after_every_end_and_change_none() {
    let host = Host::start();
    let mut client = host.client();
    let says = "echo $SLUICE_STEP_ID $SLUICE_EXIT_CODE $SLUICE_EXIT_SIGNAL in $(basename $PWD)";
    let hooks = [says, "exit 7", "kill -9 $$", "echo last >&2"];
    for (id, script, exit, told) in [
        (
            "well.1",
            "echo ran",
            Exit::Code(0),
            "ran\nwell 0 in workdir\n",
        ),
        ("badly.1", "exit 3", Exit::Code(3), "badly 3 in workdir\n"),
        (
            "died.1",
            "kill -9 $$",
            Exit::Signal(9),
            "died 9 in workdir\n",
        ),
    ] {
        let spec = followed(id, script, &hooks);
        client.spawn(&spec);
        assert_eq!(gone(&mut client, &spec), exit, "{id}");
        let workdir = sluice_common::attempt_dir::OWN_WORKDIR;
        assert_eq!(host.output(&id, "stdout"), told.replace("workdir", workdir));
        assert_eq!(
            host.output(&id, "stderr"),
            "last\nsluice: after the step, hook `2` ended with code 7; hook `3` was ended by SIGKILL\n"
        );
        assert!(is_dropped(&host, id));
    }
    host.says("hooks after it failed", 3);
}

#[test]
fn the_reason_of_a_failed_hook_ends_with_its_last_words() {
    let host = Host::start();
    let mut client = host.client();
    for (id, script, why) in [
        ("mute.1", "exit 3", "hook `1` ended with code 3"),
        (
            "told.1",
            "echo first; echo no space left >&2; exit 4",
            "hook `1` ended with code 4: no space left",
        ),
    ] {
        let mut spec = followed(id, "echo never", &[script]);
        spec.hooks.before = std::mem::take(&mut spec.hooks.after);
        client.spawn(&spec);
        let failed = Exit::StartFailed(why.to_owned());
        assert_eq!(gone(&mut client, &spec), failed);
        assert!(!host.output(&id, "stdout").contains("never"));
    }
}

#[test]
fn they_run_in_the_groups_of_the_step_when_nothing_else_of_it_is_left() {
    let host = Host::start();
    let mut client = host.client();
    let script = "cat /proc/self/cgroup; sleep 1000 & echo $! >&2";
    let spec = followed("inside.1", script, &["cat /proc/self/cgroup"]);
    client.spawn(&spec);
    let left = host.number_in("inside.1", "stderr");
    assert_eq!(client.wait_ended(&spec.attempt).exit, Exit::Code(0));
    assert!(lives(left), "the hooks wait for it");
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(gone(&mut client, &spec), Exit::Code(0));
    let text = host.output(&"inside.1", "stdout");
    let lines: Vec<&str> = text.lines().collect();
    let (first, second) = lines.split_at(lines.len() / 2);
    assert!(!first.is_empty());
    assert_eq!(first, second);
}

#[test]
fn signals_for_the_step_do_not_reach_them_and_their_own_time_does() {
    let host = Host::start();
    let mut client = host.client();
    let hook = "echo $$; while [ ! -e go ]; do sleep 0.01; done; echo done; sleep 1000";
    let mut spec = followed(
        "slow.1",
        "trap '' TERM; while :; do sleep 0.01; done",
        &[hook, "echo next"],
    );
    spec.hooks.after[0].timeout = Span::from_secs(2);
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    client.signal(&spec.attempt, StopSignal::Kill);
    let pid = host.number_in("slow.1", "stdout");
    for signal in [StopSignal::Terminate, StopSignal::Kill] {
        client.signal(&spec.attempt, signal);
    }
    client.list();
    assert!(lives(pid));
    let workdir = host
        .attempt_dir(&"slow.1")
        .join(sluice_common::attempt_dir::OWN_WORKDIR);
    fs::write(workdir.join("go"), "").unwrap();
    assert_eq!(gone(&mut client, &spec), Exit::Signal(9));
    let text = host.output(&"slow.1", "stdout");
    assert!(text.ends_with("done\nnext\n"), "{text}");
    assert_eq!(
        host.output(&"slow.1", "stderr"),
        "sluice: after the step, hook `1` took longer than 2s\n"
    );
    assert!(!lives(pid));
}

#[test]
fn what_they_leave_behind_is_killed() {
    let host = Host::start();
    let mut client = host.client();
    let hook = "setsid sh -c 'echo $$; touch left; exec sleep 1000' & while [ ! -e left ]; do sleep 0.01; done";
    let spec = followed("litter.1", "true", &[hook]);
    client.spawn(&spec);
    let pid = host.number_in("litter.1", "stdout");
    assert_eq!(gone(&mut client, &spec), Exit::Code(0));
    assert!(!lives(pid));
}

#[test]
fn one_that_was_killed_while_it_was_frozen_has_them_run() {
    let host = Host::start();
    let mut client = host.client();
    let spec = followed("frozen.1", "sleep 1000", &["echo cleaned"]);
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    client.freeze(&spec.attempt);
    client.signal(&spec.attempt, StopSignal::Kill);
    assert_eq!(gone(&mut client, &spec), Exit::Signal(9));
    assert_eq!(host.output(&"frozen.1", "stdout"), "cleaned\n");
}

#[test]
fn the_lease_bounds_them_and_begins_none() {
    let host = Host::start();
    let mut client = host.client();
    let leased = |spec: &mut SpawnSpec| {
        spec.lease_until = Some(after(boot_now(), Span::from_secs(2)));
        spec.lease_grace = Span::from_millis(200);
    };
    let mut runs = followed(
        "runs.1",
        "true",
        &["trap '' TERM; echo $$; while :; do sleep 0.05; done"],
    );
    let mut late = followed("late.1", "sleep 1000", &["echo never"]);
    leased(&mut runs);
    leased(&mut late);
    client.spawn(&runs);
    client.spawn(&late);
    let pid = host.number_in("runs.1", "stdout");
    assert_eq!(gone(&mut client, &runs), Exit::Code(0));
    assert!(!lives(pid));
    assert_eq!(gone(&mut client, &late), Exit::LeaseExpired);
    assert_eq!(host.output(&"late.1", "stdout"), "");
    host.says("hooks after it were not run: its lease has expired", 1);
}

#[test]
fn a_program_that_never_began_is_followed_by_nothing() {
    let host = Host::start();
    let mut client = host.client();
    let mut spec = followed("absent.1", "", &["echo never"]);
    spec.command = vec!["/no/such/program".to_owned()];
    client.spawn(&spec);
    assert!(matches!(gone(&mut client, &spec), Exit::StartFailed(_)));
    assert_eq!(host.output(&"absent.1", "stdout"), "");
    assert!(is_dropped(&host, "absent.1"));
}

#[test]
fn they_outlive_the_supervisor_of_their_step() {
    let mut host = Host::start();
    let gate = host.dir.path().join("go");
    let hook = format!(
        "echo begun; while [ ! -e {} ]; do sleep 0.01; done; echo over",
        gate.display()
    );
    let upgraded = followed("upgraded.1", "exit 4", &[&hook]);
    let replaced = followed("replaced.1", "exec sleep 1000", &["echo followed"]);
    let mut client = host.client();
    client.spawn(&upgraded);
    client.spawn(&replaced);
    let main = client.wait_running(&replaced.attempt);
    host.says("hooks run after it", 1);
    until("it has begun", || {
        host.output(&"upgraded.1", "stdout") == "begun\n"
    });
    host.upgrade();
    let mut client = host.client();
    assert!(matches!(
        client.list()[&upgraded.attempt].phase,
        HostPhase::Ended(_)
    ));
    // Fails if the first supervisor's hook still runs.
    host.kill();
    host.restart();
    let mut client = host.client();
    client.signal(&upgraded.attempt, StopSignal::Kill);
    let text = || host.output(&"upgraded.1", "stdout");
    until("it has begun again", || text() == "begun\nbegun\n");
    fs::write(&gate, "").unwrap();
    assert_eq!(gone(&mut client, &upgraded), Exit::Code(4));
    assert_eq!(text(), "begun\nbegun\nover\n");
    let pid = nix::unistd::Pid::from_raw(main.pid.cast_signed());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    assert_eq!(gone(&mut client, &replaced), Exit::Unknown);
    assert_eq!(host.output(&"replaced.1", "stdout"), "followed\n");
    assert!(is_dropped(&host, "upgraded.1") && is_dropped(&host, "replaced.1"));
}

#[test]
fn a_renewed_lease_lets_them_go_on() {
    let host = Host::start();
    let mut client = host.client();
    let mut spec = followed(
        "renewed.1",
        "true",
        &["while [ ! -e go ]; do sleep 0.01; done; echo over"],
    );
    spec.lease_until = Some(after(boot_now(), Span::from_secs(3600)));
    client.spawn(&spec);
    client.wait_ended(&spec.attempt);
    let until = BootMillis(after(boot_now(), Span::from_secs(7200)).0);
    client.send(&ToSupervisor::Renew { until });
    host.says("hooks run after it", 1);
    let workdir = host
        .attempt_dir(&"renewed.1")
        .join(sluice_common::attempt_dir::OWN_WORKDIR);
    fs::write(workdir.join("go"), "").unwrap();
    assert_eq!(gone(&mut client, &spec), Exit::Code(0));
    assert_eq!(host.output(&"renewed.1", "stdout"), "over\n");
}
