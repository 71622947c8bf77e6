//! Initialisation, and questions about the whole host.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs;
use std::sync::atomic::Ordering;

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::{code, exports, gate};
use crate::host::{Host, USERS};
use crate::out::{OutPtr, TextBuffer};
use crate::{Code, NOT_FOUND, NOT_SUPPORTED, NvmlResult, SUCCESS, event, fault, file};

/// Functions of initialisation, which can have faults like the others.
pub(crate) const INIT_NAMES: &[&str] = &["nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"];

/// `nvmlInit`, as NVIDIA documents it.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> Code {
    code(init("nvmlInit"))
}

/// `nvmlInit_v2`, as NVIDIA documents it.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    code(init("nvmlInit_v2"))
}

/// `nvmlInitWithFlags`, as NVIDIA documents it.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Code {
    code(init("nvmlInitWithFlags"))
}

fn init(name: &str) -> NvmlResult {
    let host = file::load()?;
    gate(&host, name)?;
    if let Some(error) = host.init {
        return Err(error.code());
    }
    USERS.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// `nvmlShutdown`, as NVIDIA documents it. It works whatever has become of the driver.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Code {
    let left = USERS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |users| {
        users.checked_sub(1)
    });
    match left {
        Ok(1) => {
            event::free_all();
            SUCCESS
        }
        Ok(_) => SUCCESS,
        Err(_) => nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
    }
}

/// `nvmlErrorString`, as NVIDIA documents it.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: Code) -> *const c_char {
    fault::words(result).as_ptr()
}

/// `nvidia-smi` asks for it first. It is undocumented; that there is no table is enough.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInternalGetExportTable(
    table: OutPtr<*const c_void>,
    _id: *const c_void,
) -> Code {
    code(table.put(std::ptr::null()))
}

exports! {
    host fn nvmlSystemGetDriverVersion(version: TextBuffer, length: c_uint)
        |host| version.put(length, &host.driver_version);
    host fn nvmlSystemGetNVMLVersion(version: TextBuffer, length: c_uint)
        |host| version.put(length, &nvml_version(host));
    host fn nvmlSystemGetCudaDriverVersion(version: OutPtr<c_int>)
        |host| version.put(cuda_version(host));
    host fn nvmlSystemGetCudaDriverVersion_v2(version: OutPtr<c_int>)
        |host| version.put(cuda_version(host));
    host fn nvmlSystemGetProcessName(pid: c_uint, name: TextBuffer, length: c_uint)
        |_host| process_name(pid, &name, length);
    host fn nvmlSystemGetHicVersion(count: OutPtr<c_uint>, _entries: OutPtr<nvml::nvmlHwbcEntry_t>)
        |_host| count.put(0);
    host fn nvmlSystemGetConfComputeState(state: OutPtr<nvml::nvmlConfComputeSystemState_t>)
        |host| {
            let on = host.confidential_computing.ok_or(NOT_SUPPORTED)?;
            let on = c_uint::from(on);
            state.put(nvml::nvmlConfComputeSystemState_t { environment: on, ccFeature: on, devToolsMode: 0 })
        };
    host fn nvmlUnitGetCount(count: OutPtr<c_uint>)
        |_host| count.put(0);
    host fn nvmlGetExcludedDeviceCount(count: OutPtr<c_uint>)
        |_host| count.put(0);
}

/// Returns the library's version: CUDA's major version before the driver's.
fn nvml_version(host: &Host) -> String {
    format!("{}.{}", cuda_version(host) / 1000, host.driver_version)
}

/// Returns the version in the form of `cuDriverGetVersion`: 12080 for 12.8.
fn cuda_version(host: &Host) -> c_int {
    let (major, minor) = match &host.cuda_version {
        Some(version) => parts(version),
        None => came_with(parts(&host.driver_version).0),
    };
    major * 1000 + minor * 10
}

/// Parses the first two numbers of a version.
fn parts(version: &str) -> (c_int, c_int) {
    let mut numbers = version
        .split('.')
        .map(|number| number.parse::<i16>().unwrap_or_default().into());
    (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    )
}

/// Returns the CUDA version of a branch of drivers.
fn came_with(branch: c_int) -> (c_int, c_int) {
    match branch {
        ..450 => (10, 2),
        450..455 => (11, 0),
        455..470 => (11, 1),
        470..510 => (11, 4),
        510..525 => (11, 6),
        525..535 => (12, 0),
        535..550 => (12, 2),
        550..570 => (12, 4),
        570..580 => (12, 8),
        580.. => (13, 0),
    }
}

/// The real library asks the kernel too.
fn process_name(pid: c_uint, name: &TextBuffer, length: c_uint) -> NvmlResult {
    let line = fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| NOT_FOUND)?;
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    name.put(length, &String::from_utf8_lossy(program))
}
