//! A GPU's memory. Drivers before 510 know only the first version of the question, which the wrapper does not ask, so
//! it is asked here through the wrapper's own table of symbols.

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::nvmlMemory_t;

use super::answer::optional;
use crate::detect::notes::Notes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) used: u64,
    pub(super) free: u64,
}

/// How much a GPU or an instance has; `None` where the driver does not tell.
pub(super) fn of(device: &Device<'_>, notes: &mut Notes) -> Option<Memory> {
    optional("a GPU's memory", ask(device), notes)
}

/// The same with the driver's own word where it does not.
pub(super) fn ask(device: &Device<'_>) -> Result<Memory, NvmlError> {
    let answer = device.memory_info().map(|info| Memory {
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
fn first_version(device: &Device<'_>) -> Result<Memory, NvmlError> {
    let ask = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the handle is one that this library gave and still knows, and `memory` may be written.
    nvml_try(unsafe { ask(device.handle(), &raw mut memory) })?;
    Ok(Memory {
        total: memory.total,
        used: memory.used,
        free: memory.free,
    })
}
