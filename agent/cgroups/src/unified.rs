//! Groups of version 2. Every one can be killed, frozen and counted; limits need controllers, which the groups above
//! must have handed down.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sluice_common::supervision::FreezerState;

use crate::file::{self, GroupError};
use crate::place::Place;
use crate::setting::Bounds;
use crate::{Controller, Own, freezer, limits, memory};

/// Controllers that are handed down to attempts wherever they can be had.
const HANDED_DOWN: [&str; 5] = ["cpu", "memory", "pids", "io", "cpuset"];

/// The common root of all attempts' groups.
#[derive(Debug)]
pub struct Unified {
    /// The group above, where that was given to us.
    delegated: Option<PathBuf>,
    root: PathBuf,
    controllers: BTreeSet<String>,
    kills: bool,
    freezes: bool,
}

impl Unified {
    /// Makes the root `name` where it was told to, for a process whose own group is `own`.
    ///
    /// # Errors
    /// Where this process may not.
    pub fn open(place: &Place, own: &Own, name: &str) -> Result<Self, GroupError> {
        let base = place.below(own);
        let root = base.join(name);
        // A group that was not given to us hands down what it does: that is not ours to change.
        let delegated = place.is_delegated().then_some(base);
        make_root(delegated.as_deref(), &root)?;
        let handed = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        Ok(Self {
            kills: root.join("cgroup.kill").exists(),
            freezes: root.join("cgroup.freeze").exists(),
            controllers: handed.split_whitespace().map(str::to_owned).collect(),
            delegated,
            root,
        })
    }

    /// The root that another process has made, for killing what is in its groups.
    pub fn found(root: PathBuf) -> Self {
        Self {
            delegated: None,
            kills: root.join("cgroup.kill").exists(),
            freezes: root.join("cgroup.freeze").exists(),
            controllers: BTreeSet::new(),
            root,
        }
    }

    /// Where the attempts' groups are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it does what this controller is for.
    pub fn does(&self, what: Controller) -> bool {
        match what {
            Controller::Freezer => self.kills && self.freezes,
            // Counted in every group.
            Controller::CpuAccounting => true,
            // By programs and not by a controller: see [`super::devices`].
            Controller::Devices => false,
            Controller::Cpu | Controller::Memory | Controller::Pids | Controller::Cpuset => {
                self.controllers.contains(what.as_str())
            }
        }
    }

    /// The directory of an attempt's group.
    pub fn group(&self, name: &Path) -> PathBuf {
        self.root.join(name)
    }

    /// Makes the group of an attempt, with its limits.
    ///
    /// # Errors
    /// Where the kernel refuses one of them.
    pub fn make(&self, name: &Path, bounds: &Bounds) -> Result<PathBuf, GroupError> {
        let group = self.group(name);
        match file::make(&group) {
            // An init system that starts the unit anew whose group was given to us removes what was empty below it.
            Err(e) if e.is_absent() => {
                make_root(self.delegated.as_deref(), &self.root)?;
                file::make(&group)?;
            }
            made => made?,
        }
        for setting in limits::unified(bounds, |controller| self.does(controller)) {
            match file::write(&group.join(setting.file), &setting.value) {
                Err(e) if !(setting.may_lack && e.is_absent()) => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(group)
    }

    /// How much memory a group may hold; `None` where that is not limited.
    pub fn memory_max(&self, name: &Path) -> Option<u64> {
        memory::max(&self.group(name))
    }

    /// Limits it anew.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set_memory_max(&self, name: &Path, bytes: u64) -> Result<(), GroupError> {
        memory::set_max(&self.group(name), bytes)
    }

    /// Where a first process is born in a group, and the file by which it enters where it cannot be.
    ///
    /// # Errors
    /// Where there is no such group.
    pub fn birthplace(&self, name: &Path) -> Result<(File, PathBuf), GroupError> {
        let group = self.group(name);
        match File::open(&group) {
            Ok(opened) => Ok((opened, group.join("cgroup.procs"))),
            Err(e) => Err(GroupError::new("open control group", &group, e)),
        }
    }

    /// Whether a process runs in a group.
    pub fn is_populated(&self, name: &Path) -> bool {
        file::keyed(&self.group(name).join("cgroup.events"), "populated") == Some(1)
    }

    /// Kills every process in a group, if this kernel can do that at once.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn kill(&self, name: &Path) -> Result<(), GroupError> {
        if !self.kills {
            return Ok(());
        }
        file::write(&self.group(name).join("cgroup.kill"), "1")
    }

