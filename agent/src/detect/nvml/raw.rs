//! Queries that the wrapper crate lacks, or of which it refuses values that NVML has added since. They are called through
//! the crate's symbol table.
#![expect(unsafe_code, reason = "the wrapper has no calls for these")]

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as nvml;
use sluice_common::inventory::RemappedRows;

/// Version 2 of a structure, in the form of NVIDIA's header.
const VERSION_2: u32 = 2 << 24;

/// Compute mode, by number.
pub(super) fn compute_mode(device: &Device<'_>) -> Result<u32, NvmlError> {
    let ask = nvml_sym(device.nvml().lib().nvmlDeviceGetComputeMode.as_ref())?;
    let mut mode = 0;
    // SAFETY: the handle is from this library and valid, and `mode` is writable.
    nvml_try(unsafe { ask(device.handle(), &raw mut mode) })?;
    Ok(mode)
}

/// Rows of memory that were replaced.
pub(super) fn remapped_rows(device: &Device<'_>) -> Result<RemappedRows, NvmlError> {
    let ask = nvml_sym(device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let (mut correctable, mut uncorrectable, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: the handle is from this library and valid, and the numbers are writable.
    nvml_try(unsafe {
        ask(
            device.handle(),
            &raw mut correctable,
            &raw mut uncorrectable,
            &raw mut pending,
            &raw mut failed,
        )
    })?;
    Ok(RemappedRows {
        correctable,
        uncorrectable,
        is_pending: pending != 0,
        has_failed: failed != 0,
    })
}

/// Registration with the NVLink fabric.
pub(super) struct RawState {
    /// NVML's number of the state.
    pub(super) state: u32,
    pub(super) has_failed: bool,
    /// Id of the NVLink domain; zeros if the fabric ends at the host.
    pub(super) cluster: [u8; 16],
    /// Number of the part of the domain whose GPUs reach each other.
    pub(super) clique: u32,
}

/// Registration with the NVLink fabric.
pub(super) fn fabric(device: &Device<'_>) -> Result<RawState, NvmlError> {
    let ask = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuFabricInfo.as_ref())?;
    let mut info = nvml::nvmlGpuFabricInfo_t {
        clusterUuid: [0; 16],
        status: 0,
        cliqueId: 0,
        state: 0,
    };
    // SAFETY: the handle is from this library and valid, and `info` is writable.
    nvml_try(unsafe { ask(device.handle(), &raw mut info) })?;
    Ok(RawState {
        state: u32::from(info.state),
        has_failed: info.status != 0,
        cluster: info.clusterUuid,
        clique: info.cliqueId,
    })
}

/// Why the clocks are reduced, as NVML's mask.
pub(super) fn throttle_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    let library = device.nvml().lib();
    let ask = library.nvmlDeviceGetCurrentClocksThrottleReasons.as_ref();
    let ask = nvml_sym(ask)?;
    let mut reasons = 0;
    // SAFETY: the handle is from this library and valid, and `reasons` is writable.
    nvml_try(unsafe { ask(device.handle(), &raw mut reasons) })?;
    Ok(reasons)
}

/// Whether confidential computing is on, which holds for all GPUs of a host.
pub(super) fn confidential_computing(library: &Nvml) -> Result<bool, NvmlError> {
    let ask = nvml_sym(library.lib().nvmlSystemGetConfComputeState.as_ref())?;
    let mut state = nvml::nvmlConfComputeSystemState_t {
        environment: 0,
        ccFeature: 0,
        devToolsMode: 0,
    };
    // SAFETY: `state` is writable.
    nvml_try(unsafe { ask(&raw mut state) })?;
    Ok(state.ccFeature != 0)
}

/// Name of a MIG profile, and the most instances of it; by NVML's number of the profile.
pub(super) fn mig_profile(device: &Device<'_>, number: u32) -> Result<(String, u32), NvmlError> {
    let library = device.nvml().lib();
    let ask = nvml_sym(library.nvmlDeviceGetGpuInstanceProfileInfoV.as_ref())?;
    // SAFETY: the structure holds only numbers, for which zero is a value.
    let mut info: nvml::nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    info.version = size_of_val(&info) as u32 | VERSION_2;
    // SAFETY: the handle is from this library and valid, and `info` is writable and as large as its version says.
    nvml_try(unsafe { ask(device.handle(), number, &raw mut info) })?;
    let name = info.name.iter().take_while(|c| **c != 0);
    let name: Vec<u8> = name.map(|c| c.cast_unsigned()).collect();
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok((name, info.instanceCount))
}
