//! What this host offers for holding the processes of a step, and by which means. This is what is there to be used; the
//! supervisor's own log says what it uses.
//!
//! A kernel may have both versions of control groups mounted, in any place, and a mounted hierarchy of version 2 may have
//! no controllers at all while it can still freeze and kill. So mounts are read from `mountinfo`, never assumed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sluice_common::inventory::{Capability, Mechanism};

use super::notes::Notes;

/// Where control groups are mounted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mounts {
    /// Of version 2.
    unified: Option<PathBuf>,
    /// Controllers of version 1.
    legacy: BTreeSet<String>,
}

/// Each capability with the best mechanism. `root` is `/`, or what a test puts in its place.
pub(crate) fn detect(root: &Path, notes: &mut Notes) -> BTreeMap<Capability, Mechanism> {
    let mounts = match fs::read_to_string(root.join("proc/self/mountinfo")) {
        Ok(text) => mounts(&text),
        Err(error) => {
            notes.add(format!(
                "control groups cannot be looked for: mountinfo: {error}"
            ));
            Mounts::default()
        }
    };
    let group = mounts
        .unified
        .as_deref()
        .map(|mount| own_group(root, mount));
    let controllers = group.as_deref().map(controllers).unwrap_or_default();
    Capability::ALL
        .map(|capability| {
            let unified = group
                .as_deref()
                .is_some_and(|g| offers(g, &controllers, capability));
            (capability, best(unified, &mounts.legacy, capability))
        })
        .into()
}

/// Lines such as `30 29 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw`: the mount point is the fifth
/// word, the type follows the dash, the last word holds the controllers of version 1.
fn mounts(mountinfo: &str) -> Mounts {
    let mut mounts = Mounts::default();
    for line in mountinfo.lines() {
        let Some((place, kind)) = line.split_once(" - ") else {
            continue;
        };
        let mut kind = kind.split_whitespace();
        match (kind.next(), place.split_whitespace().nth(4)) {
            (Some("cgroup2"), Some(point)) => {
                mounts.unified.get_or_insert_with(|| point.into());
            }
            (Some("cgroup"), _) => {
                let options = kind.last().unwrap_or_default();
                mounts.legacy.extend(options.split(',').map(str::to_owned));
            }
            _ => {}
        }
    }
    mounts
}

/// The group of this process, below the mount: the line `0::` of its own list.
fn own_group(root: &Path, mount: &Path) -> PathBuf {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    let own = own.unwrap_or("/").trim_start_matches('/');
    root.join(mount.strip_prefix("/").unwrap_or(mount))
        .join(own)
}

fn controllers(group: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Whether a group of version 2 can do it. The root group has neither `cgroup.kill` nor `cgroup.freeze`, and every group
/// that is made below it has, so a group is judged by the kernel's release of the feature where it is the root.
fn offers(group: &Path, controllers: &BTreeSet<String>, capability: Capability) -> bool {
    let is_root = !group.join("cgroup.events").exists();
    let file =
        |name: &str| is_root && group.join("cgroup.procs").exists() || group.join(name).exists();
    match capability {
        Capability::Kill => file("cgroup.kill"),
        Capability::Freeze => file("cgroup.freeze"),
        // Programs that filter devices are attached to any group.
        Capability::Devices => group.join("cgroup.procs").exists(),
        Capability::Cpu => controllers.contains("cpu"),
        Capability::Memory => controllers.contains("memory"),
        Capability::Pids => controllers.contains("pids"),
    }
}

fn best(unified: bool, legacy: &BTreeSet<String>, capability: Capability) -> Mechanism {
    let controller = match capability {
        Capability::Kill | Capability::Freeze => "freezer",
        Capability::Devices => "devices",
        Capability::Cpu => "cpu",
        Capability::Memory => "memory",
        Capability::Pids => "pids",
    };
    match (unified, legacy.contains(controller), capability) {
        (true, ..) => Mechanism::Cgroup2,
        // Frozen first, nobody escapes a kill by forking.
        (false, true, _) => Mechanism::Cgroup1,
        (false, false, Capability::Kill) => Mechanism::ProcessGroup,
        (false, false, _) => Mechanism::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with these files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn found(files: &[(&str, &str)]) -> Vec<(Capability, Mechanism)> {
        let mut notes = Notes::default();
        let found = detect(tree(files).path(), &mut notes);
        assert_eq!(found.len(), Capability::ALL.len());
        found.into_iter().collect()
    }

    #[test]
    fn a_unified_host_does_all_by_version_2() {
        let group = "sys/fs/cgroup/system.slice/a.service";
        let file = |name: &str| format!("{group}/{name}");
        let found = found(&[
            (
                "proc/self/mountinfo",
                "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
            ),
            ("proc/self/cgroup", "0::/system.slice/a.service\n"),
            (&file("cgroup.controllers"), "cpuset cpu io memory pids\n"),
            (&file("cgroup.events"), ""),
            (&file("cgroup.procs"), ""),
            (&file("cgroup.kill"), ""),
            (&file("cgroup.freeze"), ""),
        ]);
        assert!(
            found.iter().all(|(_, how)| *how == Mechanism::Cgroup2),
            "{found:?}"
        );
    }

    #[test]
    fn a_hybrid_host_takes_from_each_what_it_has() {
        let found = found(&[
            (
                "proc/self/mountinfo",
                "29 28 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                 30 28 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                 31 28 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
            ),
            ("proc/self/cgroup", "5:pids:/x\n0::/x\n"),
            ("sys/fs/cgroup/unified/x/cgroup.controllers", "\n"),
            ("sys/fs/cgroup/unified/x/cgroup.events", ""),
            ("sys/fs/cgroup/unified/x/cgroup.procs", ""),
            ("sys/fs/cgroup/unified/x/cgroup.kill", ""),
            ("sys/fs/cgroup/unified/x/cgroup.freeze", ""),
        ]);
        let expected = [
            (Capability::Kill, Mechanism::Cgroup2),
            (Capability::Freeze, Mechanism::Cgroup2),
            (Capability::Devices, Mechanism::Cgroup2),
            (Capability::Cpu, Mechanism::Cgroup1),
            (Capability::Memory, Mechanism::None),
            (Capability::Pids, Mechanism::Cgroup1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_host_without_any_has_process_groups_to_kill_and_nothing_else() {
        for files in [&[][..], &[("proc/self/mountinfo", "garbage\n\n - \n")][..]] {
            let found = found(files);
            assert_eq!(found[0], (Capability::Kill, Mechanism::ProcessGroup));
            assert!(
                found[1..].iter().all(|(_, how)| *how == Mechanism::None),
                "{found:?}"
            );
        }
    }
}
