//! What supervisors leave that are killed and whose state directory is gone: the next supervisor on the host, of whichever
//! directory, removes it, and touches nothing else.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use sluice_supervisor::groups::name as naming;

use crate::client::sh;
use crate::host::{Host, lives, roots, send, until};

fn name(host: &Host) -> String {
    naming::of(host.dir.path()).unwrap()
}

/// Nobody will come back to it.
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
    // From here on the supervisor of any other test may remove it as well.
    lose(&mut lost);
    kept.kill();
    let _next = Host::start();
    assert_eq!(roots(&lost_name), Vec::<PathBuf>::new());
    assert_eq!(roots(&kept_name), before, "its directory is there");
    assert!(stranger.is_dir(), "nobody has said whose it is");
    fs::remove_dir(&stranger).unwrap();
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
