//! A GPU as a piece of hardware: facts of the board that rarely change, and measurements that only the whole GPU has. MIG
//! instances show those of their GPU.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Facts of a board. What the driver or the model does not report is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BoardFacts {
    /// CUDA compute capability, such as `9.0`.
    pub compute_capability: Option<String>,
    /// Serial number, as printed on the board.
    pub serial: Option<String>,
    /// Version of the VBIOS.
    pub vbios: Option<String>,
    /// Highest PCIe generation that board and slot support.
    pub pcie_max_generation: Option<u32>,
    /// Most PCIe lanes that board and slot support.
    pub pcie_max_lanes: Option<u32>,
    /// MIG profiles that the model offers, with the highest number of instances of each.
    pub mig_profiles: BTreeMap<String, u32>,
    /// Virtualization of the GPU: `none`, `passthrough`, `vgpu` (a slice of a GPU of another machine), `host_vgpu` or
    /// `host_vsga`; a mode unknown to Sluice by number.
    pub virtualization: Option<String>,
    /// Whether confidential computing is on.
    pub confidential_computing: Option<bool>,
    /// NVLink domain and clique, as `UUID.NUMBER` with the UUID in hexadecimal digits, if NVLink reaches beyond the host.
    pub nvlink_domain: Option<String>,
}

/// Virtualization mode of a GPU that is a slice of a GPU of the machine below.
pub const VGPU: &str = "vgpu";

impl BoardFacts {
    /// Whether the GPU is a slice that a hypervisor offers.
    pub fn is_vgpu(&self) -> bool {
        self.virtualization.as_deref() == Some(VGPU)
    }
}

/// Measurements and modes of a board. What the driver or the model does not report is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct BoardReading {
    /// Temperature of the memory in degrees Celsius.
    pub memory_temperature_celsius: Option<u32>,
    /// Clock of the processors of the GPU, in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory, in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Why the clocks are reduced, such as `power_cap` or `hardware_thermal`; a reason unknown to Sluice as `bit_N` of
    /// NVML's mask. Empty if nothing reduces them.
    pub throttle_reasons: Option<BTreeSet<String>>,
    /// PCIe generation of the link now. An idle GPU lowers it to save power.
    pub pcie_generation: Option<u32>,
    /// PCIe lanes of the link now.
    pub pcie_lanes: Option<u32>,
    /// Number of NVLinks of the GPU.
    pub nvlinks: Option<u32>,
    /// Number of NVLinks that are active.
    pub nvlinks_active: Option<u32>,
    /// Errors of all NVLinks: CRC errors, replays and recoveries.
    pub nvlink_errors: Option<u64>,
    /// Registration with the NVLink fabric: `not_started`, `in_progress`, `completed` or `failed`; a state unknown to
    /// Sluice by number.
    pub fabric: Option<String>,
    /// Rows of memory that were replaced.
    pub remapped_rows: Option<RemappedRows>,
    /// Whether persistence mode is on.
    pub persistence: Option<bool>,
    /// Compute mode: `default`, `prohibited`, `exclusive_thread` or `exclusive_process`; a mode unknown to Sluice by
    /// number.
    pub compute_mode: Option<String>,
    /// MIG mode now, and after the next reset.
    pub mig: Option<MigMode>,
}

/// Rows of memory that were replaced by spare ones since the board was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemappedRows {
    /// Rows replaced because of errors that were corrected.
    pub correctable: u32,
    /// Rows replaced because of errors that could not be corrected.
    pub uncorrectable: u32,
    /// Whether rows wait for a reset to be replaced.
    pub is_pending: bool,
    /// Whether a row could not be replaced.
    pub has_failed: bool,
}

/// MIG mode of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MigMode {
    /// Whether MIG is on now.
    pub is_enabled: bool,
    /// Whether MIG will be on after the next reset.
    pub is_enabled_after_reset: bool,
}
