//! Control groups of version 1: one hierarchy for each controller, used for what version 2 cannot do on this
//! host. They send no notifications, so changes are found by polling.
//!
//! Memory is never limited by version 1: its out-of-memory killer takes one process of a step and leaves the
//! others, and on hosts that still have that hierarchy other software often owns it. Such a host reports that
//! it cannot limit memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_common::supervision::FreezerState;
use sluice_common::usage::Usage;
use tracing::warn;

use crate::file::{self, GroupError};
use crate::setting::GroupLimits;
use crate::{Controller, OwnGroup, freezer, limits, usage};

/// Controllers that attempts need, from whichever version has them.
pub const WANTED: [Controller; 4] = [
    Controller::Cpu,
    Controller::CpuAccounting,
    Controller::Pids,
    Controller::Freezer,
];

/// The roots of all attempts' groups, by controller.
#[derive(Debug, Default)]
pub struct Legacy {
    roots: BTreeMap<Controller, PathBuf>,
}

impl Legacy {
    /// Makes the root `name` below this process's own group in each hierarchy of the wanted controllers.
    pub fn open(
        hierarchies: &BTreeMap<String, OwnGroup>,
        wanted: &[Controller],
        name: &str,
    ) -> Self {
        let mut roots = BTreeMap::new();
        for controller in wanted {
            let Some(own) = hierarchies.get(controller.as_str()) else {
                continue;
            };
            let root = own.group.join(name);
            match file::make(&root) {
                Ok(()) => drop(roots.insert(*controller, root)),
                // A process without permission in one hierarchy has none in the others; the log line about
                // capabilities is enough.
                Err(e) if e.is_permission_denied() => tracing::debug!("{e}"),
                Err(e) => warn!("a control group of version 1 is not used: {e}"),
            }
        }
        Self { roots }
    }

    /// The root of `controller` that another process has made.
    pub fn existing(controller: Controller, root: PathBuf) -> Self {
        Self {
            roots: [(controller, root)].into(),
        }
    }

    /// Whether a root is known for the controller.
    pub fn has(&self, controller: Controller) -> bool {
        self.roots.contains_key(&controller)
    }

    /// The root of a controller's groups, if the controller is used.
    pub fn root(&self, controller: Controller) -> Option<&Path> {
        self.roots.get(&controller).map(PathBuf::as_path)
    }

    /// The roots in all hierarchies that are used.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.values().map(PathBuf::as_path)
    }

    /// Removes a controller that turned out to be unusable.
    pub fn exclude(&mut self, controller: Controller) {
        if let Some(root) = self.roots.remove(&controller) {
            // Fails if groups of an earlier supervisor are in it, which then stay.
            let _ = fs::remove_dir(root);
        }
    }

    /// Names of all attempts' groups in any hierarchy.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.roots.values().flat_map(|root| file::children(root))
    }

    /// Makes the groups of an attempt, with its limits.
    ///
    /// # Errors
    /// If the kernel rejects one of them.
    pub fn make(&self, name: &Path, bounds: &GroupLimits) -> Result<(), GroupError> {
        for (controller, root) in &self.roots {
            let group = root.join(name);
            file::make(&group)?;
            for setting in limits::legacy(bounds, *controller) {
                match file::write(&group.join(setting.file), &setting.value) {
                    // A group above has a lower limit, which then applies.
                    Err(e) if *controller == Controller::Cpu && e.is_invalid() => {
                        tracing::debug!("{e}");
                    }
                    written => written?,
                }
            }
        }
        Ok(())
    }

    /// The `tasks` files by which a thread enters the attempt's groups: see [`super::group_entry`].
    pub fn entry_files(&self, name: &Path) -> Vec<PathBuf> {
        let file = |root: &PathBuf| root.join(name).join("tasks");
        self.roots.values().map(file).collect()
    }

    /// Any hierarchy lists all processes; the freezer's is used to kill.
    pub fn freezer_root(&self) -> Option<&Path> {
        let freezer = self.root(Controller::Freezer);
        freezer.or_else(|| self.roots().next())
    }

    fn group(&self, name: &Path) -> Option<PathBuf> {
        self.freezer_root().map(|root| root.join(name))
    }

    /// Whether the attempt has a group in any hierarchy.
    pub fn exists(&self, name: &Path) -> bool {
        self.roots.values().any(|root| root.join(name).exists())
    }

    /// Every process in a group.
    pub fn members(&self, name: &Path) -> Vec<u32> {
        self.group(name)
            .map(|group| file::members(&group))
            .unwrap_or_default()
    }

    /// Whether a group contains a process.
    pub fn is_populated(&self, name: &Path) -> bool {
        !self.members(name).is_empty()
    }

    /// Kills every process in a group. The group is frozen meanwhile, so that no process forks; SIGKILL takes
    /// effect on the thaw.
    ///
    /// # Errors
    /// If the freezer fails.
    pub fn kill(&self, name: &Path) -> Result<(), GroupError> {
        let uses_freezer = self.has(Controller::Freezer);
        if uses_freezer && self.exists(name) {
            self.set_frozen(name, true)?;
        }
        for pid in self.members(name) {
            // A process that has ended meanwhile needs no signal.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        if uses_freezer && self.exists(name) {
            self.set_frozen(name, false)?;
        }
        Ok(())
    }

    /// Starts to freeze or thaw a group; [`Legacy::freezer`] tells when that is complete.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn set_frozen(&self, name: &Path, frozen: bool) -> Result<(), GroupError> {
        let group = self.group(name);
        group.map_or(Ok(()), |group| freezer::set_legacy(&group, frozen))
    }

    /// Freezer state of a group.
    pub fn freezer(&self, name: &Path) -> FreezerState {
        let group = self.group(name);
        group.map_or(FreezerState::Thawed, |group| freezer::legacy(&group))
    }

    /// Resource usage of a group.
    pub fn usage(&self, name: &Path) -> Usage {
        let counts = self.roots.get(&Controller::CpuAccounting);
        counts
            .map(|root| usage::legacy(&root.join(name)))
            .unwrap_or_default()
    }

    /// Removes the groups of an attempt, which must hold no process.
    ///
    /// # Errors
    /// If one of them cannot be removed.
    pub fn remove(&self, name: &Path) -> Result<(), GroupError> {
        self.roots
            .values()
            .try_for_each(|root| file::remove_tree(&root.join(name)))
    }

    /// Removes the roots that are empty.
    pub fn close(&self) {
        for root in self.roots.values() {
            // Attempts that still run keep their groups.
            let _ = fs::remove_dir(root);
        }
    }
}
