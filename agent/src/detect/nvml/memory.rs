//! Memory of a GPU. Drivers before 510 know only the first version of the query, which the wrapper crate does
//! not use, so it is called here through the crate's symbol table.

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::nvmlMemory_t;

use super::answer::optional;
use crate::detect::notes::Notes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GpuMemory {
    pub(super) total: u64,
    pub(super) used: u64,
    pub(super) free: u64,
}

/// Memory of a GPU or instance; `None` if the driver does not tell.
pub(super) fn of(device: &Device<'_>, notes: &mut Notes) -> Option<GpuMemory> {
    optional("a GPU's memory", ask(device), notes)
}

/// The same, with the driver's error.
pub(super) fn ask(device: &Device<'_>) -> Result<GpuMemory, NvmlError> {
    let answer = device.memory_info().map(|info| GpuMemory {
        total: info.total,
        used: info.used,
        free: info.free,
    });
    match answer {
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
            first_version(device)
        }
        other => other,
    }
}

#[expect(unsafe_code, reason = "the wrapper has no call for the first version")]
fn first_version(device: &Device<'_>) -> Result<GpuMemory, NvmlError> {
    let ask = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the handle is from this library and valid, and `memory` is writable.
    nvml_try(unsafe { ask(device.handle(), &raw mut memory) })?;
    Ok(GpuMemory {
        total: memory.total,
        used: memory.used,
        free: memory.free,
    })
}
