//! Control groups of attempts: one group for each attempt, in the unified hierarchy (version 2) and in those
//! of version 1 for what the unified one cannot do. Chooses the place and the mechanism of each capability.
//! `table` decides when; [`sluice_cgroups`] reads and writes the kernel's files.
//!
//! All groups are made below one root whose [`name`] is stored in the state directory. The root lies in the
//! configured group, or in the supervisor's own. So no foreign group is touched, and the next supervisor of
//! the same directory finds the groups of an earlier one.
//!
//! If no groups can be made, attempts are tracked by process groups and [`crate::process_scan`] alone, and
//! the capabilities report that.

pub mod devices;
pub mod existing;
pub mod leftovers;
pub mod name;
pub mod options;
mod take_over;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sluice_cgroups::cpuset::Cpusets;
use sluice_cgroups::devices::DeviceFilterError;
use sluice_cgroups::file::{self, GroupError};
use sluice_cgroups::group_entry::GroupEntry;
use sluice_cgroups::legacy::{self, Legacy};
use sluice_cgroups::setting::GroupLimits;
use sluice_cgroups::unified::Unified;
use sluice_cgroups::watch::GroupWatch;
use sluice_cgroups::{Controller, Hierarchies, memory, pids, usage};
use sluice_common::attempt_dir::GROUP_PREFIX;
use sluice_common::id::AttemptId;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::processors::CpuSet;
use sluice_common::supervision::{
    CpuAllocation, DeviceAccess, FreezeRefusal, FreezerState, OutOfMemory, ResourceLimits,
};
use sluice_common::usage::{RunningUsage, Usage};
use tracing::{error, info, warn};

use self::devices::DeviceFilters;
use self::options::{GroupOptions, ParentGroup};

/// Control groups of all attempts.
#[derive(Debug)]
pub struct Groups {
    unified: Option<Unified>,
    legacy: Legacy,
    cpusets: Cpusets,
    watch: Option<GroupWatch>,
    filters: DeviceFilters,
    pids_max: u32,
    /// Attempts that have a group.
    grouped: BTreeSet<AttemptId>,
    /// Groups that are unused and could not be removed yet.
    leaving: BTreeSet<AttemptId>,
}

impl Groups {
    /// Makes the root `name` as far as the host allows; the log names what is missing. `root` is `/`, or a
    /// test's directory.
    pub fn open(root: &Path, options: &GroupOptions, name: &str) -> Self {
        let none = || Self {
            unified: None,
            legacy: Legacy::default(),
            cpusets: Cpusets::none(),
            watch: None,
            filters: DeviceFilters::new(Mechanism::None, &options.devices),
            pids_max: options.pids_max.unwrap_or(u32::MAX),
            grouped: BTreeSet::new(),
            leaving: BTreeSet::new(),
        };
        if options.parent == ParentGroup::Nowhere {
            return none();
        }
        let hierarchies = match Hierarchies::read(root) {
            Ok(found) => found,
            Err(e) => {
                warn!("control groups cannot be detected: {e}");
                return none();
            }
        };
        let unified = hierarchies
            .unified
            .as_ref()
            .and_then(|own| tell(Unified::open(&options.parent, own, name)));
        let lacking = |c: &Controller| unified.as_ref().is_none_or(|unified| !unified.supports(*c));
        let mut wanted: Vec<Controller> = legacy::WANTED.into_iter().filter(lacking).collect();
        let filter = options.devices.filter;
        let by_program = unified
            .as_ref()
            .is_some_and(|unified| devices::has(filter, Mechanism::Cgroup2, Some(unified.root())));
        if !by_program && filter.allows(Mechanism::Cgroup1) {
            wanted.push(Controller::Devices);
        }
        let mut legacy = Legacy::open(&hierarchies.legacy, &wanted, name);
        let by_list = devices::has(filter, Mechanism::Cgroup1, legacy.root(Controller::Devices));
        if !by_list {
            legacy.exclude(Controller::Devices);
        }
        let filtered_by = match (by_program, by_list) {
            (true, _) => Mechanism::Cgroup2,
            (false, true) => Mechanism::Cgroup1,
            (false, false) => Mechanism::None,
        };
        Self {
            watch: unified.as_ref().and_then(|_| GroupWatch::new().ok()),
            cpusets: Cpusets::open(root, unified.as_ref(), &hierarchies, name),
            unified,
            legacy,
            filters: DeviceFilters::new(filtered_by, &options.devices),
            pids_max: options.pids_max.unwrap_or_else(pids::default_max),
            grouped: BTreeSet::new(),
            leaving: BTreeSet::new(),
        }
    }

