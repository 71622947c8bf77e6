//! NVIDIA GPUs, by the driver's own library, opened at run time: a host without it is a CPU-only host. This file owns the
//! library and what was seen last; the parts are `device` (facts of one GPU), `memory`, `mig` (instances), `nodes`, `reading`
//! and `xid` (what changes by itself), `glance` (who uses them now).
//!
//! Only what NVIDIA documents is called. A GPU without handle or UUID is left out; any other question that is refused
//! leaves one field empty, with a note where the refusal says something about the host: that a model lacks a feature
//! does not.

mod answer;
mod device;
mod glance;
mod memory;
mod mig;
pub(crate) mod nodes;
mod reading;
mod xid;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use agent_core::GpuLook;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use sluice_common::inventory::{Gpu, GpuReading};

use super::notes::Notes;
use crate::clock;
use answer::{is_gone, line};
use device::Facts;
use glance::Glances;

pub(crate) use xid::{Xids, listen};

/// The name by which the loader finds the driver's library; the unversioned one is only in development packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// What the driver said in one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) driver: Option<String>,
    pub(crate) cuda: Option<String>,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) readings: Vec<GpuReading>,
    /// Which whole GPUs are held below their clocks by their hardware, and by what of it.
    pub(crate) slowed: BTreeMap<String, &'static str>,
    pub(crate) notes: Notes,
}

/// The driver's library, held open between two looks: opening it anew each time would wake the driver each time.
pub(crate) struct Driver {
    library: Option<PathBuf>,
    nvml: Option<Nvml>,
    facts: Facts,
    glances: Glances,
    /// What was seen last, for when one question of the whole driver fails and the next may not.
    last: Report,
}

impl Driver {
    /// Opens nothing yet. `library` replaces the loader's choice.
    pub(crate) fn new(library: Option<PathBuf>) -> Self {
        Self {
            library,
            nvml: None,
            facts: Facts::default(),
            glances: Glances::default(),
            last: Report::default(),
        }
    }

    /// Asks for everything. Where there is no driver, the next look tries again: it may be loaded by then.
    pub(crate) fn look(&mut self) -> Report {
        let report = match self.open() {
            Ok(nvml) => {
                let (report, lives) = self.ask(&nvml);
                self.nvml = lives.then_some(nvml);
                report
            }
            Err(note) => {
                self.facts = Facts::default();
                let mut report = Report::default();
                report.notes.add(note);
                report
            }
        };
        self.last = report.clone();
        report
    }

    /// Who uses the GPUs now; nothing where the driver does not answer.
    pub(crate) fn glance(&mut self) -> Option<GpuLook> {
        let nvml = self.open().ok()?;
        let began = clock::boot();
        let gpus = self.glances.look(&nvml).ok()?;
        self.nvml = Some(nvml);
        Some(GpuLook {
            began,
            gpus: gpus?,
            memory_available: super::memory::available(),
        })
    }

    fn open(&mut self) -> Result<Nvml, String> {
        match self.nvml.take() {
            Some(nvml) => Ok(nvml),
            None => open(self.library.as_deref()),
        }
    }

    /// What the driver says, and whether it is still there.
    fn ask(&mut self, nvml: &Nvml) -> (Report, bool) {
        let mut report = Report::default();
        let count = match nvml.device_count() {
            Ok(count) => count,
            Err(error) if is_gone(&error) => {
                report.notes.add(format!("the driver is gone: {error}"));
                return (report, false);
            }
            Err(error) => {
                let mut last = self.last.clone();
                last.notes.add(format!(
                    "the driver does not say how many GPUs there are ({error}): those that were seen last are shown"
                ));
                return (last, true);
            }
        };
        report.driver = self.version(nvml, &mut report.notes);
        report.cuda = self.cuda(nvml, &mut report.notes);
        self.facts.begin_look();
        let mut seen = BTreeSet::new();
        for index in 0..count {
            match nvml
                .device_by_index(index)
                .and_then(|device| Ok((device.uuid()?, device)))
            {
                Ok((uuid, device)) if seen.insert(uuid.clone()) => {
                    let whole = self
                        .facts
                        .of(nvml, &device, index, &uuid, &mut report.notes);
                    let slowed = reading::slowed(&device);
                    report
                        .slowed
                        .extend(slowed.map(|why| (whole.uuid.clone(), why)));
                    mig::units(&device, whole, &mut report);
                }
                Ok((uuid, _)) => {
                    report.notes.add(format!(
                        "GPU {index} has the UUID {uuid} of another and is left out"
                    ));
                }
                Err(error) => {
                    report.notes.add(format!(
                        "GPU {index} does not answer and is left out: {error}"
                    ));
                }
            }
        }
        (report, true)
    }

    fn version(&self, nvml: &Nvml, notes: &mut Notes) -> Option<String> {
        let version = nvml.sys_driver_version();
        match version {
            Ok(version) => Some(line(&version)),
            Err(error) => {
                notes.add(format!("the driver's version cannot be read: {error}"));
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
                notes.add(format!("the version of CUDA cannot be read: {error}"));
                self.last.cuda.clone()
            }
        }
    }
}

/// Opens the library, or says why not in an admin's words.
fn open(library: Option<&Path>) -> Result<Nvml, String> {
    let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
    Nvml::builder()
        .lib_path(path)
        .init()
        .map_err(|error| absence(path, &error))
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
