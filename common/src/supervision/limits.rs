//! Limits of what an attempt may use on its host.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::device::DeviceNumber;
use crate::processors::{CpuMode, CpuSet};

/// CPU cores of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuAllocation {
    /// Meaning of the CPU limit.
    pub mode: CpuMode,
    /// Cores that only this attempt is pinned to; empty if it is not pinned.
    pub own: CpuSet,
}

/// GPU devices that an attempt may open. Other devices are accessible as far as its user may.
///
/// The supervisor itself determines which devices are GPUs. The agent can grant closed ones, because it assigns GPUs,
/// and can close more; it cannot open a device that it does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAccess {
    /// Devices of the granted GPUs and instances. Instances of one GPU share that GPU's device.
    pub granted: Vec<DeviceNumber>,
    /// Devices of all GPUs of the host that the agent knows.
    pub all_gpus: Vec<DeviceNumber>,
}

/// Limits on all processes of an attempt together. `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// CPU time, in thousandths of a core.
    pub mcpu: Option<u64>,
    /// Memory in bytes, none of it swapped out.
    pub memory_bytes: Option<u64>,
    /// Disk space of files in its own directory, in bytes.
    pub storage_bytes: Option<u64>,
}
