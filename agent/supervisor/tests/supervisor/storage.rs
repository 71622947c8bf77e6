//! Storage limits of steps, and what happens to a step that exceeds them.

use std::fs;

use sluice_common::host_health::HostHealth;
use sluice_common::supervision::{Exit, ResourceLimits, SpawnSpec, StorageBound, StorageExceeded};

use crate::client::{Client, sh};
use crate::host::{Host, until};

pub(crate) const MIB: u64 = 1 << 20;
const AS_ROOT: &str = "default_user = 0\nallow_root = true\n";

pub(crate) fn granted(id: &str, mib: u64, script: &str) -> SpawnSpec {
    SpawnSpec {
        limits: ResourceLimits {
            storage_bytes: Some(mib * MIB),
            ..ResourceLimits::default()
        },
        ..sh(id, script)
    }
}

pub(crate) fn exceeded(exit: Exit) -> StorageExceeded {
    match exit {
        Exit::StorageExceeded(found) => found,
        other => panic!("{other:?}"),
    }
}

/// Waits until the host reports itself as fit or unfit.
fn wait_health(client: &mut Client, fit: bool) {
    client.wait("word of the host's health", |c| {
        (matches!(c.health.as_ref()?, HostHealth::Fit) == fit).then_some(())
    });
}

/// By any means: blocks beyond the end of a file, a deleted file, deep directories, output.
#[test]
fn a_step_that_takes_more_than_its_grant_is_stopped_and_told_why() {
    let host = Host::start();
    let mut client = host.client();
    for (id, script) in [
        (
            "blocks.1",
            "touch hidden; fallocate -n -l 60M hidden; exec sleep 600",
        ),
        (
            "nameless.1",
            "exec 9>gone; rm gone; fallocate -l 60M /proc/self/fd/9; exec sleep 600",
        ),
        (
            "outside.1",
            "fallocate -l 60M $(dirname $SLUICE_CHECKPOINT_FILE)/x; exec sleep 600",
        ),
        ("output.1", "head -c 60M /dev/zero; exec sleep 600"),
    ] {
        let mut spec = granted(id, 40, script);
        let step_dir = host.attempt_dir(&id).join("step/checkpoint");
        spec.env = [
            ("PATH", "/usr/bin:/bin"),
            ("SLUICE_CHECKPOINT_FILE", step_dir.to_str().unwrap()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let found = exceeded(client.run(&spec));
        assert_eq!(found.bound, StorageBound::Granted(40 * MIB), "{id}");
        assert!(
            found.used_bytes >= 60 * MIB && found.used_files > 2,
            "{id}: {found:?}"
        );
        let work = host.attempt_dir(&id).join("work");
        until("its directory goes", || !work.exists());
    }
}

/// Empty files use no blocks, but the disk has a limited number of files.
#[test]
fn a_step_that_makes_more_files_than_come_with_its_grant_is_stopped_and_told_why() {
    let host = Host::start_on_disk(200, AS_ROOT);
    let mut client = host.client();
    let script = "seq 60000 | xargs touch; exec sleep 600";
    let found = exceeded(client.run(&granted("files.1", 40, script)));
    assert_eq!(found.bound, StorageBound::Files(50_000));
    assert!(found.used_files > 50_000, "{found:?}");
}

#[test]
fn a_step_within_its_grant_runs_on_and_so_does_one_that_has_links_and_holes() {
    let host = Host::start();
    let mut client = host.client();
    let script =
        "truncate -s 1T sparse; fallocate -l 20M data; for n in 1 2 3 4 5; do ln data l$n; done
        n=0; while [ $n -lt 40 ]; do sleep 0.1; n=$((n+1)); done";
    assert_eq!(client.run(&granted("within.1", 40, script)), Exit::Code(0));
}

#[test]
fn what_was_stopped_for_its_storage_is_told_so_by_the_next_supervisor_too() {
    let mut host = Host::start();
    let mut client = host.client();
    let spec = granted("later.1", 40, "fallocate -l 60M data; exec sleep 600");
    client.spawn(&spec);
    let id = &spec.attempt;
    until("its record says why", || {
        fs::read_to_string(host.record("later.1")).is_ok_and(|text| text.contains("\"exceeded\""))
    });
    host.kill();
    host.restart();
    let mut client = host.client();
    let found = exceeded(client.wait_gone(id).exit);
    assert_eq!(found.bound, StorageBound::Granted(40 * MIB));
}

#[test]
fn a_full_disk_takes_no_work_stops_who_filled_it_and_opens_again() {
    let host = Host::start_on_disk(200, &format!("{AS_ROOT}min_free = \"40MiB\"\n"));
    let mut client = host.client();
    wait_health(&mut client, true);
    let kept = granted("kept.1", 60, "fallocate -l 50M data; exec sleep 600");
    client.spawn(&kept);
    let small = sh("small.1", "fallocate -l 2M data; exec sleep 600");
    client.spawn(&small);
    client.wait_running(&kept.attempt);
    client.wait_running(&small.attempt);
    let large = sh("large.1", "head -c 300M /dev/zero > data; exec sleep 600");
    client.spawn(&large);
    let found = exceeded(client.wait_gone(&large.attempt).exit);
    assert_eq!(found.bound, StorageBound::Reserve);
    assert!(found.used_bytes > 60 * MIB, "{found:?}");
    wait_health(&mut client, true);
    let views = client.list();
    assert_eq!(views.len(), 3);
    client.wait_running(&kept.attempt);
    client.wait_running(&small.attempt);
    assert_eq!(client.run(&sh("next.1", "true")), Exit::Code(0));
}

#[test]
fn nobody_is_stopped_where_that_would_not_help() {
    let host = Host::start_on_disk(200, &format!("{AS_ROOT}min_free = \"40MiB\"\n"));
    let mut client = host.client();
    let small = sh("small.1", "fallocate -l 2M data; exec sleep 600");
    client.spawn(&small);
    client.wait_running(&small.attempt);
    let others = host.dir.path().join("others");
    fs::write(&others, vec![1; 180 * MIB as usize]).unwrap();
    wait_health(&mut client, false);
    match client.run(&sh("next.1", "true")) {
        Exit::HostFailed(why) => assert!(why.contains("its disk is nearly full"), "{why}"),
        other => panic!("{other:?}"),
    }
    fs::remove_file(others).unwrap();
    wait_health(&mut client, true);
    client.wait_running(&small.attempt);
    assert_eq!(client.run(&sh("after.1", "true")), Exit::Code(0));
}

#[test]
fn the_working_directory_goes_at_the_end_unless_it_is_kept() {
    let mut host = Host::start();
    let mut client = host.client();
    assert_eq!(
        client.run(&sh("goes.1", "echo x > file; echo out")),
        Exit::Code(0)
    );
    let work = host.attempt_dir(&"goes.1").join("work");
    until("its directory goes", || !work.exists());
    assert_eq!(host.output(&"goes.1", "stdout"), "out\n");
    host.configure(&format!("{AS_ROOT}keep_work = \"1d\"\n"));
    host.kill();
    host.restart();
    let mut client = host.client();
    assert_eq!(client.run(&sh("stays.1", "echo x > file")), Exit::Code(0));
    assert!(host.attempt_dir(&"stays.1").join("work/file").exists());
}
