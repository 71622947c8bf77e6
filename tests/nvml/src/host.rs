//! The simulated host as its file describes it. What the file leaves out is derived from the GPU's model, in the
//! modules of the questions. Numbers have widths in which products fit, and sums saturate, so that no file crashes a
//! caller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nvml_wrapper_sys::bindings as nvml;
use serde::Deserialize;

use crate::carve::EmptyInstance;
use crate::fault::{Delays, ErrorName, InjectedErrors};
use crate::held_memory::MemoryHold;
use crate::mig::MigInstance;
use crate::model::Model;
use crate::pci::Address;
use crate::{Code, exports, file};

/// Number of initialisations without a shutdown.
pub(crate) static USERS: AtomicU32 = AtomicU32::new(0);

/// A simulated host.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    pub(crate) driver_version: String,
    /// Newest CUDA version of the driver, such as `12.8`; derived from the driver's version if absent.
    pub(crate) cuda_version: Option<String>,
    pub(crate) gpus: Vec<Gpu>,
    /// Pairs of GPUs, by index, with NVLink bridges; absent: switches if the models have them.
    pub(crate) bridges: Option<Vec<[usize; 2]>>,
    /// Logical processors of each NUMA node.
    #[serde(default = "cpus_per_node")]
    pub(crate) cpus_per_node: u16,
    /// Whether confidential computing is on; absent if the host does not support it.
    pub(crate) confidential_computing: Option<bool>,
    /// Error of initialisation.
    pub(crate) init: Option<ErrorName>,
    /// Error of every function, initialisation too: the driver was unloaded or replaced.
    pub(crate) gone: Option<ErrorName>,
    /// Functions that the library does not have.
    #[serde(default)]
    pub(crate) absent: Vec<String>,
    /// Functions that kill the calling process.
    #[serde(default)]
    pub(crate) crashes: Vec<String>,
    #[serde(default)]
    pub(crate) errors: InjectedErrors,
    #[serde(default)]
    pub(crate) slow_ms: Delays,
}

/// A simulated GPU.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) serial: Option<String>,
    pub(crate) pci: Option<Address>,
    pub(crate) numa_node: Option<u16>,
    /// NUMA node that the GPU's memory itself is, on hosts with such.
    pub(crate) own_numa_node: Option<u32>,
    pub(crate) compute_capability: Option<[i32; 2]>,
    pub(crate) memory_total_mib: Option<u32>,
    pub(crate) memory_reserved_mib: Option<u32>,
    /// Used memory; at least what its processes and MIG devices use. The rest has no visible owner.
    #[serde(default)]
    pub(crate) memory_used_mib: u32,
    #[serde(default)]
    pub(crate) processes: Vec<Process>,
    /// Memory held by the test's own processes.
    #[serde(default)]
    pub(crate) holds: Vec<MemoryHold>,
    /// Utilisation in percent.
    #[serde(default)]
    pub(crate) utilization: Utilization,
    #[serde(default = "temperature_c")]
    pub(crate) temperature_c: u32,
    /// Temperature of the memory; derived on models with HBM, else not supported if absent.
    pub(crate) memory_temperature_c: Option<u32>,
    pub(crate) power_w: Option<u16>,
    pub(crate) power_limit_w: Option<u16>,
    #[serde(default)]
    pub(crate) ecc: Ecc,
    #[serde(default)]
    pub(crate) remapped_rows: RemappedRows,
    pub(crate) retired_pages: Option<RetiredPages>,
    /// Virtualization mode by NVML's number.
    #[serde(default)]
    pub(crate) virtualization: u32,
    /// Compute mode by NVML's number.
    #[serde(default)]
    pub(crate) compute_mode: u32,
    #[serde(default = "yes")]
    pub(crate) persistence: bool,
    /// State of its registration with the NVLink fabric, by NVML's number.
    #[serde(default = "fabric_completed")]
    pub(crate) fabric_state: u8,
    /// Value of each byte of the id of its NVLink domain; 0 if NVLink ends at the host.
    #[serde(default)]
    pub(crate) fabric_cluster: u8,
    /// Clique of the GPU in that domain.
    #[serde(default)]
    pub(crate) fabric_clique: u32,
    /// PCIe link as it is now.
    #[serde(default)]
    pub(crate) pcie: PcieLink,
    /// Reasons for reduced clocks, as NVML's bits, in addition to idleness.
    #[serde(default)]
    pub(crate) clock_reasons: u64,
    /// MIG devices. MIG is on if this is present, even if empty.
    pub(crate) mig: Option<Vec<MigInstance>>,
    /// Whether MIG is on after the next reset; as now if absent.
    pub(crate) mig_pending: Option<bool>,
    /// Whether a change of the MIG mode waits for a reset, as on a machine that cannot reset the GPU by itself.
    #[serde(default)]
    pub(crate) mig_needs_reset: bool,
    /// GPU instances without a compute instance, which no MIG device shows.
    #[serde(default)]
    pub(crate) bare_instances: Vec<EmptyInstance>,
    /// Errors of all NVLinks together.
    #[serde(default)]
    pub(crate) nvlink_errors: u64,
    /// Links that are down.
    #[serde(default)]
    pub(crate) links_down: Vec<u32>,
    /// Critical errors, oldest first. An appended one is an event.
    #[serde(default)]
    pub(crate) xids: Vec<Xid>,
    /// Fallen off the bus: every question about it returns that error.
    #[serde(default)]
    pub(crate) lost: bool,
    #[serde(default)]
    pub(crate) errors: InjectedErrors,
    #[serde(default)]
    pub(crate) slow_ms: Delays,
}

