//! What concerns one GPU.

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings as nvml;

use crate::host::{Gpu, Host, handle};
use crate::{Code, code, put, put_text};

const MIB: u64 = 1 << 20;

/// # Safety
/// As documented by NVIDIA: `count` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> Code {
    // SAFETY: the caller vouches for the pointer.
    code(Host::now().and_then(|host| unsafe { put(count, host.gpus.len() as c_uint) }))
}

/// # Safety
/// As documented by NVIDIA: `device` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut nvml::nvmlDevice_t,
) -> Code {
    let found = Host::gpu(handle(index as usize));
    // SAFETY: the caller vouches for the pointer.
    code(found.and_then(|_| unsafe { put(device, handle(index as usize)) }))
}

/// # Safety
/// As documented by NVIDIA: `length` bytes from `uuid` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(
    device: nvml::nvmlDevice_t,
    uuid: *mut c_char,
    length: c_uint,
) -> Code {
    // SAFETY: the caller vouches for the buffer.
    code(Host::gpu(device).and_then(|gpu| unsafe { put_text(uuid, length, &gpu.uuid) }))
}

/// # Safety
/// As documented by NVIDIA: `length` bytes from `name` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(
    device: nvml::nvmlDevice_t,
    name: *mut c_char,
    length: c_uint,
) -> Code {
    // SAFETY: the caller vouches for the buffer.
    code(Host::gpu(device).and_then(|gpu| unsafe { put_text(name, length, &gpu.name) }))
}

/// # Safety
/// As documented by NVIDIA: `memory` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(
    device: nvml::nvmlDevice_t,
    memory: *mut nvml::nvmlMemory_t,
) -> Code {
    let info = |gpu: &Gpu| nvml::nvmlMemory_t {
        total: total(gpu),
        free: total(gpu) - used(gpu),
        used: used(gpu),
    };
    // SAFETY: the caller vouches for the pointer.
    code(Host::gpu(device).and_then(|gpu| unsafe { put(memory, info(&gpu)) }))
}

/// # Safety
/// As documented by NVIDIA: `memory` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvml::nvmlDevice_t,
    memory: *mut nvml::nvmlMemory_v2_t,
) -> Code {
    let info = |gpu: &Gpu| nvml::nvmlMemory_v2_t {
        version: (size_of::<nvml::nvmlMemory_v2_t>() | 2 << 24) as c_uint,
        total: total(gpu),
        reserved: 0,
        free: total(gpu) - used(gpu),
        used: used(gpu),
    };
    // SAFETY: the caller vouches for the pointer.
    code(Host::gpu(device).and_then(|gpu| unsafe { put(memory, info(&gpu)) }))
}

fn total(gpu: &Gpu) -> u64 {
    gpu.memory_total_mib * MIB
}

fn used(gpu: &Gpu) -> u64 {
    (gpu.memory_used_mib * MIB).min(total(gpu))
}
