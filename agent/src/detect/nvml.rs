//! Detects NVIDIA GPUs by the driver's library (NVML), opened at run time: a host without it is a CPU-only
//! host. This file owns the library and the last report. The parts are `device` (facts of a GPU), `board` (the
//! hardware), `memory`, `mig` (instances), `nodes`, `reading` and `xid` (values that change), `condition` (what makes it
//! unfit), `glance` (current users), `activity` (use by attempts), `raw` (queries that the wrapper crate lacks).
//!
//! Only functions in NVIDIA's documentation are called. A GPU without handle or UUID is skipped. Any other
//! query that fails leaves one field empty, with a note if the failure says something about the host; a
//! feature that the model lacks does not.

mod activity;
mod answer;
mod board;
mod condition;
mod device;
mod glance;
mod memory;
mod mig;
pub(crate) mod nodes;
mod raw;
mod reading;
mod xid;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use serde::{Deserialize, Serialize};
use sluice_common::inventory::{Gpu, GpuReading};

use super::notes::Notes;
use activity::ActivityReader;
use answer::{is_gone, line, words};
use condition::{HealthChecker, LinkCount};
use device::GpuFacts;
use glance::UseScanner;
use mig::MigModes;

pub(crate) use activity::GpuActivity;
pub(crate) use glance::GpuUses;
pub(crate) use xid::listen;

/// Name by which the dynamic loader finds the library; the name without a version exists only in development
/// packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The driver's answers in one scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverReport {
    pub(crate) driver: Option<String>,
    pub(crate) cuda: Option<String>,
    pub(crate) gpus: Vec<Gpu>,
    /// GPUs with MIG on and no instance.
    #[serde(default)]
    pub(crate) empty_gpus: Vec<Gpu>,
    pub(crate) readings: Vec<GpuReading>,
    /// Use of whole GPUs.
    #[serde(default)]
    pub(crate) activity: BTreeMap<String, GpuActivity>,
    /// Whole GPUs whose clocks are throttled by hardware, with the cause.
    pub(crate) slowed: BTreeMap<String, String>,
    /// Conditions of whole GPUs that make them unfit.
    pub(crate) conditions: BTreeMap<String, BTreeSet<String>>,
    pub(crate) notes: Notes,
    /// Whether the driver is gone, so that this is the report from before.
    pub(crate) is_stale: bool,
    /// Whether there may be GPUs that the driver has never listed.
    #[serde(default)]
    pub(crate) gpus_unknown: bool,
}

/// The driver's library, kept open between scans, because opening it wakes the driver.
pub(crate) struct Driver {
    library: Option<PathBuf>,
    nvml: Option<Nvml>,
    facts: GpuFacts,
    modes: MigModes,
    conditions: HealthChecker,
    use_scanner: UseScanner,
    activity_reader: ActivityReader,
    /// The last report, used if a query of the whole driver fails once.
    last: DriverReport,
}

impl Driver {
    /// Opens nothing yet. `library` replaces the loader's choice.
    pub(crate) fn new(library: Option<PathBuf>) -> Self {
        Self {
            library,
            nvml: None,
            facts: GpuFacts::default(),
            modes: MigModes::default(),
            conditions: HealthChecker::default(),
            use_scanner: UseScanner::default(),
            activity_reader: ActivityReader::default(),
            last: DriverReport::default(),
        }
    }

    /// Queries everything. If there is no driver, the next scan tries again, because it may be loaded by
    /// then.
    pub(crate) fn look(&mut self) -> DriverReport {
        let report = match self.open() {
            Ok(nvml) => {
                let (report, lives) = self.ask(&nvml);
                self.nvml = lives.then_some(nvml);
                report
            }
            Err(absence) => {
                self.facts = GpuFacts::default();
                self.stale(absence)
            }
        };
        self.last = report.clone();
        report
    }

    /// Users of the GPUs now; `None` if the driver does not answer.
    pub(crate) fn glance(&mut self) -> Option<GpuUses> {
        let nvml = self.open().ok()?;
        let uses = self.use_scanner.look(&nvml, &mut self.modes).ok()?;
        self.nvml = Some(nvml);
        uses
    }

    /// Takes over what an earlier process of this agent has reported.
    pub(crate) fn remember(&mut self, gpus: Vec<Gpu>) {
        self.modes.remember(&gpus);
        self.use_scanner.remember(&gpus);
        self.last.gpus = gpus;
    }

    /// The last report, for a driver that is gone.
    fn stale(&self, absence: DriverAbsence) -> DriverReport {
        let mut report = self.last.clone();
        report.is_stale = !report.gpus.is_empty();
        report.gpus_unknown = report.gpus.is_empty() && absence.hides_gpus;
        report.readings.clear();
        report.activity.clear();
        report.notes = Notes::default();
        report.notes.add(absence.why);
        report
    }

    fn open(&mut self) -> Result<Nvml, DriverAbsence> {
        match self.nvml.take() {
            Some(nvml) => Ok(nvml),
            None => open(self.library.as_deref()),
        }
    }

