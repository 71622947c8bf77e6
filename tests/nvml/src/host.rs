//! The host that the library pretends to run on, as its file describes it. What a file leaves out is derived from the
//! GPU's model, in the modules that answer for it. Numbers are of widths in which products fit, and sums
//! saturate: no file makes a caller of the library die.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nvml_wrapper_sys::bindings as nvml;
use serde::Deserialize;

use crate::fault::{Delays, ErrorName, InjectedErrors};
use crate::held_memory::MemoryHold;
use crate::mig::MigInstance;
use crate::model::Model;
use crate::pci::Address;
use crate::{Code, exports, file};

/// How often the library was initialised and not shut down.
pub(crate) static USERS: AtomicU32 = AtomicU32::new(0);

/// A host.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    pub(crate) driver_version: String,
    /// The newest CUDA that the driver serves, such as `12.8`; derived from the driver's version where it is left out.
    pub(crate) cuda_version: Option<String>,
    pub(crate) gpus: Vec<Gpu>,
    /// Pairs of GPUs, by index, with NVLink bridges between them. Left out: through switches where models have them.
    pub(crate) bridges: Option<Vec<[usize; 2]>>,
    /// How many logical processors each NUMA node has.
    #[serde(default = "cpus_per_node")]
    pub(crate) cpus_per_node: u16,
    /// What initialisation answers.
    pub(crate) init: Option<ErrorName>,
    /// What every function answers, initialisation too: the driver was unloaded or replaced.
    pub(crate) gone: Option<ErrorName>,
    /// Functions that answer that they are not found.
    #[serde(default)]
    pub(crate) absent: Vec<String>,
    #[serde(default)]
    pub(crate) errors: InjectedErrors,
    #[serde(default)]
    pub(crate) slow_ms: Delays,
}

/// One of its GPUs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) serial: Option<String>,
    pub(crate) pci: Option<Address>,
    pub(crate) numa_node: Option<u16>,
    /// The NUMA node that the GPU's memory itself is, on hosts where it is one.
    pub(crate) own_numa_node: Option<u32>,
    pub(crate) compute_capability: Option<[i32; 2]>,
    pub(crate) memory_total_mib: Option<u32>,
    pub(crate) memory_reserved_mib: Option<u32>,
    /// What is used; at least what its processes and MIG devices use. More than that is held by nobody to be seen.
    #[serde(default)]
    pub(crate) memory_used_mib: u32,
    #[serde(default)]
    pub(crate) processes: Vec<Process>,
    /// Processes of the test itself, and what lingers of them.
    #[serde(default)]
    pub(crate) holds: Vec<MemoryHold>,
    /// In percent.
    #[serde(default)]
    pub(crate) utilization: Utilization,
    #[serde(default = "temperature_c")]
    pub(crate) temperature_c: u32,
    pub(crate) power_w: Option<u16>,
    pub(crate) power_limit_w: Option<u16>,
    #[serde(default)]
    pub(crate) ecc: Ecc,
    #[serde(default)]
    pub(crate) remapped_rows: RemappedRows,
    pub(crate) retired_pages: Option<RetiredPages>,
    /// The devices that it is cut into. Where it is there, though empty, MIG is on.
    pub(crate) mig: Option<Vec<MigInstance>>,
    /// Links that are down.
    #[serde(default)]
    pub(crate) links_down: Vec<u32>,
    /// Critical errors, oldest first. What a test appends is an event.
    #[serde(default)]
    pub(crate) xids: Vec<Xid>,
    /// Fallen off the bus: every question about it is answered with that.
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
    /// Left out where the driver does not know it.
    pub(crate) used_bytes: Option<u64>,
    /// The MIG device that it runs on, by its index.
    pub(crate) mig: Option<usize>,
    /// It draws rather than computes.
    #[serde(default)]
    pub(crate) graphics: bool,
}

/// How busy a GPU was lately.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Utilization {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

/// Errors of its memory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ecc {
    pub(crate) enabled: bool,
    /// From the next reset on.
    pub(crate) pending: Option<bool>,
    /// Since the driver was loaded.
    pub(crate) volatile: EccCounts,
    /// In its life, the volatile ones not included.
    pub(crate) aggregate: EccCounts,
}

/// How many errors of memory there were.
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

/// Pages of memory that are used no more, on models that retire pages rather than rows.
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

/// A critical error: its number, and in which MIG device it was, where it was in one.
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
    /// The host, for everybody who has initialised the library.
    pub(crate) fn now() -> Result<Arc<Self>, Code> {
        match USERS.load(Ordering::SeqCst) {
            0 => Err(nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED),
            _ => file::load(),
        }
    }

    /// The host, unless its file says what cannot be.
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

    /// Handles stand for UUIDs.
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

    /// A fault on a misspelt function would pass in silence.
    fn check_functions(&self) -> Result<(), String> {
        let of_gpus = self
            .gpus
            .iter()
            .flat_map(|gpu| gpu.errors.keys().chain(gpu.slow_ms.keys()));
        let mut all = self
            .absent
            .iter()
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
    /// What is known about its model.
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
