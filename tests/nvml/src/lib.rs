//! A stand-in for NVIDIA's management library, for tests on machines without a GPU: it exports the documented C
//! functions and answers them from a host file, which `SLUICE_NVML_STANDIN` names. The file is looked at in each call
//! and read where it has changed, so a test rewrites it (beside it, then a rename) while an agent has the library
//! loaded. `README.md` beside this crate lists the fields of a host file and the faults.
//!
//! It is honest in two ways. What the real library refuses is refused with the same code: no utilisation while MIG is
//! on, no fans on cards without any, no NUMA node but where the GPU is one. And handles are numbers in the shape of
//! pointers: they are compared and never followed, so a wrong one is an error and not a crash.
//!
//! Each function is documented by NVIDIA under its own name; the modules sort them by what they ask about. The
//! library has what drivers since 510 have; a test that needs an older one takes those symbols out of a copy.
#![expect(
    unsafe_code,
    reason = "these are C functions, called through raw pointers"
)]

pub mod board;
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

/// What every function returns.
pub(crate) type Code = nvml::nvmlReturn_t;

/// What a function has to say besides what it wrote.
pub(crate) type NvmlResult = Result<(), Code>;

pub(crate) const SUCCESS: Code = nvml::nvmlReturn_enum_NVML_SUCCESS;
pub(crate) const INVALID_ARGUMENT: Code = nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
pub(crate) const NOT_SUPPORTED: Code = nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
pub(crate) const NOT_FOUND: Code = nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
