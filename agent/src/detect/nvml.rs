//! NVIDIA GPUs, by the driver's own library, opened at run time: a host without it is a CPU-only host.

use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use sluice_common::inventory::{Gpu, Inventory};

/// The name by which the loader finds the driver's library; the unversioned one is only in development packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Fills in driver and GPUs. A GPU that does not answer is left out and noted; the others are reported.
pub(crate) fn detect(library: Option<&Path>, inventory: &mut Inventory) {
    let path = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
    let nvml = match Nvml::builder().lib_path(path).init() {
        Ok(nvml) => nvml,
        Err(error) => {
            inventory.notes.push(absence(path, &error));
            return;
        }
    };
    match nvml.sys_driver_version() {
        Ok(version) => inventory.driver = Some(version),
        Err(error) => inventory
            .notes
            .push(format!("the driver does not tell its version: {error}")),
    }
    match nvml.device_count() {
        Ok(count) => (0..count).for_each(|index| add_gpu(&nvml, index, inventory)),
        Err(error) => inventory
            .notes
            .push(format!("the driver does not count its GPUs: {error}")),
    }
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