    /// The mechanism of each capability.
    pub fn capabilities(&self) -> BTreeMap<Capability, Mechanism> {
        Capability::ALL
            .map(|what| (what, self.mechanism(what)))
            .into()
    }

    fn mechanism(&self, what: Capability) -> Mechanism {
        let controller = match what {
            Capability::Kill | Capability::Freeze => Controller::Freezer,
            Capability::Cpu => Controller::Cpu,
            Capability::Memory => Controller::Memory,
            Capability::Pids => Controller::Pids,
            Capability::Devices => return self.filters.mechanism,
            Capability::Cpuset => return self.cpusets.mechanism(),
        };
        if self
            .unified
            .as_ref()
            .is_some_and(|u| u.supports(controller))
        {
            Mechanism::Cgroup2
        } else if self.legacy.has(controller) {
            Mechanism::Cgroup1
        } else if what == Capability::Kill {
            Mechanism::ProcessGroup
        } else {
            Mechanism::None
        }
    }

    /// Logs how attempts are isolated on this host.
    pub fn log(&self) {
        let how: Vec<String> = self
            .capabilities()
            .iter()
            .map(|(what, how)| format!("{what}={how}"))
            .collect();
        let root = self
            .unified
            .as_ref()
            .map(|unified| unified.root().display());
        let root = root.map(tracing::field::display);
        info!(root, "attempts run in {}", how.join(" "));
    }

    /// Makes the groups of an attempt with its limits, and at most `processes` processes. Existing groups are
    /// reused.
    ///
    /// # Errors
    /// If the kernel rejects it; no group is left then.
    pub fn make(
        &mut self,
        attempt: &AttemptId,
        limits: &ResourceLimits,
        processors: &CpuAllocation,
        processes: Option<u32>,
    ) -> Result<(), GroupError> {
        let bounds = GroupLimits {
            limits: *limits,
            cpu_mode: processors.mode,
            pids_max: processes.map_or(self.pids_max, |most| most.min(self.pids_max)),
        };
        if self.exists(attempt) {
            self.try_remove(attempt)?;
        }
        let made = self.make_each(attempt, &bounds);
        let made = made.and_then(|()| match processors.own.is_empty() {
            true => Ok(()),
            false => self.pin(attempt, &processors.own),
        });
        made.inspect_err(|_| self.remove(attempt))?;
        if self.exists(attempt) {
            self.grouped.insert(attempt.clone());
        }
        Ok(())
    }

    fn make_each(&mut self, attempt: &AttemptId, bounds: &GroupLimits) -> Result<(), GroupError> {
        let name = directory(attempt);
        if let Some(unified) = &self.unified {
            let group = unified.make(&name, bounds)?;
            if let Some(watch) = &mut self.watch {
                watch.add(attempt, &group);
            }
        }
        self.legacy.make(&name, bounds)
    }

