//! NVIDIA GPUs, by the driver's own library, opened at run time: a host without it is a CPU-only host.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use sluice_common::inventory::{Gpu, Inventory};

/// The name by which the loader finds the driver's library; the unversioned one is only in development packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The driver's library, held open between two looks: opening it anew each time would wake the driver each time.
pub(crate) struct Driver {
    library: Option<PathBuf>,
    nvml: Option<Nvml>,
}

impl Driver {
    /// Opens nothing yet. `library` replaces the loader's choice.
    pub(crate) fn new(library: Option<PathBuf>) -> Self {
        Self {
            library,
            nvml: None,
        }
    }

    /// Fills in driver and GPUs. A GPU that does not answer is left out and noted; the others are reported. Where there
    /// is no driver, the next look tries again: it may be loaded by then.
    pub(crate) fn detect(&mut self, inventory: &mut Inventory) {
        let nvml = match self.nvml.take() {
            Some(nvml) => nvml,
            None => {
                let path = self
                    .library
                    .as_deref()
                    .map_or(OsStr::new(LIBRARY), Path::as_os_str);
                match Nvml::builder().lib_path(path).init() {
                    Ok(nvml) => nvml,
                    Err(error) => return inventory.notes.push(absence(path, &error)),
                }
            }
        };
        match read_host(&nvml, inventory) {
            Ok(()) => self.nvml = Some(nvml),
            // A driver that was unloaded or replaced under us answers only those who begin anew.
            Err(error) => inventory
                .notes
                .push(format!("the driver does not answer: {error}")),
        }
    }
}

fn read_host(nvml: &Nvml, inventory: &mut Inventory) -> Result<(), NvmlError> {
    inventory.driver = Some(nvml.sys_driver_version()?);
    let count = nvml.device_count()?;
    (0..count).for_each(|index| add_gpu(nvml, index, inventory));
    Ok(())
}

fn add_gpu(nvml: &Nvml, index: u32, inventory: &mut Inventory) {
    match read_gpu(nvml, index) {
        Ok(gpu) => inventory.gpus.push(gpu),
        Err(error) => inventory.notes.push(format!(
            "GPU {index} does not answer and is left out: {error}"
        )),
    }
}

fn read_gpu(nvml: &Nvml, index: u32) -> Result<Gpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    Ok(Gpu {
        index,
        uuid: device.uuid()?,
        model: device.name()?,
        memory_bytes: device.memory_info()?.total,
        ..Gpu::default()
    })
}

/// Why there are no GPUs, in an admin's words.
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
        other => format!("NVML does not start ({library}): {other}"),
    }
}
