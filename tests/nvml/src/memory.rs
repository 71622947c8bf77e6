//! Total, reserved and used memory of a GPU or a MIG device.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as nvml;

use crate::exports::exports;
use crate::held_memory;
use crate::mig::MigInstance;
use crate::out::OutPtr;
use crate::resolve::Device;

const MIB: u64 = 1 << 20;

exports! {
    unit fn nvmlDeviceGetMemoryInfo([device] memory: OutPtr<nvml::nvmlMemory_t>)
        |unit| memory.put(Memory::of(unit).first());
    gpu fn nvmlDeviceGetMemoryBusWidth([device] bits: OutPtr<c_uint>)
        |device| bits.put(device.model().bus_width);
    unit fn nvmlDeviceGetBAR1MemoryInfo([device] memory: OutPtr<nvml::nvmlBAR1Memory_t>)
        |unit| memory.put(bar1(unit));

    unit fn nvmlDeviceGetMemoryInfo_v2([device] memory: OutPtr<nvml::nvmlMemory_v2_t>)
        |unit| {
            let version = memory.expect_version(2)?;
            memory.put(Memory::of(unit).second(version))
        };
}

/// Memory in bytes.
pub(crate) struct Memory {
    total: u64,
    /// Reserved by the driver.
    reserved: u64,
    used: u64,
}

impl Memory {
    fn of(unit: &Device) -> Self {
        match unit.instance() {
            Some(instance) => Self::of_instance(unit, instance),
            None => Self::of_gpu(unit),
        }
    }

    fn of_gpu(device: &Device) -> Self {
        let gpu = device.gpu();
        let model = device.model();
        let known =
            gpu.mig.iter().flatten().enumerate().fold(
                used(device, None, 0),
                |sum, (mig, instance)| {
                    sum.saturating_add(used(device, Some(mig), instance.held_mib))
                },
            );
        Self::new(
            bytes(gpu.memory_total_mib.unwrap_or(model.memory_mib)),
            bytes(gpu.memory_reserved_mib.unwrap_or(model.reserved_mib)),
            held_memory::held(device).fold(known.max(bytes(gpu.memory_used_mib)), |sum, held| {
                sum.saturating_add(held.bytes)
            }),
        )
    }

    fn of_instance(unit: &Device, instance: &MigInstance) -> Self {
        let used = used(unit, unit.mig, instance.held_mib);
        Self::new(bytes(instance.memory_mib()), 0, used)
    }

    /// Used memory is at most what there is.
    fn new(total: u64, reserved: u64, used: u64) -> Self {
        let reserved = reserved.min(total);
        Self {
            total,
            reserved,
            used: used.min(total - reserved),
        }
    }

    fn free(&self) -> u64 {
        self.total - self.reserved - self.used
    }

    /// Converts to the first version, which counts reserved memory as used.
    fn first(&self) -> nvml::nvmlMemory_t {
        nvml::nvmlMemory_t {
            total: self.total,
            free: self.free(),
            used: self.used + self.reserved,
        }
    }

    fn second(&self, version: u32) -> nvml::nvmlMemory_v2_t {
        nvml::nvmlMemory_v2_t {
            version,
            total: self.total,
            reserved: self.reserved,
            free: self.free(),
            used: self.used,
        }
    }
}

fn bytes(mib: u32) -> u64 {
    u64::from(mib) * MIB
}

/// Returns what processes hold outside MIG devices, or in one of them, plus memory without a visible owner.
fn used(device: &Device, mig: Option<usize>, held_mib: u32) -> u64 {
    let processes = device.gpu().processes.iter();
    let here = processes.filter(|process| process.mig == mig);
    here.filter_map(|process| process.used_bytes)
        .fold(bytes(held_mib), u64::saturating_add)
}

fn bar1(unit: &Device) -> nvml::nvmlBAR1Memory_t {
    let total = match unit.instance() {
        Some(_) => unit.model().bar1_mib / 8,
        None => unit.model().bar1_mib,
    };
    let used = total.min(2);
    nvml::nvmlBAR1Memory_t {
        bar1Total: total * MIB,
        bar1Free: (total - used) * MIB,
        bar1Used: used * MIB,
    }
}
