//! A stand-in for NVIDIA's management library, for tests on machines without a GPU: it exports the documented C
//! functions and answers them from a host file, which `SLUICE_NVML_STANDIN` names. The file is examined at each call
//! and parsed if it has changed, so a test can rewrite it (beside it, then a rename) while an agent has the library
//! loaded. `README.md` beside this crate lists the fields of a host file and the faults.
//!
//! The stand-in is faithful in two ways. What the real library refuses is refused with the same code: no utilisation while MIG is
//! on, no fans on cards without any, no NUMA node unless the GPU is one. And handles are numbers in the shape of
//! pointers that are never dereferenced, so a wrong one is an error and not a crash.
//!
//! NVIDIA documents each function under its own name; the modules group them by subject. The library has the functions
//! of drivers since 510; a test of an older one removes those symbols from a copy.
#![expect(
    unsafe_code,
    reason = "these are C functions, called through raw pointers"
)]

pub mod board;
pub mod carve;
pub mod device;
pub mod event;
mod exports;
mod fault;
mod file;
mod handle;
pub mod health;
mod held_memory;
mod host;
pub mod link;
pub mod load;
pub mod memory;
pub mod mig;
mod model;
pub mod out;
pub mod pci;
pub mod process;
mod resolve;
pub mod system;
pub mod topology;

use nvml_wrapper_sys::bindings as nvml;

/// Return code of every function.
pub(crate) type Code = nvml::nvmlReturn_t;

/// Result of a function besides its outputs.
pub(crate) type NvmlResult = Result<(), Code>;

pub(crate) const SUCCESS: Code = nvml::nvmlReturn_enum_NVML_SUCCESS;
pub(crate) const INVALID_ARGUMENT: Code = nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
pub(crate) const NOT_SUPPORTED: Code = nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
pub(crate) const NOT_FOUND: Code = nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
