//! Storage on a file system with project quotas. Only root can mount one, and not every kernel supports it;
//! the guest's scenario `quotas` runs the same tests on kernels that do.

use std::fs;
use std::process::Command;

use sluice_common::supervision::{Exit, StorageBound, StorageExceeded};
use sluice_supervisor::sys::project;

use crate::client::sh;
use crate::host::{Host, until};
use crate::storage::{MIB, exceeded, granted};

/// Each attempt has a user of its own, because ext4 exempts root from quotas.
const OWN_USERS: &str = "min_free = \"0MiB\"\n";

/// For a grant of 40 MiB: 8 MiB more, and some blocks that are counted but not in the project.
const MOST: u64 = 49 * MIB;

/// A host on a disk with project quotas, if one can be made.
fn host() -> Option<(Host, tempfile::NamedTempFile)> {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(600 * MIB).unwrap();
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-O", "quota,project", "-N", "100000"])
        .arg(image.path())
        .status();
    let path = image.path().to_str().unwrap();
    let mount = ["-t", "ext4", "-o", "loop,prjquota", path];
    let made = made.is_ok_and(|status| status.success());
    let host = made.then(|| Host::start_on(&mount, OWN_USERS)).flatten();
    let Some(host) = host else {
        crate::left_out::left_out("no file system with project quotas can be made and mounted");
        return None;
    };
    host.says("storage limits are enforced by project quotas", 1);
    Some((host, image))
}

/// The project of an attempt, from its record.
fn project_of(host: &Host, id: &str) -> u32 {
    let text = fs::read_to_string(host.record(id)).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let project = record["storage"]["project"].as_u64().unwrap();
    u32::try_from(project).unwrap()
}

fn used(host: &Host, project: u32) -> project::ProjectAmount {
    let dir = fs::File::open(host.dir.path()).unwrap();
    project::used(std::os::fd::AsFd::as_fd(&dir), project).unwrap()
}

/// Most steps end by themselves after a rejected write, before any check, and their deleted files are gone by
/// then.
#[test]
fn a_step_is_refused_what_goes_beyond_its_grant_at_once_and_its_end_says_so() {
    let Some((host, _image)) = host() else { return };
    let mut client = host.client();
    for (id, script) in [
        ("write.1", "head -c 200M /dev/zero > x || exit 3"),
        ("blocks.1", "touch x; fallocate -n -l 200M x || exit 3"),
        (
            "nameless.1",
            "exec 9>gone; rm gone; head -c 200M /dev/zero >&9; exec sleep 600",
        ),
        (
            "outside.1",
            "head -c 200M /dev/zero > $(dirname $SLUICE_CHECKPOINT_FILE)/x || exit 3",
        ),
    ] {
        let mut spec = granted(id, 40, &format!("echo begun; {script}"));
        let step_dir = host.attempt_dir(&id).join("step/checkpoint");
        let step_dir = step_dir.to_str().unwrap().to_owned();
        spec.env
            .insert("SLUICE_CHECKPOINT_FILE".to_owned(), step_dir);
        let found = exceeded(client.run(&spec));
        assert_eq!(found.bound, StorageBound::Granted(40 * MIB), "{id}");
        let within = 40 * MIB..=MOST;
        assert!(within.contains(&found.used_bytes), "{id}: {found:?}");
    }
}

#[test]
fn a_step_is_refused_more_files_than_come_with_its_grant() {
    let Some((host, _image)) = host() else { return };
    let mut client = host.client();
    let script = "seq 60000 | xargs touch || exit 3";
    let found = exceeded(client.run(&granted("files.1", 100, script)));
    assert_eq!(found.bound, StorageBound::Files(50_000));
    assert!(found.used_files <= 50_064, "{found:?}");
}

/// The writer must not be limited by the project of the step.
#[test]
fn output_is_not_in_the_project_of_its_step() {
    let Some((host, _image)) = host() else { return };
    let mut client = host.client();
    let script = "head -c 30M /dev/zero > x; head -c 5M /dev/zero; exec sleep 600";
    let spec = granted("both.1", 40, script);
    client.spawn(&spec);
    let stdout = host.attempt_dir(&"both.1").join("stdout");
    until("its output is there", || {
        fs::metadata(&stdout).is_ok_and(|found| found.len() == 5 * MIB)
    });
    let used = used(&host, project_of(&host, "both.1")).bytes;
    assert!((30 * MIB..31 * MIB).contains(&used), "{used}");
}

/// The kernel lets the owner of a file change its project.
#[test]
fn a_step_moves_none_of_its_files_out_of_its_project_or_into_that_of_another() {
    let Some((host, _image)) = host() else { return };
    let mut client = host.client();
    let other = granted("other.1", 40, "exec sleep 600");
    client.spawn(&other);
    client.wait_running(&other.attempt);
    let project = project_of(&host, "other.1");
    let script = format!(
        "mkdir d; head -c 10M /dev/zero > x
        for p in 0 {project}; do chattr -p $p x && echo moved; chattr -p $p d && echo moved; done
        chattr -P d && echo let go
        head -c 200M /dev/zero > d/y || exit 3"
    );
    let StorageExceeded { used_bytes, .. } = exceeded(client.run(&granted("thief.1", 40, &script)));
    assert!(used_bytes <= MOST);
    assert_eq!(host.output(&"thief.1", "stdout"), "");
    let stderr = host.output(&"thief.1", "stderr");
    assert_eq!(stderr.matches("not permitted").count(), 5, "{stderr}");
    // A step without a grant could do it as well.
    let none = format!("touch x; chattr -p {project} x && echo moved");
    assert_eq!(client.run(&sh("none.1", &none)), Exit::Code(1));
    assert!(used(&host, project).files <= 2);
}

#[test]
fn a_quota_holds_under_the_next_supervisor_and_its_project_is_free_when_its_last_file_is_gone() {
    let Some((mut host, _image)) = host() else {
        return;
    };
    let mut client = host.client();
    let script = "while [ ! -e go ]; do sleep 0.05; done; head -c 200M /dev/zero > x || exit 3";
    let spec = granted("later.1", 40, script);
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    let project = project_of(&host, "later.1");
    assert_eq!(used(&host, project).files, 2);
    host.kill();
    host.restart();
    let mut client = host.client();
    host.upgrade();
    let _disconnected = client.is_dropped();
    let mut client = host.client();
    fs::write(host.attempt_dir(&"later.1").join("work/go"), "").unwrap();
    let found = exceeded(client.wait_gone(&spec.attempt).exit);
    assert!(found.used_bytes <= MOST, "{found:?}");
    client.forget(&spec.attempt);
    until("nothing of it is left", || used(&host, project).files == 0);
}