    /// The driver's answers, and whether the driver is still loaded.
    fn ask(&mut self, nvml: &Nvml) -> (DriverReport, bool) {
        let mut report = DriverReport::default();
        let count = match nvml.device_count() {
            Ok(count) => count,
            Err(error) if is_gone(&error) => {
                let why = format!(
                    "the driver is gone, so its last report is shown: {}",
                    words(&error)
                );
                let hides_gpus = hides_gpus(&error);
                return (self.stale(DriverAbsence { why, hides_gpus }), false);
            }
            Err(error) => {
                let mut last = self.last.clone();
                last.gpus_unknown = last.gpus.is_empty();
                last.notes.add(format!(
                    "the driver does not say how many GPUs there are ({}): those of the last report are shown",
                    words(&error)
                ));
                return (last, true);
            }
        };
        report.driver = self.version(nvml, &mut report.notes);
        report.cuda = self.cuda(nvml, &mut report.notes);
        self.facts.begin_look();
        let mut seen = BTreeSet::new();
        let mut links = BTreeMap::new();
        for index in 0..count {
            match nvml
                .device_by_index(index)
                .and_then(|device| Ok((answer::uuid(&device)?, device)))
            {
                Ok((uuid, device)) if seen.insert(uuid.clone()) => {
                    self.add(nvml, &device, (index, &uuid), &mut links, &mut report);
                }
                Ok((uuid, _)) => {
                    report.notes.add(format!(
                        "GPU {index} has the UUID {uuid} of another GPU and is ignored"
                    ));
                }
                Err(error) => {
                    report
                        .notes
                        .add(format!("GPU {index} does not answer: {}", words(&error)));
                }
            }
        }
        self.conditions.judge_links(&links, &mut report.conditions);
        self.activity_reader.retain(|uuid| seen.contains(uuid));
        let last = self.last.gpus.iter();
        let silent = last.filter(|gpu| !seen.contains(gpu.whole()));
        report.gpus.extend(silent.cloned());
        (report, true)
    }

    /// Adds one GPU to a report, with its conditions and links.
    fn add(
        &mut self,
        nvml: &Nvml,
        device: &Device<'_>,
        (index, uuid): (u32, &str),
        links: &mut BTreeMap<String, LinkCount>,
        report: &mut DriverReport,
    ) {
        let whole = self.facts.of(nvml, device, index, uuid, &mut report.notes);
        let slowed = reading::slowed(device).map(|why| (whole.uuid.clone(), why.to_owned()));
        report.slowed.extend(slowed);
        let found = self.conditions.of(device, &whole.uuid);
        report.conditions.insert(whole.uuid.clone(), found);
        // A GPU with MIG does not use its links.
        if self.modes.is_whole(&whole.uuid) {
            links.extend(links_of(device, &whole));
        }
        warn_of_persistence(device, index, &mut report.notes);
        mig::units(device, whole, &mut self.modes, &self.last.gpus, report);
        if self.modes.is_whole(uuid) {
            let activity = self.activity_reader.of(device, uuid);
            report.activity.insert(uuid.to_owned(), activity);
        }
    }

    fn version(&self, nvml: &Nvml, notes: &mut Notes) -> Option<String> {
        let version = nvml.sys_driver_version();
        match version {
            Ok(version) => Some(line(&version)),
            Err(error) => {
                notes.add(format!(
                    "the driver's version cannot be read: {}",
                    words(&error)
                ));
                self.last.driver.clone()
            }
        }
    }

    fn cuda(&self, nvml: &Nvml, notes: &mut Notes) -> Option<String> {
        match nvml.sys_cuda_driver_version() {
            Ok(version) => {
                let (major, minor) = (
                    cuda_driver_version_major(version),
                    cuda_driver_version_minor(version),
                );
                Some(format!("{major}.{minor}"))
            }
            Err(error) => {
                notes.add(format!(
                    "the version of CUDA cannot be read: {}",
                    words(&error)
                ));
                self.last.cuda.clone()
            }
        }
    }
}

fn links_of(device: &Device<'_>, gpu: &Gpu) -> Option<(String, LinkCount)> {
    let active = condition::links(device)?.active;
    let model = gpu.model.clone();
    Some((gpu.uuid.clone(), LinkCount { model, active }))
}

fn warn_of_persistence(device: &Device<'_>, index: u32, notes: &mut Notes) {
    if matches!(device.is_in_persistent_mode(), Ok(false)) {
        notes.add(format!(
            "persistence mode of GPU {index} is off, so each step waits for the driver: enable nvidia-persistenced"
        ));
    }
}

/// Why there is no driver.
struct DriverAbsence {
    /// For admins: what is missing.
    why: String,
    /// Whether there may be GPUs all the same.
    hides_gpus: bool,
}

/// Opens the library.
fn open(library: Option<&Path>) -> Result<Nvml, DriverAbsence> {
    let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
    // The loader would wait for a writer of a FIFO for ever.
    let is_odd = |path: &Path| path.metadata().is_ok_and(|found| !found.is_file());
    if library.is_some_and(is_odd) {
        let library = path.to_string_lossy();
        return Err(DriverAbsence {
            why: format!("no NVIDIA driver: {library} cannot be loaded (it is not a file)"),
            hides_gpus: false,
        });
    }
    let opened = Nvml::builder().lib_path(path).init();
    opened.map_err(|error| DriverAbsence {
        why: absence(path, &error),
        hides_gpus: hides_gpus(&error),
    })
}

/// Whether there may be GPUs, although the library does not start: not without a driver, and not for a user who may not
/// use it.
fn hides_gpus(error: &NvmlError) -> bool {
    !matches!(
        error,
        NvmlError::LibloadingError(_) | NvmlError::DriverNotLoaded | NvmlError::NoPermission
    )
}

fn absence(path: &OsStr, error: &NvmlError) -> String {
    let library = path.to_string_lossy();
    match error {
        NvmlError::LibloadingError(source) => {
            format!("no NVIDIA driver: {library} cannot be loaded ({source})")
        }
        NvmlError::DriverNotLoaded => "the NVIDIA kernel driver is not loaded".to_owned(),
        NvmlError::NoPermission => {
            "NVML refuses this user: check the permissions of /dev/nvidia*".to_owned()
        }
        NvmlError::LibRmVersionMismatch => {
            "the NVIDIA library and the loaded kernel driver are of different versions: reboot, or reload the driver"
                .to_owned()
        }
        other => format!("NVML does not start ({library}): {other}"),
    }
}
