//! What a host has, as its agent found it: the same type for `sluice detect`, the link, the store and the API.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::amount::{Amounts, GPU, MCPU, MEMORY_MB, STORAGE_MB, megabytes_down};

/// One host, as seen at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Kernel release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// Processor architecture, such as `x86_64`.
    pub arch: String,
    /// Processor model as the kernel names it.
    pub cpu_model: String,
    /// Logical processors that steps may use.
    pub cpus: u32,
    /// Memory that steps may use, in bytes.
    pub memory_bytes: u64,
    /// Disk space below the state directory, in bytes.
    pub storage_bytes: u64,
    /// Version of the NVIDIA driver, where one answers.
    pub driver: Option<String>,
    /// GPUs, in the driver's order.
    pub gpus: Vec<Gpu>,
    /// What could not be read and why, in words for an admin. Empty where everything answered.
    pub notes: Vec<String>,
}

/// One GPU that can be granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's index at the time of the report. It may change over a reboot; the UUID does not.
    pub index: u32,
    /// What a step is given it by, such as `GPU-8932f937-...`.
    pub uuid: String,
    /// The model as NVML names it, such as `NVIDIA H100 80GB HBM3`.
    pub model: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
}

impl Inventory {
    /// What steps may ask of this host, in units of the resource keys.
    pub fn capacity(&self) -> Amounts {
        Amounts::new()
            .with(GPU, self.gpus.len() as u64)
            .with(MCPU, u64::from(self.cpus) * 1000)
            .with(MEMORY_MB, megabytes_down(self.memory_bytes))
            .with(STORAGE_MB, megabytes_down(self.storage_bytes))
    }
}
