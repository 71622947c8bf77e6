//! Leftovers of killed supervisors whose state directory is gone: the next supervisor on the host, of any
//! directory, removes them and nothing else.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use sluice_supervisor::groups::name as naming;

use crate::client::sh;
use crate::host::{Host, lives, roots, send, until};

fn name(host: &Host) -> String {
    naming::of(host.dir.path()).unwrap()
}

/// Kills the supervisor and removes its directory.
fn lose(host: &mut Host) {
    host.kill();
    fs::remove_dir_all(host.dir.path()).unwrap();
}

#[test]
fn what_nobody_comes_back_for_is_removed_by_the_next_and_nothing_else_is() {
    let (mut lost, mut kept) = (Host::start(), Host::start());
    let (lost_name, kept_name) = (name(&lost), name(&kept));
    let before = roots(&kept_name);
    let Some(stranger) = before
        .first()
        .map(|root| root.with_file_name(format!("sluice-of-a-stranger-{}", std::process::id())))
    else {
        // No groups can be made here.
        return;
    };
    fs::create_dir(&stranger).unwrap();
    assert_eq!(roots(&lost_name).len(), before.len());
    // From here on the supervisor of another test may remove it as well.
    lose(&mut lost);
    kept.kill();
    let _next = Host::start();
    assert_eq!(roots(&lost_name), Vec::<PathBuf>::new());
    assert_eq!(roots(&kept_name), before, "its directory is there");
    assert!(stranger.is_dir(), "nobody has said whose it is");
    fs::remove_dir(&stranger).unwrap();
}

/// Every process in the groups of attempts below a root.
fn members(name: &str) -> Vec<u32> {
    let groups = roots(name)
        .into_iter()
        .flat_map(|root| fs::read_dir(root).unwrap());
    let lists =
        groups.filter_map(|it| fs::read_to_string(it.unwrap().path().join("cgroup.procs")).ok());
    let lists: Vec<String> = lists.collect();
    let pids = lists.iter().flat_map(|it| it.lines());
    pids.map(|pid| pid.parse().unwrap()).collect()
}

/// Empties the state directory, as with a new disk at the same place.
fn empty(dir: &std::path::Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => fs::remove_dir_all(&path).unwrap(),
            false => fs::remove_file(&path).unwrap(),
        }
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let mut command = std::process::Command::new("cp");
    let copied = command.arg("-a").arg(from.join(".")).arg(to).status();
    assert!(copied.unwrap().success());
}

#[test]
fn who_has_lost_its_directory_kills_what_it_ran_before_it_says_that_it_runs_nothing() {
    let (mut host, mut other) = (Host::start(), Host::start());
    let name = name(&host);
    if roots(&name).is_empty() {
        return;
    }
    // The step leaves its session and its parent, and ignores every signal that it can.
    let script =
        "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & wait";
    let (mut client, mut others) = (host.client(), other.client());
    let steps = [sh("lost.1", script), sh("frozen.1", "exec sleep 1000")];
    let pids = steps.each_ref().map(|step| {
        client.spawn(step);
        client.wait_running(&step.attempt).pid
    });
    // An attempt of the same id, of another supervisor that lives.
    let same = sh("lost.1", "exec sleep 1000");
    others.spawn(&same);
    let foreign = others.wait_running(&same.attempt).pid;
    let inside = members(&name);
    assert!(inside.len() > pids.len(), "{inside:?}");
    host.kill();
    empty(host.dir.path());
    host.restart();
    // The supervisor listens and reports that nothing runs, which must be true.
    for pid in inside {
        assert!(!lives(pid), "{pid} runs on");
    }
    assert_eq!(roots(&name), Vec::<PathBuf>::new());
    assert!(host.client().list().is_empty());
    assert!(lives(foreign), "another supervisor's step was touched");
    other.kill();
    other.restart();
    assert!(lives(foreign), "its own next one takes it up");
    send(foreign, Signal::SIGKILL);
}

#[test]
fn who_is_put_back_to_an_earlier_time_keeps_what_it_knows_and_kills_the_rest() {
    let mut host = Host::start();
    if roots(&name(&host)).is_empty() {
        return;
    }
    let (known, later) = (
        sh("known.1", "exec sleep 1000"),
        sh("later.1", "exec sleep 1000"),
    );
    let mut client = host.client();
    client.spawn(&known);
    let known_pid = client.wait_running(&known.attempt).pid;
    let backup = tempfile::tempdir().unwrap();
    copy(host.dir.path(), backup.path());
    client.spawn(&later);
    let later_pid = client.wait_running(&later.attempt).pid;
    host.kill();
    // A directory with another inode number: another disk, mounted at the same place.
    let path = host.dir.path().to_owned();
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    copy(backup.path(), &path);
    fs::remove_dir_all(&aside).unwrap();
    host.restart();
    assert!(!lives(later_pid), "nobody knows it");
    assert!(lives(known_pid), "it is known and runs on");
    send(known_pid, Signal::SIGKILL);
}

#[test]
fn what_runs_is_left_to_run() {
    let mut lost = Host::start();
    let name = name(&lost);
    if roots(&name).is_empty() {
        return;
    }
    let step = sh("left.1", "exec sleep 1000");
    let mut client = lost.client();
    client.spawn(&step);
    let pid = client.wait_running(&step.attempt).pid;
    lose(&mut lost);
    let next = Host::start();
    next.says("cannot be removed while something runs in it", 1);
    assert!(lives(pid) && !roots(&name).is_empty());
    send(pid, Signal::SIGKILL);
    until("it has ended", || !lives(pid));
    let _later = Host::start();
    assert_eq!(roots(&name), Vec::<PathBuf>::new());
}
