//! Control groups of version 2. Every group can be killed, frozen and counted; limits need controllers, which
//! the parent groups must have enabled.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sluice_common::supervision::FreezerState;

use crate::file::{self, GroupError};
use crate::parent_group::ParentGroup;
use crate::setting::GroupLimits;
use crate::{Controller, OwnGroup, freezer, limits, memory};

/// Controllers that are enabled for attempts if the host has them.
const DELEGATED_CONTROLLERS: [&str; 5] = ["cpu", "memory", "pids", "io", "cpuset"];

/// The root of all attempts' groups.
#[derive(Debug)]
pub struct Unified {
    /// The parent group, if it was delegated to the supervisor.
    delegated: Option<PathBuf>,
    root: PathBuf,
    controllers: BTreeSet<String>,
    can_kill: bool,
    can_freeze: bool,
}

impl Unified {
    /// Makes the root `name` below the parent group, for a process in the group `own`.
    ///
    /// # Errors
    /// If this process has no permission.
    pub fn open(parent: &ParentGroup, own: &OwnGroup, name: &str) -> Result<Self, GroupError> {
        let base = parent.directory(own);
        let root = base.join(name);
        // A group that was not delegated keeps its own settings.
        let delegated = parent.is_delegated().then_some(base);
        make_root(delegated.as_deref(), &root)?;
        let handed = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        Ok(Self {
            can_kill: root.join("cgroup.kill").exists(),
            can_freeze: root.join("cgroup.freeze").exists(),
            controllers: handed.split_whitespace().map(str::to_owned).collect(),
            delegated,
            root,
        })
    }

    /// A root that another process has made, for killing what is in its groups.
    pub fn existing(root: PathBuf) -> Self {
        Self {
            delegated: None,
            can_kill: root.join("cgroup.kill").exists(),
            can_freeze: root.join("cgroup.freeze").exists(),
            controllers: BTreeSet::new(),
            root,
        }
    }

    /// Directory that contains the attempts' groups.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether groups of this root can do what the controller is for.
    pub fn supports(&self, what: Controller) -> bool {
        match what {
            Controller::Freezer => self.can_kill && self.can_freeze,
            // The kernel counts processor time in every group.
            Controller::CpuAccounting => true,
            // Devices are filtered by programs and not by a controller: see [`super::devices`].
            Controller::Devices => false,
            Controller::Cpu | Controller::Memory | Controller::Pids | Controller::Cpuset => {
                self.controllers.contains(what.as_str())
            }
        }
    }

    /// Directory of an attempt's group.
    pub fn group(&self, name: &Path) -> PathBuf {
        self.root.join(name)
    }

    /// Makes the group of an attempt, with its limits.
    ///
    /// # Errors
    /// If the kernel rejects one of them.
    pub fn make(&self, name: &Path, bounds: &GroupLimits) -> Result<PathBuf, GroupError> {
        let group = self.group(name);
        match file::make(&group) {
            // When the unit of a delegated group restarts, the init system removes empty groups below it.
            Err(e) if e.is_not_found() => {
                make_root(self.delegated.as_deref(), &self.root)?;
                file::make(&group)?;
            }
            made => made?,
        }
        for setting in limits::unified(bounds, |controller| self.supports(controller)) {
            match file::write(&group.join(setting.file), &setting.value) {
                Err(e) if !(setting.is_optional && e.is_not_found()) => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(group)
    }

    /// Memory limit of a group in bytes; `None` if it has none.
    pub fn memory_max(&self, name: &Path) -> Option<u64> {
        memory::max(&self.group(name))
    }

    /// Changes the memory limit of a group.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn set_memory_max(&self, name: &Path, bytes: u64) -> Result<(), GroupError> {
        memory::set_max(&self.group(name), bytes)
    }

    /// The open group for `clone3`, and the `cgroup.procs` file by which a process enters if `clone3` cannot
    /// do it.
    ///
    /// # Errors
    /// If the group does not exist.
    pub fn clone_target(&self, name: &Path) -> Result<(File, PathBuf), GroupError> {
        let group = self.group(name);
        match File::open(&group) {
            Ok(opened) => Ok((opened, group.join("cgroup.procs"))),
            Err(e) => Err(GroupError::new("open control group", &group, e)),
        }
    }

    /// Whether a group contains a process.
    pub fn is_populated(&self, name: &Path) -> bool {
        file::keyed_number(&self.group(name).join("cgroup.events"), "populated") == Some(1)
    }

    /// Kills every process in a group, if this kernel can do that in one call.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn kill(&self, name: &Path) -> Result<(), GroupError> {
        if !self.can_kill {
            return Ok(());
        }
        file::write(&self.group(name).join("cgroup.kill"), "1")
    }

    /// Starts to freeze or thaw a group; [`Unified::freezer`] tells when that is complete.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn set_frozen(&self, name: &Path, frozen: bool) -> Result<(), GroupError> {
        freezer::set_unified(&self.group(name), frozen)
    }

    /// Freezer state of a group.
    pub fn freezer(&self, name: &Path) -> FreezerState {
        freezer::unified(&self.group(name))
    }

    /// Removes the root unless attempts that still run have groups there; the next supervisor then uses it.
    pub fn close(&self) {
        let _ = fs::remove_dir(&self.root);
    }
}

fn make_root(delegated: Option<&Path>, root: &Path) -> Result<(), GroupError> {
    if let Some(base) = delegated {
        enable_controllers(base);
    }
    file::make(root)?;
    enable_controllers(root);
    Ok(())
}

