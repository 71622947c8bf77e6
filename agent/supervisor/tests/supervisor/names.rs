//! Names of a supervisor's groups: random, and not the directory's inode number, which another directory may
//! have had. Steps under a name of an earlier release keep running.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;
use sluice_cgroups::Hierarchies;
use sluice_supervisor::groups::name;

use crate::client::sh;
use crate::host::{Host, lives, roots, send, until};

/// The name that earlier releases used.
fn old_name(host: &Host) -> String {
    let found = fs::metadata(host.dir.path()).unwrap();
    format!("sluice-{:x}-{:x}", found.dev(), found.ino())
}

/// A supervisor with the old form of the name, because it cannot store another.
fn start_old() -> Host {
    let mut host = Host::start();
    host.kill();
    fs::remove_file(host.dir.path().join("groups")).unwrap();
    fs::create_dir(host.dir.path().join("groups.new")).unwrap();
    host.restart();
    assert_eq!(name::of(host.dir.path()).unwrap(), old_name(&host));
    host
}

#[test]
fn what_runs_under_an_old_name_runs_on_and_what_comes_later_has_a_new_one() {
    let mut host = start_old();
    let old = old_name(&host);
    if roots(&old).is_empty() {
        // No groups can be made here.
        return;
    }
    let step = sh("old.1", "sleep 1000 & exec sleep 1000");
    let mut client = host.client();
    client.spawn(&step);
    let main = client.wait_running(&step.attempt).pid;
    // The next supervisor can store a name.
    fs::remove_dir(host.dir.path().join("groups.new")).unwrap();
    host.upgrade();
    host.kill();
    host.restart();
    let mut client = host.client();
    assert_eq!(client.wait_running(&step.attempt).pid, main);
    assert!(lives(main) && !host.groups().is_empty());
    client.signal(&step.attempt, sluice_common::supervision::StopSignal::Kill);
    client.wait_gone(&step.attempt);
    client.forget(&step.attempt);
    host.upgrade();
    let new = name::of(host.dir.path()).unwrap();
    assert_ne!(new, old);
    assert_eq!(roots(&old), Vec::<PathBuf>::new());
    let next = sh("new.1", "exec sleep 1000");
    let mut client = host.client();
    client.spawn(&next);
    client.wait_running(&next.attempt);
    assert!(!host.groups().is_empty());
}

#[test]
fn a_directory_with_the_number_of_one_that_is_gone_takes_nothing_of_its_steps() {
    let mut host = Host::start();
    let Some(unified) = Hierarchies::read(std::path::Path::new("/"))
        .unwrap()
        .unified
    else {
        return;
    };
    host.close_stdin();
    // The directory looks as if it was just made.
    for entry in fs::read_dir(host.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    let root = unified.group.join(old_name(&host));
    let group = root.join("attempt-left.1");
    if fs::create_dir_all(&group).is_err() {
        return;
    }
    let mut left = Command::new("sleep").arg("1000").spawn().unwrap();
    fs::write(group.join("cgroup.procs"), left.id().to_string()).unwrap();
    host.restart();
    assert!(left.try_wait().unwrap().is_none() && group.is_dir());
    send(left.id(), Signal::SIGKILL);
    left.wait().unwrap();
    until("its group is removed", || {
        fs::remove_dir(&group).is_ok() && fs::remove_dir(&root).is_ok()
    });
}