    /// Freezes a group, or thaws it: [`Unified::freezer`] tells when that is done.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set_frozen(&self, name: &Path, frozen: bool) -> Result<(), GroupError> {
        freezer::set_unified(&self.group(name), frozen)
    }

    /// Whether anything in a group may run.
    pub fn freezer(&self, name: &Path) -> FreezerState {
        freezer::unified(&self.group(name))
    }

    /// Removes the root, unless it holds the groups of attempts that run on: then it stays, for the next supervisor.
    pub fn close(&self) {
        let _ = fs::remove_dir(&self.root);
    }
}

fn make_root(delegated: Option<&Path>, root: &Path) -> Result<(), GroupError> {
    if let Some(base) = delegated {
        hand_down(base);
    }
    file::make(root)?;
    hand_down(root);
    Ok(())
}

/// Hands controllers down, one by one: one that is not there must not keep the others back. The kernel refuses where
/// processes are in the group itself, and for groups that are not ours to change.
fn hand_down(group: &Path) {
    let offered = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    let offered: BTreeSet<&str> = offered.split_whitespace().collect();
    for name in HANDED_DOWN.iter().filter(|name| offered.contains(**name)) {
        if let Err(e) = file::write(&group.join("cgroup.subtree_control"), &format!("+{name}")) {
            tracing::debug!("{e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::supervision::ResourceLimits;

    /// A hierarchy on paper: the kernel's files are there before they are written.
    struct Tree {
        dir: tempfile::TempDir,
        own: Own,
    }

    impl Tree {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let own = Own {
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

        fn open(&self, place: &Place) -> Unified {
            Unified::open(place, &self.own, "sluice-x").unwrap()
        }
    }

    fn bounds() -> Bounds {
        Bounds {
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
        let tree = Tree::new();
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
        let unified = tree.open(&Place::Own);
        // This kernel swaps nothing: there is no file for it.
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
        let tree = Tree::new();
        let unified = tree.open(&Place::Own);
        let name = Path::new("a");
        assert_eq!(unified.memory_max(name), None, "no such file");
        tree.put("own/sluice-x/a/memory.max", "max\n");
        assert_eq!(unified.memory_max(name), None);
        tree.put("own/sluice-x/a/memory.max", "4096\n");
        assert_eq!(unified.memory_max(name), Some(4096));
        unified.set_memory_max(name, 8192).unwrap();
        // The kernel reads what is written as a whole; a file on paper keeps the line's end.
        assert_eq!(tree.text("own/sluice-x/a/memory.max").trim(), "8192");
    }

    #[test]
    fn a_limit_that_cannot_be_written_is_no_limit_and_fails() {
        let tree = Tree::new();
        tree.put("own/sluice-x/cgroup.subtree_control", "pids\n");
        let error = tree
            .open(&Place::Own)
            .make(Path::new("a"), &bounds())
            .unwrap_err();
        assert!(error.to_string().contains("a/pids.max"), "{error}");
    }

    #[test]
    fn only_a_group_that_was_given_to_us_is_told_to_hand_down() {
        for (place, wanted) in [(Place::Own, ""), (Place::At("own".into()), "+memory")] {
            let tree = Tree::new();
            tree.put("own/cgroup.controllers", "memory rdma\n");
            tree.put("own/cgroup.subtree_control", "");
            let unified = tree.open(&place);
            assert_eq!(tree.text("own/cgroup.subtree_control"), wanted);
            assert!(!unified.does(Controller::Memory), "the root has not got it");
        }
    }

    #[test]
    fn a_freezer_is_believed_when_it_says_that_it_is_done() {
        let tree = Tree::new();
        let unified = tree.open(&Place::Own);
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
        let tree = Tree::new();
        let unified = tree.open(&Place::from("own"));
        for place in [Place::from("own"), Place::from("/own")] {
            let unified = tree.open(&place);
            fs::remove_dir_all(unified.root()).unwrap();
            let group = unified.make(Path::new("attempt-a.1"), &bounds()).unwrap();
            assert!(group.is_dir());
        }
        fs::remove_dir_all(&tree.own.group).unwrap();
        let refused = unified.make(Path::new("attempt-a.1"), &bounds());
        assert!(refused.is_err_and(|e| e.is_absent()));
    }
}
