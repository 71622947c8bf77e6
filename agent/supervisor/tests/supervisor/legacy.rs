//! Groups of version 1, on a simulated host without version 2.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use sluice_cgroups::Hierarchies;
use sluice_common::id::AttemptId;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::supervision::{FreezerState, ResourceLimits};
use sluice_supervisor::groups::{Groups, name, options::GroupOptions};
use sluice_supervisor::process;

use crate::host::until;

/// This machine without its hierarchy of version 2.
struct Old {
    root: tempfile::TempDir,
}

impl Old {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        for (name, banned) in [("mountinfo", " - cgroup2 "), ("cgroup", "0::")] {
            let text = fs::read_to_string(format!("/proc/self/{name}")).unwrap();
            let lines = text.lines().filter(|line| !line.contains(banned));
            let lines: Vec<&str> = lines.collect();
            let path = root.path().join("proc/self").join(name);
            fs::write(path, lines.join("\n") + "\n").unwrap();
        }
        std::os::unix::fs::symlink("/sys", root.path().join("sys")).unwrap();
        Self { root }
    }

    fn groups(&self) -> Groups {
        let options = GroupOptions {
            pids_max: Some(20),
            ..GroupOptions::default()
        };
        Groups::open(self.root.path(), &options, &self.name())
    }

    fn name(&self) -> String {
        name::settle(self.root.path(), false).unwrap()
    }

    /// The directories of an attempt in each hierarchy that is used.
    fn directories(&self, attempt: &AttemptId) -> Vec<PathBuf> {
        let name = self.name();
        let hierarchies = Hierarchies::read(self.root.path()).unwrap();
        let own = hierarchies.legacy.values();
        let each = own.map(|own| own.group.join(&name).join(format!("attempt-{attempt}")));
        each.filter(|path| path.exists()).collect()
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        self.groups().close();
    }
}

/// A process in these groups, which runs `script` only after it has entered all of them.
fn shell(directories: &[PathBuf], script: &str) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("read gate; {script}")]);
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = shell.spawn().unwrap();
    for dir in directories {
        fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child
}

#[test]
fn version_1_limits_freezes_and_kills() {
    let host = Old::new();
    let mut groups = host.groups();
    let capabilities = groups.capabilities();
    let of = |what| capabilities[&what];
    assert_eq!(
        of(Capability::Memory),
        Mechanism::None,
        "that hierarchy is not ours"
    );
    if of(Capability::Freeze) != Mechanism::Cgroup1 || of(Capability::Cpu) != Mechanism::Cgroup1 {
        // No such hierarchies here, or this user may not use them.
        return;
    }
    let attempt: AttemptId = "old.1".parse().unwrap();
    let limits = ResourceLimits {
        mcpu: Some(500),
        memory_bytes: None,
        storage_bytes: None,
    };
    groups
        .make(&attempt, &limits, &Default::default(), None)
        .unwrap();
    let directories = host.directories(&attempt);
    let quota = directories
        .iter()
        .find_map(|dir| fs::read_to_string(dir.join("cpu.cfs_quota_us")).ok());
    assert_eq!(quota.unwrap().trim(), "50000");

    let mut main = shell(&directories, "while :; do sleep 1000 & done");
    until("it has all the processes that it may have", || {
        groups.members(&attempt).len() >= 10
    });
    assert!(groups.is_populated(&attempt));
    groups.freeze(&attempt).unwrap();
    until("it is frozen", || {
        groups.freezer(&attempt) == FreezerState::Frozen
    });
    groups.thaw(&attempt).unwrap();
    assert_eq!(groups.freezer(&attempt), FreezerState::Thawed);

    groups.kill(&attempt);
    main.wait().unwrap();
    until("nothing is left", || !groups.is_populated(&attempt));
    assert!(groups.usage(&attempt).cpu_us.is_some());
    groups.remove(&attempt);
    until("the groups are gone", || !groups.remove_leaving());
    assert_eq!(host.directories(&attempt), Vec::<PathBuf>::new());
}

#[test]
fn version_1_is_killed_while_it_is_frozen() {
    let host = Old::new();
    let mut groups = host.groups();
    if groups.capabilities()[&Capability::Freeze] != Mechanism::Cgroup1 {
        return;
    }
    let attempt: AttemptId = "old.2".parse().unwrap();
    groups
        .make(
            &attempt,
            &ResourceLimits::default(),
            &Default::default(),
            None,
        )
        .unwrap();
    let mut main = shell(&host.directories(&attempt), "exec sleep 1000");
    groups.freeze(&attempt).unwrap();
    until("it is frozen", || {
        groups.freezer(&attempt) == FreezerState::Frozen
    });
    groups.remove(&attempt);
    main.wait().unwrap();
    assert!(process::stat(main.id()).is_none());
    until("the groups are gone", || !groups.remove_leaving());
    assert_eq!(host.directories(&attempt), Vec::<PathBuf>::new());
}

#[test]
fn where_version_2_cannot_kill_what_version_1_holds_frozen_dies() {
    // Simulated: kernels before 5.14 have groups of version 2 without `cgroup.kill`, so version 1 freezes.
    let root = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let mounts = "30 29 0:26 / /two rw - cgroup2 cgroup2 rw\n31 29 0:27 / /freezer rw - cgroup cgroup rw,freezer\n";
    put("proc/self/mountinfo", mounts);
    put("proc/self/cgroup", "3:freezer:/\n0::/\n");
    for top in ["two", "freezer"] {
        fs::create_dir(root.path().join(top)).unwrap();
    }
    let name = name::settle(root.path(), false).unwrap();
    let mut groups = Groups::open(root.path(), &GroupOptions::default(), &name);
    assert_eq!(groups.capabilities()[&Capability::Kill], Mechanism::Cgroup1);
    let attempt: AttemptId = "a.1".parse().unwrap();
    groups
        .make(
            &attempt,
            &ResourceLimits::default(),
            &Default::default(),
            None,
        )
        .unwrap();
    let mut child = Command::new("sleep")
        .arg("60")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let group = format!("freezer/{name}/attempt-a.1");
    put(&format!("{group}/freezer.state"), "FROZEN");
    put(&format!("{group}/cgroup.procs"), &child.id().to_string());
    groups.kill(&attempt);
    let state = fs::read_to_string(root.path().join(group).join("freezer.state"));
    assert_eq!(state.unwrap(), "THAWED", "what is frozen there cannot die");
    let ended = || child.try_wait().unwrap().is_some();
    until("it is killed", ended);
}
