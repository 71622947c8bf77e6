//! Board, firmware and settings of a card, most of them fixed: a data-centre card has no display, no fan and no driver model.

use std::ffi::{c_uint, c_ulong, c_ulonglong};

use nvml_wrapper_sys::bindings as nvml;

use crate::NOT_SUPPORTED;
use crate::exports::exports;
use crate::out::{OutPtr, TextBuffer};

const ENABLED: nvml::nvmlEnableState_t = nvml::nvmlEnableState_enum_NVML_FEATURE_ENABLED;
const DISABLED: nvml::nvmlEnableState_t = nvml::nvmlEnableState_enum_NVML_FEATURE_DISABLED;

/// Entries that process accounting would have, were it on.
const ACCOUNTING_ENTRIES: c_uint = 4000;

exports! {
    gpu fn nvmlDeviceGetBoardPartNumber([device] number: TextBuffer, length: c_uint)
        |device| number.put(length, device.model().part_number);
    gpu fn nvmlDeviceGetVbiosVersion([device] version: TextBuffer, length: c_uint)
        |_device| version.put(length, "96.00.89.00.01");
    gpu fn nvmlDeviceGetInforomImageVersion([device] version: TextBuffer, length: c_uint)
        |_device| version.put(length, "G520.0200.00.05");
    gpu fn nvmlDeviceGetInforomVersion([device] _object: nvml::nvmlInforomObject_t, version: TextBuffer, length: c_uint)
        |_device| version.put(length, "2.1");
    gpu fn nvmlDeviceGetGspFirmwareMode([device] enabled: OutPtr<c_uint>, default: OutPtr<c_uint>)
        |_device| {
            enabled.put(1)?;
            default.put(1)
        };
    // The buffer has a fixed length, which callers do not pass.
    gpu fn nvmlDeviceGetGspFirmwareVersion([device] version: TextBuffer)
        |device| version.put(nvml::NVML_GSP_FIRMWARE_VERSION_BUF_SIZE, &device.host.driver_version);

    gpu fn nvmlDeviceGetPersistenceMode([device] mode: OutPtr<nvml::nvmlEnableState_t>)
        |device| mode.put(if device.gpu().persistence { ENABLED } else { DISABLED });
    gpu fn nvmlDeviceGetComputeMode([device] mode: OutPtr<nvml::nvmlComputeMode_t>)
        |device| mode.put(device.gpu().compute_mode);
    gpu fn nvmlDeviceGetDisplayMode([device] mode: OutPtr<nvml::nvmlEnableState_t>)
        |_device| mode.put(DISABLED);
    gpu fn nvmlDeviceGetDisplayActive([device] active: OutPtr<nvml::nvmlEnableState_t>)
        |_device| active.put(DISABLED);
    gpu fn nvmlDeviceGetAccountingMode([device] mode: OutPtr<nvml::nvmlEnableState_t>)
        |_device| mode.put(DISABLED);
    gpu fn nvmlDeviceGetAccountingBufferSize([device] entries: OutPtr<c_uint>)
        |_device| entries.put(ACCOUNTING_ENTRIES);
    gpu fn nvmlDeviceGetVirtualizationMode([device] mode: OutPtr<nvml::nvmlGpuVirtualizationMode_t>)
        |device| mode.put(device.gpu().virtualization);
    gpu fn nvmlDeviceGetHostVgpuMode([device] _mode: OutPtr<nvml::nvmlHostVgpuMode_t>)
        |_device| Err(NOT_SUPPORTED);
    gpu fn nvmlDeviceGetDriverModel([device] _current: OutPtr<c_uint>, _pending: OutPtr<c_uint>)
        |_device| Err(NOT_SUPPORTED);
    gpu fn nvmlDeviceGetDriverModel_v2([device] _current: OutPtr<c_uint>, _pending: OutPtr<c_uint>)
        |_device| Err(NOT_SUPPORTED);
    gpu fn nvmlDeviceGetLastBBXFlushTime([device] _time: OutPtr<c_ulonglong>, _took_us: OutPtr<c_ulong>)
        |_device| Err(NOT_SUPPORTED);
    gpu fn nvmlDeviceGetGpuOperationMode([device] _current: OutPtr<c_uint>, _pending: OutPtr<c_uint>)
        |_device| Err(NOT_SUPPORTED);
    gpu fn nvmlDeviceGetAutoBoostedClocksEnabled([device] _enabled: OutPtr<c_uint>, _default: OutPtr<c_uint>)
        |_device| Err(NOT_SUPPORTED);
}
