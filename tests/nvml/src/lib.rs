//! A stand-in for NVIDIA's management library, for tests on machines without a GPU: it exports the documented C
//! functions that detection calls and answers them from a host file, which `SLUICE_NVML_STANDIN` names. The file is
//! read anew at each call, so a test rewrites it (beside it, then a rename) while an agent has the library loaded.
//!
//! Handles are numbers in the shape of pointers: they are compared and never followed, so a wrong one is an error and
//! not a crash.
#![expect(
    unsafe_code,
    reason = "these are C functions, called through raw pointers"
)]
#![expect(
    missing_docs,
    reason = "each function is documented by NVIDIA under its own name"
)]

pub mod device;
mod host;
pub mod system;

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings as nvml;

/// What every function returns.
pub(crate) type Code = nvml::nvmlReturn_t;

pub(crate) const SUCCESS: Code = nvml::nvmlReturn_enum_NVML_SUCCESS;
pub(crate) const INVALID_ARGUMENT: Code = nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;

/// The code of a call that may fail half-way.
pub(crate) fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(SUCCESS)
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null, or may be written.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: it is not null, and the caller of the C function vouches for the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a text and its NUL into a buffer of `length` bytes.
///
/// # Safety
/// `to` is null, or `length` bytes from it may be written.
pub(crate) unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: text and NUL fit into `length` bytes, which the caller vouches for.
    unsafe {
        to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}
