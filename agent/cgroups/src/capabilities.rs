//! Detects what this host can do with the processes of a step, and by which mechanism. This is what the host
//! has; the supervisor reports what it actually uses.
//!
//! A mounted hierarchy of version 2 may have no controllers and still freeze and kill, so each capability is
//! checked by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use sluice_common::inventory::{Capability, Mechanism};

use crate::mounts::{Controller, Hierarchies};

/// The best mechanism for each capability. `root` is `/`, or a test's directory.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn detect_capabilities(root: &Path) -> io::Result<BTreeMap<Capability, Mechanism>> {
    Hierarchies::read(root).map(|found| best_mechanisms(&found))
}

/// The mechanisms that every Linux has.
pub fn minimum_capabilities() -> BTreeMap<Capability, Mechanism> {
    best_mechanisms(&Hierarchies::default())
}

fn best_mechanisms(found: &Hierarchies) -> BTreeMap<Capability, Mechanism> {
    let group = found.unified.as_ref().map(|own| own.group.as_path());
    let controllers = group.map(controllers).unwrap_or_default();
    let unified = |what| group.is_some_and(|group| supports_capability(group, &controllers, what));
    let legacy = |what| found.legacy.contains_key(legacy_controller(what));
    Capability::ALL
        .map(|what| (what, mechanism(what, unified(what), legacy(what))))
        .into()
}

fn mechanism(what: Capability, unified: bool, legacy: bool) -> Mechanism {
    match (unified, legacy, what) {
        (true, ..) => Mechanism::Cgroup2,
        // The memory controller of version 1 kills one process of a step and leaves the others: see
        // [`crate::legacy`].
        (false, _, Capability::Memory) => Mechanism::None,
        // A frozen process cannot escape a kill by forking.
        (false, true, _) => Mechanism::Cgroup1,
        (false, false, Capability::Kill) => Mechanism::ProcessGroup,
        (false, false, _) => Mechanism::None,
    }
}

fn controllers(group: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Whether a group of version 2 has a capability. The root group has neither `cgroup.kill` nor
/// `cgroup.freeze`, but every group below it has them, so the root group is judged by `cgroup.procs` instead.
fn supports_capability(group: &Path, controllers: &BTreeSet<String>, what: Capability) -> bool {
    let is_root = !group.join("cgroup.events").exists();
    let file =
        |name: &str| is_root && group.join("cgroup.procs").exists() || group.join(name).exists();
    match what {
        Capability::Kill => file("cgroup.kill"),
        Capability::Freeze => file("cgroup.freeze"),
        // Device programs can be attached to any group.
        Capability::Devices => group.join("cgroup.procs").exists(),
        Capability::Cpu => controllers.contains(Controller::Cpu.as_str()),
        Capability::Memory => controllers.contains(Controller::Memory.as_str()),
        Capability::Pids => controllers.contains(Controller::Pids.as_str()),
        Capability::Cpuset => controllers.contains(Controller::Cpuset.as_str()),
    }
}

fn legacy_controller(what: Capability) -> &'static str {
    match what {
        Capability::Kill | Capability::Freeze => Controller::Freezer.as_str(),
        Capability::Devices => "devices",
        Capability::Cpu => Controller::Cpu.as_str(),
        Capability::Memory => Controller::Memory.as_str(),
        Capability::Pids => Controller::Pids.as_str(),
        Capability::Cpuset => Controller::Cpuset.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tree;

    fn found(files: &[(&str, &str)]) -> Vec<(Capability, Mechanism)> {
        let found = detect_capabilities(tree(files).path()).unwrap();
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
                     32 28 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                 31 28 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
            ),
            (
                "proc/self/cgroup",
                "5:pids:/x\n4:cpu,cpuacct:/\n3:memory:/\n0::/x\n",
            ),
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
            (Capability::Cpuset, Mechanism::None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_host_without_any_has_process_groups_to_kill_and_nothing_else() {
        let silent = tree(&[]);
        assert!(detect_capabilities(silent.path()).is_err());
        let garbage = found(&[
            ("proc/self/mountinfo", "garbage\n\n - \n"),
            ("proc/self/cgroup", "garbage\n"),
        ]);
        for found in [garbage, minimum_capabilities().into_iter().collect()] {
            assert_eq!(found[0], (Capability::Kill, Mechanism::ProcessGroup));
            assert!(
                found[1..].iter().all(|(_, how)| *how == Mechanism::None),
                "{found:?}"
            );
        }
    }
}
