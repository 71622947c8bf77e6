//! Groups of version 2. Every one can be killed, frozen and counted; limits need controllers, which the groups above
//! must have handed down.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sluice_common::supervision::FreezerState;

use super::choice::Place;
use super::file::{self, GroupError};
use super::limits::{self, Bounds};
use super::mounts::{Controller, Own};

/// Controllers that are handed down to attempts wherever they can be had.
const HANDED_DOWN: [&str; 5] = ["cpu", "memory", "pids", "io", "cpuset"];

/// The common root of all attempts' groups.
#[derive(Debug)]
pub struct Unified {
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
        if place.is_delegated() {
            hand_down(&base);
        }
        file::make(&root)?;
        hand_down(&root);
        let handed = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        Ok(Self {
            kills: root.join("cgroup.kill").exists(),
            freezes: root.join("cgroup.freeze").exists(),
            controllers: handed.split_whitespace().map(str::to_owned).collect(),
            root,
        })
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
            Controller::Cpu | Controller::Memory | Controller::Pids => {
                self.controllers.contains(what.as_str())
            }
        }
    }

    /// The directory of an attempt's group.
    pub fn group(&self, name: &Path) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn make(&self, name: &Path, bounds: &Bounds) -> Result<PathBuf, GroupError> {
        let group = self.group(name);
        file::make(&group)?;
        for setting in limits::unified(bounds, |controller| self.does(controller)) {
            match file::write(&group.join(setting.file), &setting.value) {
                Err(e) if !(setting.may_lack && e.is_absent()) => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(group)
    }

    pub(super) fn birthplace(&self, name: &Path) -> Result<(File, PathBuf), GroupError> {
        let group = self.group(name);
        match File::open(&group) {
            Ok(opened) => Ok((opened, group.join("cgroup.procs"))),
            Err(e) => Err(GroupError::new("open control group", &group, e)),
        }
    }

    pub(super) fn is_populated(&self, name: &Path) -> bool {
        self.event(name, "populated")
    }

    fn event(&self, name: &Path, key: &str) -> bool {
        file::keyed(&self.group(name).join("cgroup.events"), key) == Some(1)
    }

    pub(super) fn kill(&self, name: &Path) -> Result<(), GroupError> {
        if !self.kills {
            return Ok(());
        }
        file::write(&self.group(name).join("cgroup.kill"), "1")
    }

    pub(super) fn set_frozen(&self, name: &Path, frozen: bool) -> Result<(), GroupError> {
        let value = if frozen { "1" } else { "0" };
        file::write(&self.group(name).join("cgroup.freeze"), value)
    }

    /// What was asked for stands in one file and what has come of it in another.
    pub(super) fn freezer(&self, name: &Path) -> FreezerState {
        let asked = fs::read_to_string(self.group(name).join("cgroup.freeze"));
        let asked = asked.is_ok_and(|text| text.trim() == "1");
        match (asked, self.event(name, "frozen")) {
            (_, true) => FreezerState::Frozen,
            (true, false) => FreezerState::Freezing,
            (false, false) => FreezerState::Thawed,
        }
    }

    pub(super) fn close(&self) {
        // It holds the groups of attempts that run on: then it stays, for the next supervisor.
        let _ = fs::remove_dir(&self.root);
    }
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
