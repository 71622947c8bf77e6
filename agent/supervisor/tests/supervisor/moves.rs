//! Attempts with GPU memory: a helper moves it before a freeze, and back after. A script stands in for
//! NVIDIA's tool; it keeps each process's state in a file and records each toggle.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_common::id::AttemptId;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::supervision::{
    Exit, FreezeRefusal, FreezerState, MovedMemory, StopSignal, ToSupervisor,
};
use sluice_common::time::Span;

use crate::client::{Client, sh};
use crate::host::{Host, until};

/// Files beside the script control it: `refuses` and `hangs` contain the state in which it does so.
const TOOL: &str = r#"#!/bin/sh
at=FOLDER
case $1 in
--help) exit 0 ;;
--get-state) cat $at/state-$3 2>/dev/null || echo running; exit 0 ;;
esac
pid=$3
state=$(cat $at/state-$pid 2>/dev/null || echo running)
echo "$state $pid $(id -u) $(grep -c "$ATTEMPT" /proc/$$/cgroup)" >> $at/calls
if [ "$state" = "$(cat $at/refuses 2>/dev/null)" ]; then echo 'it will not' >&2; exit 1; fi
if [ "$state" = "$(cat $at/hangs 2>/dev/null)" ]; then echo $$ > $at/hanging; sleep 1000; fi
if [ $state = running ]; then echo checkpointed; else echo running; fi > $at/new-$pid
mv $at/new-$pid $at/state-$pid
"#;

struct Gpu {
    folder: tempfile::TempDir,
}

impl Gpu {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), everybody.clone()).unwrap();
        let script = TOOL.replace("FOLDER", &folder.path().display().to_string());
        let script = script.replace("$ATTEMPT", "attempt-gpu.1");
        fs::write(folder.path().join("new"), script).unwrap();
        fs::set_permissions(folder.path().join("new"), everybody).unwrap();
        fs::rename(folder.path().join("new"), folder.path().join("tool")).unwrap();
        Self { folder }
    }

    /// A supervisor whose helpers find only the script, with an attempt that counts.
    fn host(&self) -> (Host, Client, AttemptId, u32) {
        let config = format!(
            "cuda_library = \"/no/such/libcuda.so.1\"\ncuda_checkpoint = \"{}\"\n",
            self.at("tool").display()
        );
        let host = Host::start_under(&config, &[]);
        let mut client = host.client();
        let spec = sh("gpu.1", "while :; do echo; done >counted");
        client.spawn(&spec);
        let process = client.wait_running(&spec.attempt);
        (host, client, spec.attempt, process.pid)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn say(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    /// The states in which processes were toggled, in order.
    fn toggled(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.at("calls")).unwrap_or_default();
        let first = |line: &str| line.split(' ').next().unwrap().to_owned();
        calls.lines().map(first).collect()
    }
}

fn freezes(client: &Client) -> bool {
    client.capabilities[&Capability::Freeze] != Mechanism::None
}

fn order(client: &mut Client, id: &AttemptId, users: &[u32], limit: Span) {
    client.send(&ToSupervisor::Suspend {
        attempt: id.clone(),
        users: users.to_vec(),
        bytes: 1 << 30,
        limit,
    });
}

fn suspend(client: &mut Client, id: &AttemptId, users: &[u32], limit: Span) -> FreezerState {
    order(client, id, users, limit);
    client.wait("word of the suspension", |c| match &c.views[id].freezer {
        state @ (FreezerState::Frozen | FreezerState::Moved(_) | FreezerState::Refused(_)) => {
            Some(state.clone())
        }
        FreezerState::Thawed
        | FreezerState::Freezing
        | FreezerState::Moving
        | FreezerState::Restoring => None,
    })
}

const LONG: Span = Span::from_secs(60);

fn count(host: &Host, id: &AttemptId) -> u64 {
    let file = host.attempt_dir(id).join("work/counted");
    fs::metadata(file).map_or(0, |file| file.len())
}

fn counts_on(host: &Host, id: &AttemptId) {
    let before = count(host, id);
    until("it counts on", || count(host, id) > before);
}

fn moved(pid: u32) -> FreezerState {
    FreezerState::Moved(MovedMemory {
        pids: vec![pid],
        bytes: 1 << 30,
    })
}

