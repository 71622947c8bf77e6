//! Chooses the mechanism of device filters on this host by a trial at the supervisor's start: only a trial
//! shows what a kernel or a surrounding container refuses. [`sluice_cgroups::devices`] makes the filters.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use sluice_cgroups::devices::gpus::{self, GpuDevices};
use sluice_cgroups::devices::{DeviceFilter, DeviceFilterError, LoadedFilter};
use sluice_common::error_chain::error_chain;
use sluice_common::inventory::Mechanism;
use sluice_common::supervision::DeviceAccess;
use sluice_common::supervisor_config::DeviceFilterChoice;
use tracing::warn;

/// Name of the group for the trial.
const TRIAL: &str = "trial";
/// Most loaded filters that are kept for reuse: one for each GPU of a large host, and one for steps without
/// GPUs.
const MAX_LOADED: usize = 17;

/// Whether the config allows a mechanism and it works below `root`.
pub(super) fn has(choice: DeviceFilterChoice, mechanism: Mechanism, root: Option<&Path>) -> bool {
    choice.allows(mechanism) && root.is_some_and(|root| works(mechanism, root))
}

/// Config of device filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The configured mechanism.
    pub filter: DeviceFilterChoice,
    /// Device nodes that are GPUs in addition to the driver's.
    pub gpus: Vec<PathBuf>,
}

/// The device filters of this host.
#[derive(Debug)]
pub(super) struct DeviceFilters {
    pub(super) mechanism: Mechanism,
    gpus: Vec<PathBuf>,
    /// Filters that are loaded in the kernel, the most recent last. Most steps of a host need the same
    /// filter.
    loaded: Vec<(DeviceFilter, LoadedFilter)>,
}

impl DeviceFilters {
    /// For groups in which no attempt starts.
    pub(super) fn none() -> Self {
        Self {
            mechanism: Mechanism::None,
            gpus: Vec::new(),
            loaded: Vec::new(),
        }
    }

    pub(super) fn new(mechanism: Mechanism, options: &DeviceOptions) -> Self {
        if mechanism == Mechanism::None && options.filter != DeviceFilterChoice::None {
            warn!(
                "steps can open the GPUs of other steps: this host has no device filter that the supervisor may use; pools that require the capability `devices` give it no work"
            );
        }
        for e in options
            .gpus
            .iter()
            .filter_map(|path| gpus::number(path).err())
        {
            warn!("gpu_devices: {e}: no step can open it, even if it appears later");
        }
        let mut filters = Self {
            mechanism,
            gpus: options.gpus.clone(),
            loaded: Vec::new(),
        };
        // Loads the filter for steps without GPUs; if that fails, the first such step reports why.
        let host = GpuDevices::detect(Path::new("/"), &filters.gpus);
        if mechanism == Mechanism::Cgroup2
            && let Ok(filter) = DeviceFilter::new(&host, &DeviceAccess::default())
            && let Ok(loaded) = filter.load()
        {
            filters.loaded.push((filter, loaded));
        }
        filters
    }

    /// Attaches a filter to a group by the mechanism in use: `unified` and `legacy` are the group's
    /// directories.
    pub(super) fn apply(
        &mut self,
        devices: &DeviceAccess,
        unified: Option<&Path>,
        legacy: Option<&Path>,
    ) -> Result<(), DeviceFilterError> {
        let host = GpuDevices::detect(Path::new("/"), &self.gpus);
        let filter = DeviceFilter::new(&host, devices)?;
        match (self.mechanism, unified, legacy) {
            (Mechanism::Cgroup2, Some(group), _) => self.attach(filter, group),
            (Mechanism::Cgroup1, _, Some(group)) => filter.write_to(group),
            _ => Ok(()),
        }
    }

    fn attach(&mut self, filter: DeviceFilter, group: &Path) -> Result<(), DeviceFilterError> {
        let opened = File::open(group).map_err(DeviceFilterError::Attach)?;
        let known = self.loaded.iter().position(|(known, _)| *known == filter);
        let latest = match known {
            Some(at) => self.loaded.remove(at),
            None => {
                let loaded = filter.load()?;
                (filter, loaded)
            }
        };
        let attached = latest.1.attach(opened.as_fd());
        if self.loaded.len() >= MAX_LOADED {
            self.loaded.remove(0);
        }
        self.loaded.push(latest);
        attached
    }
}

/// Whether a mechanism works below `root`, tested with a temporary group.
fn works(mechanism: Mechanism, root: &Path) -> bool {
    let group = root.join(TRIAL);
    let tried = try_out(mechanism, &group);
    // The group never contained a process.
    let _ = fs::remove_dir(&group);
    if let Err(e) = &tried {
        warn!(
            "devices cannot be filtered by {mechanism} here: {}",
            error_chain(e)
        );
    }
    tried.is_ok()
}

fn try_out(mechanism: Mechanism, group: &Path) -> Result<(), DeviceFilterError> {
    match fs::create_dir(group) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(DeviceFilterError::Attach(e));
        }
        Ok(()) | Err(_) => {}
    }
    let mut filters = DeviceFilters {
        mechanism,
        gpus: Vec::new(),
        loaded: Vec::new(),
    };
    filters.apply(&DeviceAccess::default(), Some(group), Some(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_group_does_not_work_and_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        for mechanism in [Mechanism::Cgroup2, Mechanism::Cgroup1] {
            assert!(!works(mechanism, dir.path()));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