    /// Pins the processes of an attempt to these processors. Does nothing without a mechanism, as the
    /// capabilities report.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn pin(&self, attempt: &AttemptId, processors: &CpuSet) -> Result<(), GroupError> {
        let name = directory(attempt);
        let unified = self.unified.as_ref().map(|unified| unified.group(&name));
        self.cpusets.pin(unified.as_deref(), &name, processors)
    }

    /// Denies the attempt's processes all GPUs that were not granted. Does nothing without a mechanism, as
    /// the capabilities report.
    ///
    /// # Errors
    /// If the kernel rejects it: nothing may run in the groups then.
    pub fn filter_devices(
        &mut self,
        attempt: &AttemptId,
        granted: &DeviceAccess,
    ) -> Result<(), DeviceFilterError> {
        let name = directory(attempt);
        let unified = self.unified.as_ref().map(|unified| unified.group(&name));
        let legacy = self.legacy.root(Controller::Devices);
        let legacy = legacy.map(|root| root.join(&name));
        self.filters
            .apply(granted, unified.as_deref(), legacy.as_deref())
    }

    /// Everything that an attempt's first process needs to enter the attempt's groups.
    ///
    /// # Errors
    /// If a group cannot be opened.
    pub fn entry(&self, attempt: &AttemptId) -> Result<GroupEntry, GroupError> {
        let name = directory(attempt);
        let clone_target = self
            .unified
            .as_ref()
            .map(|unified| unified.clone_target(&name));
        let files = self.legacy.entry_files(&name).into_iter();
        Ok(GroupEntry {
            clone_target: clone_target.transpose()?,
            files: files.chain(self.cpusets.entry_file(&name)).collect(),
        })
    }

    /// Whether an attempt was given a group that lists its processes.
    pub fn has_group(&self, attempt: &AttemptId) -> bool {
        self.grouped.contains(attempt)
    }

    fn exists(&self, attempt: &AttemptId) -> bool {
        let name = directory(attempt);
        self.unified
            .as_ref()
            .is_some_and(|u| u.group(&name).exists())
            || self.legacy.exists(&name)
            || self.cpusets.exists(&name)
    }

    /// Whether the attempt's groups contain a process.
    pub fn is_populated(&self, attempt: &AttemptId) -> bool {
        let name = directory(attempt);
        match &self.unified {
            Some(unified) => unified.is_populated(&name),
            None => self.legacy.is_populated(&name),
        }
    }

    /// Every process in the attempt's groups.
    pub fn members(&self, attempt: &AttemptId) -> Vec<u32> {
        let name = directory(attempt);
        match &self.unified {
            Some(unified) => file::members(&unified.group(&name)),
            None => self.legacy.members(&name),
        }
    }

    /// Kills every process in the attempt's groups, including those that are being created.
    pub fn kill(&self, attempt: &AttemptId) {
        let name = directory(attempt);
        let killed = match &self.unified {
            // If version 2 cannot kill, the groups of version 1 may be frozen, and frozen processes do not
            // die.
            Some(unified)
                if unified.supports(Controller::Freezer) && unified.group(&name).exists() =>
            {
                unified.kill(&name)
            }
            Some(_) | None => self.legacy.kill(&name),
        };
        if let Err(e) = killed {
            error!(step = %attempt.step, attempt = attempt.number, "{e}");
        }
    }

    /// Starts to freeze the attempt's groups; [`Groups::freezer`] tells when that is complete.
    ///
    /// # Errors
    /// If freezing is not possible.
    pub fn freeze(&self, attempt: &AttemptId) -> Result<(), FreezeRefusal> {
        self.set_frozen(attempt, true)
    }

    /// Thaws the attempt's groups.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn thaw(&self, attempt: &AttemptId) -> Result<(), FreezeRefusal> {
        self.set_frozen(attempt, false)
    }

    fn set_frozen(&self, attempt: &AttemptId, frozen: bool) -> Result<(), FreezeRefusal> {
        let name = directory(attempt);
        let set = match (self.mechanism(Capability::Freeze), &self.unified) {
            (Mechanism::Cgroup2, Some(unified)) if unified.group(&name).exists() => {
                unified.set_frozen(&name, frozen)
            }
            (Mechanism::Cgroup1, _) if self.legacy.exists(&name) => {
                self.legacy.set_frozen(&name, frozen)
            }
            _ => return Err(FreezeRefusal::Unsupported),
        };
        set.map_err(|e| FreezeRefusal::Failed(e.bounded_message()))
    }

    /// Whether the attempt can be frozen.
    pub fn freezes(&self, attempt: &AttemptId) -> bool {
        self.mechanism(Capability::Freeze) != Mechanism::None && self.exists(attempt)
    }

    /// Memory limit of the attempt's groups in bytes; `None` if they have none.
    pub fn memory_max(&self, attempt: &AttemptId) -> Option<u64> {
        let unified = self.unified.as_ref()?;
        unified.memory_max(&directory(attempt))
    }

    /// Changes the memory limit.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn set_memory_max(&self, attempt: &AttemptId, bytes: u64) -> Result<(), GroupError> {
        match &self.unified {
            Some(unified) => unified.set_memory_max(&directory(attempt), bytes),
            None => Ok(()),
        }
    }

    /// Freezer state of the attempt's groups.
    pub fn freezer(&self, attempt: &AttemptId) -> FreezerState {
        let name = directory(attempt);
        match (self.mechanism(Capability::Freeze), &self.unified) {
            (Mechanism::Cgroup2, Some(unified)) => unified.freezer(&name),
            (Mechanism::Cgroup1, _) => self.legacy.freezer(&name),
            _ => FreezerState::Thawed,
        }
    }

    /// Resource usage of the attempt's groups; `None` for what they do not count.
    pub fn usage(&self, attempt: &AttemptId) -> Usage {
        let name = directory(attempt);
        let newer = self
            .unified
            .as_ref()
            .map(|u| usage::unified(&u.group(&name)));
        newer.unwrap_or_default().or(self.legacy.usage(&name))
    }

    /// Present usage of the attempt's groups. Groups of version 1 count processor time alone.
    pub fn live_usage(&self, attempt: &AttemptId) -> RunningUsage {
        let name = directory(attempt);
        let unified = self.unified.as_ref();
        let newer = unified.map(|it| usage::live(&it.group(&name)));
        let newer = newer.unwrap_or_default();
        RunningUsage {
            cpu_us: newer.cpu_us.or_else(|| self.legacy.usage(&name).cpu_us),
            ..newer
        }
    }

    /// The kernel's out-of-memory kills in the attempt's group, if there were any.
    pub fn out_of_memory(&self, attempt: &AttemptId) -> Option<OutOfMemory> {
        let unified = self.unified.as_ref()?;
        memory::out_of_memory(&unified.group(&directory(attempt)))
    }

    /// Removes the attempt's groups. If they still contain processes, these are killed and the groups are
    /// removed later.
    pub fn remove(&mut self, attempt: &AttemptId) {
        if self.try_remove(attempt).is_err() {
            self.leaving.insert(attempt.clone());
        }
    }

    fn try_remove(&mut self, attempt: &AttemptId) -> Result<(), GroupError> {
        if self.is_populated(attempt) {
            self.kill(attempt);
        }
        let name = directory(attempt);
        if let Some(unified) = &self.unified {
            if let Some(watch) = &mut self.watch {
                watch.remove(attempt);
            }
            file::remove_tree(&unified.group(&name))?;
        }
        self.legacy.remove(&name)?;
        self.cpusets.remove(&name)?;
        self.leaving.remove(attempt);
        self.grouped.remove(attempt);
        Ok(())
    }

    /// Retries the removals that failed; returns whether some are left.
    pub fn remove_leaving(&mut self) -> bool {
        for attempt in self.leaving.clone() {
            if let Err(e) = self.try_remove(&attempt) {
                tracing::debug!(step = %attempt.step, attempt = attempt.number, "not removed yet: {e}");
            }
        }
        self.is_leaving()
    }

    /// Whether a group waits to be removed.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether the kernel notifies of changes in groups; if not, they are polled.
    pub fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Readable when a group has changed.
    pub fn watch(&self) -> Option<&GroupWatch> {
        self.watch.as_ref()
    }

    /// The attempts whose groups have changed.
    pub fn changed(&mut self) -> BTreeSet<AttemptId> {
        self.watch
            .as_mut()
            .map(GroupWatch::read)
            .unwrap_or_default()
    }

    /// Removes the root if it is empty; the next supervisor makes its own.
    pub fn close(&self) {
        if let Some(unified) = &self.unified {
            unified.close();
        }
        self.legacy.close();
        self.cpusets.close();
    }
}

/// Logs why groups cannot be opened; attempts are then tracked by other means.
fn tell<T>(opened: Result<T, GroupError>) -> Option<T> {
    opened
        .inspect_err(|e| warn!("control groups of version 2 are not used: {e}"))
        .ok()
}

fn directory(attempt: &AttemptId) -> PathBuf {
    PathBuf::from(format!("{GROUP_PREFIX}{attempt}"))
}

fn attempt_in(name: &str) -> Option<AttemptId> {
    name.strip_prefix(GROUP_PREFIX)?.parse().ok()
}
