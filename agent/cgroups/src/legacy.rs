//! Groups of version 1: a hierarchy for each controller, for what version 2 cannot do on this host. None of them tells
//! of changes, so they have to be looked at.
//!
//! Memory is not limited by version 1: its out-of-memory killer takes one process of a step and leaves the others, and
//! on hosts that still have it the hierarchy is often somebody else's. A host that has nothing better says that it
//! cannot limit memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_common::supervision::FreezerState;
use sluice_common::usage::Usage;
use tracing::warn;

use crate::file::{self, GroupError};
use crate::setting::Bounds;
use crate::{Controller, Own, freezer, limits, usage};

/// Those that attempts need from whichever version has them.
pub const WANTED: [Controller; 4] = [
    Controller::Cpu,
    Controller::CpuAccounting,
    Controller::Pids,
    Controller::Freezer,
];

/// The common roots of all attempts' groups, by controller.
#[derive(Debug, Default)]
pub struct Legacy {
    roots: BTreeMap<Controller, PathBuf>,
}

impl Legacy {
    /// Makes the root `name` below this process's own group, in the hierarchies of these controllers.
    pub fn open(hierarchies: &BTreeMap<String, Own>, wanted: &[Controller], name: &str) -> Self {
        let mut roots = BTreeMap::new();
        for controller in wanted {
            let Some(own) = hierarchies.get(controller.as_str()) else {
                continue;
            };
            let root = own.group.join(name);
            match file::make(&root) {
                Ok(()) => drop(roots.insert(*controller, root)),
                // Who may not in one hierarchy may not in any: the line of the capabilities says enough.
                Err(e) if e.is_denied() => tracing::debug!("{e}"),
                Err(e) => warn!("a control group of version 1 is not used: {e}"),
            }
        }
        Self { roots }
    }

    /// The root of `controller` that another process has made.
    pub fn found(controller: Controller, root: PathBuf) -> Self {
        Self {
            roots: [(controller, root)].into(),
        }
    }

    /// Whether a controller is used.
    pub fn has(&self, controller: Controller) -> bool {
        self.roots.contains_key(&controller)
    }

    /// The root of a controller's groups, where it is used.
    pub fn root(&self, controller: Controller) -> Option<&Path> {
        self.roots.get(&controller).map(PathBuf::as_path)
    }

    /// The roots in all hierarchies that are used.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.values().map(PathBuf::as_path)
    }

    /// Leaves a controller out that turned out to be of no use.
    pub fn leave_out(&mut self, controller: Controller) {
        if let Some(root) = self.roots.remove(&controller) {
            // Where it holds what an earlier supervisor has left, that is of no use either.
            let _ = fs::remove_dir(root);
        }
    }

    /// The names of all groups in any hierarchy.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.roots.values().flat_map(|root| file::children(root))
    }

    /// Makes the groups of an attempt, with its limits.
    ///
    /// # Errors
    /// Where the kernel refuses one of them.
    pub fn make(&self, name: &Path, bounds: &Bounds) -> Result<(), GroupError> {
        for (controller, root) in &self.roots {
            let group = root.join(name);
            file::make(&group)?;
            for setting in limits::legacy(bounds, *controller) {
                match file::write(&group.join(setting.file), &setting.value) {
                    // A group above allows less than this, which then holds.
                    Err(e) if *controller == Controller::Cpu && e.is_invalid() => {
                        tracing::debug!("{e}");
                    }
                    written => written?,
                }
            }
        }
        Ok(())
    }

    /// The files of threads: see [`super::entrance`].
    pub fn entrances(&self, name: &Path) -> Vec<PathBuf> {
        let file = |root: &PathBuf| root.join(name).join("tasks");
        self.roots.values().map(file).collect()
    }

    /// Any hierarchy knows all processes; the freezer's is the one that kills.
    pub fn killing_root(&self) -> Option<&Path> {
        let freezer = self.root(Controller::Freezer);
        freezer.or_else(|| self.roots().next())
    }

    fn group(&self, name: &Path) -> Option<PathBuf> {
        self.killing_root().map(|root| root.join(name))
    }

    /// Whether there is such a group in any hierarchy.
    pub fn exists(&self, name: &Path) -> bool {
        self.roots.values().any(|root| root.join(name).exists())
    }

    /// Every process in a group.
    pub fn members(&self, name: &Path) -> Vec<u32> {
        self.group(name)
            .map(|group| file::members(&group))
            .unwrap_or_default()
    }

    /// Whether a process runs in a group.
    pub fn is_populated(&self, name: &Path) -> bool {
        !self.members(name).is_empty()
    }

    /// Frozen, nobody makes a process while the others are killed; a signal that kills takes effect on the thaw.
    ///
    /// # Errors
    /// Where the freezer refuses.
    pub fn kill(&self, name: &Path) -> Result<(), GroupError> {
        let freezes = self.has(Controller::Freezer);
        if freezes && self.exists(name) {
            self.set_frozen(name, true)?;
        }
        for pid in self.members(name) {
            // One that has ended meanwhile needs no signal.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        if freezes && self.exists(name) {
            self.set_frozen(name, false)?;
        }
        Ok(())
    }

    /// Freezes a group, or thaws it: [`Legacy::freezer`] tells when that is done.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set_frozen(&self, name: &Path, frozen: bool) -> Result<(), GroupError> {
        let group = self.group(name);
        group.map_or(Ok(()), |group| freezer::set_legacy(&group, frozen))
    }

    /// Whether anything in a group may run.
    pub fn freezer(&self, name: &Path) -> FreezerState {
        let group = self.group(name);
        group.map_or(FreezerState::Thawed, |group| freezer::legacy(&group))
    }

    /// What has been used in a group.
    pub fn usage(&self, name: &Path) -> Usage {
        let counts = self.roots.get(&Controller::CpuAccounting);
        counts
            .map(|root| usage::legacy(&root.join(name)))
            .unwrap_or_default()
    }

    /// Removes the groups of an attempt, which hold no process.
    ///
    /// # Errors
    /// Where one of them cannot be removed.
    pub fn remove(&self, name: &Path) -> Result<(), GroupError> {
        self.roots
            .values()
            .try_for_each(|root| file::remove_tree(&root.join(name)))
    }

    /// Removes the roots that hold nothing.
    pub fn close(&self) {
        for root in self.roots.values() {
            // Attempts that run on keep theirs.
            let _ = fs::remove_dir(root);
        }
    }
}
