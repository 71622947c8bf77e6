//! The host that the library pretends to run on: a JSON file.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use nvml_wrapper_sys::bindings as nvml;
use serde::Deserialize;

use crate::Code;

/// Names the host file.
const FILE_VARIABLE: &str = "SLUICE_NVML_STANDIN";

/// How often the library was initialised and not shut down.
pub(crate) static USERS: AtomicU32 = AtomicU32::new(0);

/// A host.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    pub(crate) driver_version: String,
    pub(crate) gpus: Vec<Gpu>,
}

/// One of its GPUs.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) memory_total_mib: u64,
    #[serde(default)]
    pub(crate) memory_used_mib: u64,
    /// Fallen off the bus: every question about it is answered with that.
    #[serde(default)]
    pub(crate) lost: bool,
}

impl Host {
    /// The host as it is now; without a file there is no driver.
    pub(crate) fn load() -> Result<Self, Code> {
        let path = std::env::var_os(FILE_VARIABLE)
            .ok_or(nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED)?;
        let text =
            fs::read(path).map_err(|_| nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED)?;
        serde_json::from_slice(&text).map_err(|_| nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN)
    }

    /// The same, for everybody who has initialised the library.
    pub(crate) fn now() -> Result<Self, Code> {
        match USERS.load(Ordering::SeqCst) {
            0 => Err(nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED),
            _ => Self::load(),
        }
    }

    /// The GPU behind a handle.
    pub(crate) fn gpu(handle: nvml::nvmlDevice_t) -> Result<Gpu, Code> {
        let number = handle.addr();
        let gpus = Self::now()?.gpus;
        let gpu = number
            .checked_sub(1)
            .and_then(|index| gpus.into_iter().nth(index));
        match gpu {
            Some(gpu) if gpu.lost => Err(nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST),
            Some(gpu) => Ok(gpu),
            None => Err(nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
        }
    }
}

/// The handle of the GPU with this index: never null, never followed.
pub(crate) fn handle(index: usize) -> nvml::nvmlDevice_t {
    std::ptr::without_provenance_mut(index + 1)
}
