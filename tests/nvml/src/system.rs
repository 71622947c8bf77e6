//! Initialisation and what concerns the whole host.

use std::ffi::{c_char, c_uint};
use std::sync::atomic::Ordering;

use nvml_wrapper_sys::bindings as nvml;

use crate::host::{Host, USERS};
use crate::{Code, SUCCESS, code, put_text};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    code(Host::load().map(|_| {
        USERS.fetch_add(1, Ordering::SeqCst);
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Code {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Code {
    let left = USERS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |users| {
        users.checked_sub(1)
    });
    match left {
        Ok(_) => SUCCESS,
        Err(_) => nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
    }
}

/// # Safety
/// As documented by NVIDIA: `length` bytes from `version` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> Code {
    // SAFETY: the caller vouches for the buffer.
    code(Host::now().and_then(|host| unsafe { put_text(version, length, &host.driver_version) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: Code) -> *const c_char {
    let text = match result {
        nvml::nvmlReturn_enum_NVML_SUCCESS => c"Success",
        nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