#[test]
fn what_is_on_gpus_is_moved_as_the_step_s_user_before_the_freeze_and_back_after_the_thaw() {
    let gpu = Gpu::new();
    let (host, mut client, id, pid) = gpu.host();
    if !freezes(&client) {
        let refused = FreezerState::Refused(FreezeRefusal::Unsupported);
        return assert_eq!(suspend(&mut client, &id, &[pid], LONG), refused);
    }
    for round in 1..=2 {
        // Process 1 and this test do not belong to the attempt.
        let users = [1, pid, std::process::id(), pid];
        assert_eq!(suspend(&mut client, &id, &users, LONG), moved(pid));
        assert_eq!(gpu.toggled().len(), round * 2 - 1);
        client.thaw(&id);
        assert_eq!(gpu.toggled().len(), round * 2);
        counts_on(&host, &id);
    }
    assert_eq!(gpu.toggled()[..2], ["running", "checkpointed"]);
    let calls = fs::read_to_string(gpu.at("calls")).unwrap();
    let user = fs::metadata(format!("/proc/{pid}")).unwrap().uid();
    for line in calls.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[1], pid.to_string(), "{calls}");
        assert_eq!(words[2], user.to_string(), "{calls}");
        assert_ne!(
            words[3], "0",
            "a helper stands outside the step's groups: {calls}"
        );
    }
    client.signal(&id, StopSignal::Kill);
    assert_eq!(client.wait_gone(&id).exit, Exit::Signal(9));
}

#[test]
fn what_is_refused_or_hangs_is_undone_and_it_runs_on() {
    let gpu = Gpu::new();
    let (host, mut client, id, pid) = gpu.host();
    if !freezes(&client) {
        return;
    }
    gpu.say("refuses", "running");
    let FreezerState::Refused(FreezeRefusal::Failed(why)) = suspend(&mut client, &id, &[pid], LONG)
    else {
        panic!("it was refused: {:?}", client.views);
    };
    assert!(why.contains("it will not"), "{why}");
    counts_on(&host, &id);
    gpu.say("refuses", "");
    gpu.say("hangs", "running");
    let late = FreezerState::Refused(FreezeRefusal::TimedOut);
    client.thaw(&id);
    let short = Span::from_millis(300);
    assert_eq!(suspend(&mut client, &id, &[pid], short), late);
    counts_on(&host, &id);
    gpu.say("hangs", "");
    client.thaw(&id);
    assert_eq!(suspend(&mut client, &id, &[pid], LONG), moved(pid));
    gpu.say("refuses", "checkpointed");
    client.send(&ToSupervisor::Thaw {
        attempt: id.clone(),
    });
    let why = client.wait("word of the thaw", |c| match &c.views[&id].freezer {
        FreezerState::Refused(FreezeRefusal::NotRestored(why)) => Some(why.clone()),
        _ => None,
    });
    assert!(why.contains("it will not"), "{why}");
}

#[test]
fn a_supervisor_that_dies_in_the_middle_leaves_the_rest_to_the_next() {
    let gpu = Gpu::new();
    let (mut host, mut client, id, pid) = gpu.host();
    if !freezes(&client) {
        return;
    }
    assert_eq!(suspend(&mut client, &id, &[pid], LONG), moved(pid));
    host.kill();
    host.restart();
    let mut client = host.client();
    assert_eq!(client.views[&id].freezer, moved(pid), "it is moved still");
    client.thaw(&id);
    assert_eq!(gpu.toggled(), ["running", "checkpointed"]);
    counts_on(&host, &id);

    // The helper dies with its supervisor, after the driver is done.
    gpu.say("hangs", "running");
    order(&mut client, &id, &[pid], LONG);
    until("it hangs", || gpu.at("hanging").exists());
    host.kill();
    let tool = fs::read_to_string(gpu.at("hanging")).unwrap();
    end(&tool);
    gpu.say(&format!("state-{pid}"), "checkpointed");
    host.restart();
    let mut client = host.client();
    client.wait("it is back", |c| {
        (c.views[&id].freezer == FreezerState::Thawed).then_some(())
    });
    assert_eq!(gpu.toggled().last().unwrap(), "checkpointed");
    counts_on(&host, &id);
}

/// Kills the script, a child of the helper that survives the supervisor.
fn end(pid: &str) {
    let pid = pid.trim().parse().unwrap();
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    until("it is dead", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
}

#[test]
fn an_upgrade_keeps_what_is_away_and_a_kill_waits_for_no_helper() {
    let gpu = Gpu::new();
    let (host, mut client, id, pid) = gpu.host();
    if !freezes(&client) {
        return;
    }
    assert_eq!(suspend(&mut client, &id, &[pid], LONG), moved(pid));
    host.upgrade();
    let mut client = host.client();
    assert_eq!(client.views[&id].freezer, moved(pid), "it is moved still");
    client.thaw(&id);
    assert_eq!(gpu.toggled(), ["running", "checkpointed"]);
    gpu.say("hangs", "running");
    order(&mut client, &id, &[pid], LONG);
    until("it hangs", || gpu.at("hanging").exists());
    client.signal(&id, StopSignal::Kill);
    assert_eq!(client.wait_gone(&id).exit, Exit::Signal(9));
}
