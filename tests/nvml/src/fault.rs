//! Faults of functions in a host file: errors by NVML's names, and delays.

use std::collections::BTreeMap;
use std::ffi::CStr;

use nvml_wrapper_sys::bindings as nvml;
use serde::{Deserialize, Deserializer, de};

use crate::Code;

/// Errors that functions return, by function.
pub(crate) type InjectedErrors = BTreeMap<String, ErrorName>;

/// Delays of functions in milliseconds.
pub(crate) type Delays = BTreeMap<String, u64>;

/// A code, written in the file by NVML's name without `NVML_ERROR_`.
#[derive(Clone, Copy)]
pub(crate) struct ErrorName(Code);

impl ErrorName {
    pub(crate) fn code(self) -> Code {
        self.0
    }
}

impl<'de> Deserialize<'de> for ErrorName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if let Some(code) = name
            .strip_prefix("CODE_")
            .and_then(|code| code.parse().ok())
        {
            return Ok(Self(code));
        }
        let known = CODES.iter().find(|(known, ..)| *known == name);
        match known {
            Some((_, code, _)) if *code != crate::SUCCESS => Ok(Self(*code)),
            _ => Err(de::Error::custom(format!(
                "{name} is no error of NVML: write one such as NOT_SUPPORTED, NO_PERMISSION or GPU_IS_LOST"
            ))),
        }
    }
}

/// Returns NVML's text for a code.
pub(crate) fn words(code: Code) -> &'static CStr {
    CODES
        .iter()
        .find(|(_, known, _)| *known == code)
        .map_or(c"Unknown Error", |(.., words)| words)
}

const CODES: &[(&str, Code, &CStr)] = &[
    ("SUCCESS", nvml::nvmlReturn_enum_NVML_SUCCESS, c"Success"),
    (
        "UNINITIALIZED",
        nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
        c"Uninitialized",
    ),
    (
        "INVALID_ARGUMENT",
        nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
        c"Invalid Argument",
    ),
    (
        "NOT_SUPPORTED",
        nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
        c"Not Supported",
    ),
    (
        "NO_PERMISSION",
        nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION,
        c"Insufficient Permissions",
    ),
    (
        "ALREADY_INITIALIZED",
        nvml::nvmlReturn_enum_NVML_ERROR_ALREADY_INITIALIZED,
        c"Already Initialized",
    ),
    (
        "NOT_FOUND",
        nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND,
        c"Not Found",
    ),
    (
        "INSUFFICIENT_SIZE",
        nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE,
        c"Insufficient Size",
    ),
    (
        "INSUFFICIENT_POWER",
        nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_POWER,
        c"Insufficient External Power",
    ),
    (
        "DRIVER_NOT_LOADED",
        nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
        c"Driver Not Loaded",
    ),
    (
        "TIMEOUT",
        nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT,
        c"Timeout",
    ),
    (
        "IRQ_ISSUE",
        nvml::nvmlReturn_enum_NVML_ERROR_IRQ_ISSUE,
        c"Interrupt Request Issue",
    ),
    (
        "LIBRARY_NOT_FOUND",
        nvml::nvmlReturn_enum_NVML_ERROR_LIBRARY_NOT_FOUND,
        c"NVML Shared Library Not Found",
    ),
    (
        "FUNCTION_NOT_FOUND",
        nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND,
        c"Function Not Found",
    ),
    (
        "CORRUPTED_INFOROM",
        nvml::nvmlReturn_enum_NVML_ERROR_CORRUPTED_INFOROM,
        c"Corrupted infoROM",
    ),
    (
        "GPU_IS_LOST",
        nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST,
        c"GPU is lost",
    ),
    (
        "RESET_REQUIRED",
        nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED,
        c"GPU requires restart",
    ),
    (
        "OPERATING_SYSTEM",
        nvml::nvmlReturn_enum_NVML_ERROR_OPERATING_SYSTEM,
        c"The operating system has blocked the request.",
    ),
    (
        "LIB_RM_VERSION_MISMATCH",
        nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        c"RM has detected an NVML/RM version mismatch.",
    ),
    (
        "IN_USE",
        nvml::nvmlReturn_enum_NVML_ERROR_IN_USE,
        c"In use by another client",
    ),
    (
        "MEMORY",
        nvml::nvmlReturn_enum_NVML_ERROR_MEMORY,
        c"Insufficient Memory",
    ),
    (
        "NO_DATA",
        nvml::nvmlReturn_enum_NVML_ERROR_NO_DATA,
        c"No data",
    ),
    (
        "INSUFFICIENT_RESOURCES",
        nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES,
        c"Insufficient resources",
    ),
    (
        "ARGUMENT_VERSION_MISMATCH",
        nvml::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        c"Version mismatch of an argument",
    ),
    (
        "DEPRECATED",
        nvml::nvmlReturn_enum_NVML_ERROR_DEPRECATED,
        c"Deprecated",
    ),
    (
        "NOT_READY",
        nvml::nvmlReturn_enum_NVML_ERROR_NOT_READY,
        c"Not Ready",
    ),
    (
        "GPU_NOT_FOUND",
        nvml::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND,
        c"No GPUs found",
    ),
    (
        "INVALID_STATE",
        nvml::nvmlReturn_enum_NVML_ERROR_INVALID_STATE,
        c"Invalid state",
    ),
    (
        "UNKNOWN",
        nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN,
        c"Unknown Error",
    ),
];
