//! Processes that use a GPU or a MIG device.

use std::ffi::{c_uint, c_ulonglong};
use std::time::{SystemTime, UNIX_EPOCH};

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::exports;
use crate::held_memory;
use crate::host::Process;
use crate::out::OutPtr;
use crate::resolve::Device;
use crate::{Code, NOT_FOUND};

/// Value of a number that the driver does not know.
const NOT_AVAILABLE: u64 = u64::MAX;

exports! {
    unit fn nvmlDeviceGetComputeRunningProcesses([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v1_t>)
        |unit| to.fill(&count, &first(&running(unit, Kind::Compute)));
    unit fn nvmlDeviceGetComputeRunningProcesses_v2([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v2_t>)
        |unit| to.fill(&count, &running(unit, Kind::Compute));
    unit fn nvmlDeviceGetGraphicsRunningProcesses([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v1_t>)
        |unit| to.fill(&count, &first(&running(unit, Kind::Graphics)));
    unit fn nvmlDeviceGetGraphicsRunningProcesses_v2([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v2_t>)
        |unit| to.fill(&count, &running(unit, Kind::Graphics));
    gpu fn nvmlDeviceGetProcessUtilization(
        [device] to: OutPtr<nvml::nvmlProcessUtilizationSample_t>, count: OutPtr<c_uint>, _since_us: c_ulonglong
    ) |device| {
        device.is_not_cut()?;
        match samples(device)? {
            samples if samples.is_empty() => Err(NOT_FOUND),
            samples => to.fill(&count, &samples),
        }
    };
    unit fn nvmlDeviceGetMPSComputeRunningProcesses([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v1_t>)
        |_unit| to.fill(&count, &[]);
    unit fn nvmlDeviceGetMPSComputeRunningProcesses_v2([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v2_t>)
        |_unit| to.fill(&count, &[]);

    unit fn nvmlDeviceGetComputeRunningProcesses_v3([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v2_t>)
        |unit| to.fill(&count, &running(unit, Kind::Compute));
    unit fn nvmlDeviceGetGraphicsRunningProcesses_v3([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v2_t>)
        |unit| to.fill(&count, &running(unit, Kind::Graphics));
    unit fn nvmlDeviceGetMPSComputeRunningProcesses_v3([device] count: OutPtr<c_uint>, to: OutPtr<nvml::nvmlProcessInfo_v2_t>)
        |_unit| to.fill(&count, &[]);
}

#[derive(PartialEq)]
enum Kind {
    Compute,
    Graphics,
}

/// Lists running processes: a MIG device has its own, a GPU all, distinguished by their instances.
fn running(unit: &Device, kind: Kind) -> Vec<nvml::nvmlProcessInfo_v2_t> {
    let draws = kind == Kind::Graphics;
    let all = unit.gpu().processes.iter();
    let here = all.filter(|process| {
        process.graphics == draws && (unit.mig.is_none() || process.mig == unit.mig)
    });
    let shown = here.map(|process| {
        let device = Device {
            mig: process.mig,
            ..unit.clone()
        };
        let (gpu_instance, compute_instance) = device.instance_ids();
        nvml::nvmlProcessInfo_v2_t {
            pid: process.pid,
            usedGpuMemory: process.used_bytes.unwrap_or(NOT_AVAILABLE),
            gpuInstanceId: gpu_instance,
            computeInstanceId: compute_instance,
        }
    });
    let held = held_memory::held(unit).filter(|_| !draws && unit.mig.is_none());
    let held = held.filter_map(|held| {
        let (gpu_instance, compute_instance) = unit.instance_ids();
        Some(nvml::nvmlProcessInfo_v2_t {
            pid: held.pid?,
            usedGpuMemory: held.bytes,
            gpuInstanceId: gpu_instance,
            computeInstanceId: compute_instance,
        })
    });
    shown.chain(held).collect()
}

/// Returns one sample of each process, taken now: processes share the GPU's load evenly.
fn samples(device: &Device) -> Result<Vec<nvml::nvmlProcessUtilizationSample_t>, Code> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_us = now.map_err(|_| nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN)?;
    let gpu = device.gpu();
    let share = |percent: u32| percent / (gpu.processes.len() as u32).max(1);
    let sample = |process: &Process| nvml::nvmlProcessUtilizationSample_t {
        pid: process.pid,
        timeStamp: now_us.as_micros() as c_ulonglong,
        smUtil: share(gpu.utilization.gpu),
        memUtil: share(gpu.utilization.memory),
        encUtil: 0,
        decUtil: 0,
    };
    Ok(gpu.processes.iter().map(sample).collect())
}

/// Converts to the first version, which has no instances.
fn first(running: &[nvml::nvmlProcessInfo_v2_t]) -> Vec<nvml::nvmlProcessInfo_v1_t> {
    let narrow = |process: &nvml::nvmlProcessInfo_v2_t| nvml::nvmlProcessInfo_v1_t {
        pid: process.pid,
        usedGpuMemory: process.usedGpuMemory,
    };
    running.iter().map(narrow).collect()
}