/// A process that holds memory of a GPU.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Absent if the driver does not know it.
    pub(crate) used_bytes: Option<u64>,
    /// Index of its MIG device.
    pub(crate) mig: Option<usize>,
    /// Whether it draws rather than computes.
    #[serde(default)]
    pub(crate) graphics: bool,
}

/// Recent utilisation of a GPU.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Utilization {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

/// Memory errors of a GPU.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ecc {
    pub(crate) enabled: bool,
    /// ECC mode after the next reset.
    pub(crate) pending: Option<bool>,
    /// Since the driver was loaded.
    pub(crate) volatile: EccCounts,
    /// In its life, without the volatile ones.
    pub(crate) aggregate: EccCounts,
}

/// Numbers of memory errors.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EccCounts {
    pub(crate) corrected: u64,
    pub(crate) uncorrected: u64,
}

/// Rows of memory that were replaced by spare ones.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RemappedRows {
    pub(crate) correctable: u16,
    pub(crate) uncorrectable: u16,
    pub(crate) pending: bool,
    pub(crate) failed: bool,
}

/// A PCIe link; what is absent is as fast as it can be.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PcieLink {
    pub(crate) generation: Option<u32>,
    pub(crate) width: Option<u32>,
}

/// Retired pages of memory, on models that retire pages rather than rows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetiredPages {
    #[serde(default)]
    pub(crate) single_bit: Vec<u64>,
    #[serde(default)]
    pub(crate) double_bit: Vec<u64>,
    #[serde(default)]
    pub(crate) pending: bool,
}

/// A critical error: its number, and its MIG device if it was in one.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(crate) enum Xid {
    Whole(u64),
    Inside(XidInside),
}

/// A critical error of one MIG device.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct XidInside {
    pub(crate) xid: u64,
    pub(crate) mig: usize,
}

fn cpus_per_node() -> u16 {
    32
}

fn yes() -> bool {
    true
}

fn fabric_completed() -> u8 {
    3
}

fn temperature_c() -> u32 {
    34
}

impl Default for Ecc {
    fn default() -> Self {
        Self {
            enabled: true,
            pending: None,
            volatile: EccCounts::default(),
            aggregate: EccCounts::default(),
        }
    }
}

impl Host {
    /// Returns the host, if the library is initialised.
    pub(crate) fn now() -> Result<Arc<Self>, Code> {
        match USERS.load(Ordering::SeqCst) {
            0 => Err(nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED),
            _ => file::load(),
        }
    }

    /// Returns the host if its file is consistent.
    pub(crate) fn checked(self) -> Result<Self, String> {
        self.check_functions()?;
        for (index, gpu) in self.gpus.iter().enumerate() {
            gpu.check()
                .map_err(|error| format!("gpus[{index}]: {error}"))?;
        }
        self.check_uuids()?;
        let ends = self.bridges.iter().flatten().flatten();
        match ends.max().filter(|end| **end >= self.gpus.len()) {
            Some(end) => Err(format!("bridges name GPU {end}, which is not there")),
            None => Ok(self),
        }
    }

    /// Checks that UUIDs are unique, because handles stand for them.
    fn check_uuids(&self) -> Result<(), String> {
        let of_gpu = |gpu: &Gpu| {
            let inside = gpu
                .mig
                .iter()
                .flatten()
                .map(|instance| instance.uuid.clone());
            std::iter::once(gpu.uuid.clone())
                .chain(inside)
                .collect::<Vec<_>>()
        };
        let mut seen = BTreeSet::new();
        match self
            .gpus
            .iter()
            .flat_map(of_gpu)
            .find(|uuid| !seen.insert(uuid.clone()))
        {
            Some(uuid) => Err(format!("the uuid {uuid} is there twice")),
            None => Ok(()),
        }
    }

    /// Checks the names of functions: a fault on a misspelt one would have no effect.
    fn check_functions(&self) -> Result<(), String> {
        let of_gpus = self
            .gpus
            .iter()
            .flat_map(|gpu| gpu.errors.keys().chain(gpu.slow_ms.keys()));
        let mut all = self
            .absent
            .iter()
            .chain(&self.crashes)
            .chain(self.errors.keys())
            .chain(self.slow_ms.keys())
            .chain(of_gpus);
        match all.find(|name| !exports::names().any(|known| known == name.as_str())) {
            Some(name) => Err(format!("{name} is no function of this library")),
            None => Ok(()),
        }
    }
}

impl Gpu {
    /// Returns the data of its model.
    pub(crate) fn model(&self) -> &'static Model {
        Model::named(&self.name)
    }

    fn check(&self) -> Result<(), String> {
        if self.memory_total_mib.is_none() && self.model().memory_mib == 0 {
            return Err(format!(
                "memory_total_mib is missing, and {} is no model whose memory is known",
                self.name
            ));
        }
        if self.mig.is_some() && self.model().mig.is_none() {
            return Err(format!("mig: {} cannot be cut", self.name));
        }
        for instance in self.mig.iter().flatten() {
            instance.check()?;
        }
        let devices = self.mig.as_ref().map_or(0, Vec::len);
        let inside = self.processes.iter().filter_map(|process| process.mig);
        let inside = inside.chain(self.xids.iter().filter_map(Xid::mig));
        match inside.max().filter(|mig| *mig >= devices) {
            Some(mig) => Err(format!("MIG device {mig} is named and not there")),
            None => Ok(()),
        }
    }
}

impl Xid {
    pub(crate) fn number(&self) -> u64 {
        match self {
            Xid::Whole(xid) => *xid,
            Xid::Inside(inside) => inside.xid,
        }
    }

    pub(crate) fn mig(&self) -> Option<usize> {
        match self {
            Xid::Whole(_) => None,
            Xid::Inside(inside) => Some(inside.mig),
        }
    }
}