/// Enables controllers for the groups below, one by one, so that a missing one does not affect the others.
/// The kernel refuses if the group itself contains processes, or belongs to another user.
fn enable_controllers(group: &Path) {
    let offered = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    let offered: BTreeSet<&str> = offered.split_whitespace().collect();
    for name in DELEGATED_CONTROLLERS
        .iter()
        .filter(|name| offered.contains(**name))
    {
        if let Err(e) = file::write(&group.join("cgroup.subtree_control"), &format!("+{name}")) {
            tracing::debug!("{e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::supervision::ResourceLimits;

    /// A fake hierarchy in which the kernel's files exist before they are written.
    struct FakeHierarchy {
        dir: tempfile::TempDir,
        own: OwnGroup,
    }

    impl FakeHierarchy {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let own = OwnGroup {
                mount: dir.path().to_owned(),
                group: dir.path().join("own"),
            };
            fs::create_dir(&own.group).unwrap();
            Self { dir, own }
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.dir.path().join(name)).unwrap()
        }

        fn open(&self, parent: &ParentGroup) -> Unified {
            Unified::open(parent, &self.own, "sluice-x").unwrap()
        }
    }

    fn bounds() -> GroupLimits {
        GroupLimits {
            limits: ResourceLimits {
                mcpu: Some(500),
                memory_bytes: Some(4096),
                storage_bytes: None,
            },
            cpu_mode: Default::default(),
            pids_max: 9,
        }
    }

    #[test]
    fn every_limit_ends_up_in_its_file() {
        let tree = FakeHierarchy::new();
        tree.put("own/sluice-x/cgroup.subtree_control", "cpu memory pids\n");
        for name in [
            "cpu.weight",
            "cpu.max",
            "memory.max",
            "memory.oom.group",
            "pids.max",
        ] {
            tree.put(&format!("own/sluice-x/a/{name}"), "");
        }
        let unified = tree.open(&ParentGroup::OwnGroup);
        // This fake kernel has no swap, so the file is missing.
        unified.make(Path::new("a"), &bounds()).unwrap();
        for (name, wanted) in [
            ("cpu.max", "50000 100000"),
            ("memory.max", "4096"),
            ("memory.oom.group", "1"),
            ("pids.max", "9"),
        ] {
            assert_eq!(tree.text(&format!("own/sluice-x/a/{name}")), wanted);
        }
    }

    #[test]
    fn a_memory_limit_is_read_and_set_anew() {
        let tree = FakeHierarchy::new();
        let unified = tree.open(&ParentGroup::OwnGroup);
        let name = Path::new("a");
        assert_eq!(unified.memory_max(name), None, "no such file");
        tree.put("own/sluice-x/a/memory.max", "max\n");
        assert_eq!(unified.memory_max(name), None);
        tree.put("own/sluice-x/a/memory.max", "4096\n");
        assert_eq!(unified.memory_max(name), Some(4096));
        unified.set_memory_max(name, 8192).unwrap();
        // The kernel replaces the whole value; a plain file keeps the newline.
        assert_eq!(tree.text("own/sluice-x/a/memory.max").trim(), "8192");
    }

    #[test]
    fn a_limit_that_cannot_be_written_is_no_limit_and_fails() {
        let tree = FakeHierarchy::new();
        tree.put("own/sluice-x/cgroup.subtree_control", "pids\n");
        let error = tree
            .open(&ParentGroup::OwnGroup)
            .make(Path::new("a"), &bounds())
            .unwrap_err();
        assert!(error.to_string().contains("a/pids.max"), "{error}");
    }

    #[test]
    fn only_a_group_that_was_given_to_us_is_told_to_hand_down() {
        for (parent, wanted) in [
            (ParentGroup::OwnGroup, ""),
            (ParentGroup::At("own".into()), "+memory"),
        ] {
            let tree = FakeHierarchy::new();
            tree.put("own/cgroup.controllers", "memory rdma\n");
            tree.put("own/cgroup.subtree_control", "");
            let unified = tree.open(&parent);
            assert_eq!(tree.text("own/cgroup.subtree_control"), wanted);
            assert!(
                !unified.supports(Controller::Memory),
                "the root has not got it"
            );
        }
    }

    #[test]
    fn a_freezer_is_believed_when_it_says_that_it_is_done() {
        let tree = FakeHierarchy::new();
        let unified = tree.open(&ParentGroup::OwnGroup);
        for (asked, events, wanted) in [
            ("0", "populated 1\nfrozen 0\n", FreezerState::Thawed),
            ("1", "populated 1\nfrozen 0\n", FreezerState::Freezing),
            ("1", "populated 1\nfrozen 1\n", FreezerState::Frozen),
            ("0", "populated 1\nfrozen 1\n", FreezerState::Frozen),
        ] {
            tree.put("own/sluice-x/a/cgroup.freeze", asked);
            tree.put("own/sluice-x/a/cgroup.events", events);
            assert_eq!(unified.freezer(Path::new("a")), wanted);
            assert!(unified.is_populated(Path::new("a")));
        }
    }

    #[test]
    fn a_root_that_was_taken_away_is_made_again() {
        let tree = FakeHierarchy::new();
        let unified = tree.open(&ParentGroup::from("own"));
        for parent in [ParentGroup::from("own"), ParentGroup::from("/own")] {
            let unified = tree.open(&parent);
            fs::remove_dir_all(unified.root()).unwrap();
            let group = unified.make(Path::new("attempt-a.1"), &bounds()).unwrap();
            assert!(group.is_dir());
        }
        fs::remove_dir_all(&tree.own.group).unwrap();
        let refused = unified.make(Path::new("attempt-a.1"), &bounds());
        assert!(refused.is_err_and(|e| e.is_not_found()));
    }
}
