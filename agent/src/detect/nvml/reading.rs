//! Values of a GPU or instance that change. A query that fails leaves its field empty.

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use sluice_common::inventory::{GpuProcess, GpuReading};

use super::answer::plausible;
use super::memory;
use crate::detect::notes::Notes;

/// Most processes of one GPU that are reported.
const MAX_PROCESSES: usize = 256;

/// Most that can be true of any GPU: hotter ones have shut down, and no board is fed as much.
const MAX_PERCENT: u32 = 100;
const MAX_CELSIUS: u32 = 150;
const MAX_MILLIWATTS: u32 = 10_000_000;

pub(super) fn of(device: &Device<'_>, uuid: &str, notes: &mut Notes) -> GpuReading {
    let memory = memory::of(device, notes);
    let memory = memory.filter(|memory| {
        let used = Some(memory.used);
        plausible("a GPU's used memory in bytes", used, memory.total, notes).is_some()
    });
    let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
    let utilization = device.utilization_rates().ok().map(|rates| rates.gpu);
    let temperature = device.temperature(TemperatureSensor::Gpu).ok();
    let power = device.power_usage().ok();
    GpuReading {
        uuid: uuid.to_owned(),
        memory_used_bytes: memory.map(|memory| memory.used),
        memory_free_bytes: memory.map(|memory| memory.free),
        utilization_percent: plausible(
            "a GPU's utilization in percent",
            utilization,
            MAX_PERCENT,
            notes,
        ),
        temperature_celsius: plausible("a GPU's temperature in C", temperature, MAX_CELSIUS, notes),
        power_milliwatts: plausible("a GPU's power in mW", power, MAX_MILLIWATTS, notes),
        power_limit_milliwatts: device
            .enforced_power_limit()
            .or_else(|_| device.power_management_limit())
            .ok(),
        ecc_corrected: ecc(MemoryError::Corrected),
        ecc_uncorrected: ecc(MemoryError::Uncorrected),
        xids: Default::default(),
        processes: processes(device),
        board: None,
    }
}

/// The hardware cause that throttles a GPU's clocks, if there is one.
pub(super) fn slowed(device: &Device<'_>) -> Option<&'static str> {
    let reasons = device.current_throttle_reasons().ok()?;
    let known = [
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat"),
        (ThrottleReasons::HW_SLOWDOWN, "heat or a power brake"),
    ];
    let found = known.iter().find(|(reason, _)| reasons.contains(*reason));
    found.map(|(_, words)| *words)
}

/// Compute and graphics processes, each once.
fn processes(device: &Device<'_>) -> Option<Vec<GpuProcess>> {
    let mut all: Vec<GpuProcess> = match (compute(device).ok(), graphics(device).ok()) {
        (None, None) => return None,
        (compute, graphics) => compute
            .into_iter()
            .chain(graphics)
            .flatten()
            .map(process)
            .collect(),
    };
    all.sort_by_key(|process| process.pid);
    all.dedup_by_key(|process| process.pid);
    all.truncate(MAX_PROCESSES);
    Some(all)
}

/// Pids of these processes; an error if both queries fail or the GPU is lost.
pub(super) fn pids(device: &Device<'_>) -> Result<Vec<u32>, NvmlError> {
    let mut pids: Vec<u32> = match (compute(device), graphics(device)) {
        (Err(error), Err(_)) | (Err(error @ NvmlError::GpuLost), _) => return Err(error),
        (compute, graphics) => {
            let all = compute.into_iter().chain(graphics).flatten();
            all.map(|info| info.pid).collect()
        }
    };
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

fn compute(device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    newer_or_older(device.running_compute_processes(), || {
        device.running_compute_processes_v2()
    })
}

fn graphics(device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    newer_or_older(device.running_graphics_processes(), || {
        device.running_graphics_processes_v2()
    })
}

fn newer_or_older(
    newer: Result<Vec<ProcessInfo>, NvmlError>,
    older: impl FnOnce() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    match newer {
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => older(),
        other => other,
    }
}

fn process(info: ProcessInfo) -> GpuProcess {
    GpuProcess {
        pid: info.pid,
        memory_bytes: match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    }
}
