//! Inventory of a host as detected by its agent; the same types serve `sluice detect`, the link, the store and the API.
//!
//! [`Inventory`] changes only if someone changes the host: it is stored, and a change of it is a record. [`Readings`]
//! change all the time: they are sent periodically, kept only in memory, and no decision depends on them.

mod board;

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::amount::{Amounts, MCPU, MEMORY_MB, MGPU, STORAGE_MB, megabytes_down};
use crate::device::DeviceNode;
use crate::image::{ContainerRuntime, ContainerRuntimes, ImageKind};
use crate::mig::{GpuClass, MigProfile};
use crate::nearest::nearest;

pub use board::{BoardFacts, BoardReading, MigMode, RemappedRows, VGPU};

/// Hardware and software of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inventory {
    /// Kernel release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// Name of the operating system, such as `Debian GNU/Linux 12 (bookworm)`.
    #[serde(default)]
    pub os: String,
    /// Processor architecture, such as `x86_64`.
    pub arch: String,
    /// Processor model as the kernel names it.
    pub cpu_model: String,
    /// Number of physical cores; 0 if unknown.
    #[serde(default)]
    pub cores: u32,
    /// Number of logical processors available to steps.
    pub cpus: u32,
    /// Memory available to steps, in bytes.
    pub memory_bytes: u64,
    /// Disk space below the state directory, in bytes.
    pub storage_bytes: u64,
    /// Capabilities of the host and the mechanism that provides each.
    #[serde(default)]
    pub capabilities: BTreeMap<Capability, Mechanism>,
    /// Version of the NVIDIA driver, if it answers.
    pub driver: Option<String>,
    /// Highest CUDA version that the driver supports, such as `12.8`.
    #[serde(default)]
    pub cuda: Option<String>,
    /// Grantable GPUs in the driver's order; a GPU in MIG mode is replaced by its instances.
    pub gpus: Vec<Gpu>,
    /// Properties that could not be detected, with reasons. Empty if everything answered.
    pub notes: Vec<String>,
    /// Resources reserved for the host itself; already subtracted from `cpus` and `memory_bytes`.
    #[serde(default)]
    pub reserve: Reserve,
    /// Digests that distinguish this machine from one with a copy of its disk.
    #[serde(default)]
    pub machine: MachineIdentity,
    /// Whether there may be GPUs that are not known yet, because the driver has not answered since the agent started.
    #[serde(default)]
    pub gpus_unknown: bool,
    /// GPUs in MIG mode without an instance: nothing of them can be granted.
    #[serde(default)]
    pub empty_gpus: Vec<Gpu>,
    /// Whether the host's config allows GPUs to be cut into slices.
    #[serde(default)]
    pub carves_gpus: bool,
    /// Container runtimes that steps can use, with their versions.
    #[serde(default)]
    pub container_runtimes: ContainerRuntimes,
}

/// Identity of a machine. Contains only digests, so that the original values never leave the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Machine"))]
#[serde(default)]
pub struct MachineIdentity {
    /// Digest of `/etc/machine-id`. Empty if there is none.
    pub id: String,
    /// Digests of the permanent addresses of the network hardware.
    pub addresses: BTreeSet<String>,
}

impl MachineIdentity {
    /// Whether two hosts are certainly two machines. One shared network card makes them the same machine, because other
    /// cards may be new or not detected yet at boot. Machine ids decide only if one host reports no card: a copied disk
    /// has the same id, and a reinstalled machine another.
    pub fn differs_from(&self, before: &Self) -> bool {
        if !self.addresses.is_empty() && !before.addresses.is_empty() {
            return self.addresses.is_disjoint(&before.addresses);
        }
        !self.id.is_empty() && !before.id.is_empty() && self.id != before.id
    }
}

/// Resources reserved for the host itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Reserve {
    /// Number of logical processors.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

impl Reserve {
    /// Whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A GPU or MIG instance that a step can be granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "InventoryGpu")
)]
pub struct Gpu {
    /// The driver's index at the time of the report; an instance has that of its GPU. May change at a reboot, unlike
    /// the UUID.
    pub index: u32,
    /// UUID by which a step is given the GPU, such as `GPU-8932f937-...` or `MIG-...`.
    pub uuid: String,
    /// PCI address, such as `0000:17:00.0`.
    #[serde(default)]
    pub pci: Option<String>,
    /// Model as NVML names it, such as `NVIDIA H100 80GB HBM3`.
    pub model: String,
    /// Platform derived from the model, such as `h100`.
    #[serde(default)]
    pub platform: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// Parent GPU and profile of a MIG instance; `None` for a whole GPU.
    #[serde(default)]
    pub mig: Option<MigInstance>,
    /// UUIDs of the host's whole GPUs reachable over NVLink, directly or through switches.
    #[serde(default)]
    pub nvlink: Vec<String>,
    /// NUMA node of the GPU.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Whether ECC is enabled; `None` if unknown.
    #[serde(default)]
    pub ecc: Option<bool>,
    /// Device nodes that a step uses; those of an instance begin with its GPU's.
    #[serde(default)]
    pub devices: Vec<DeviceNode>,
    /// Facts of the board.
    #[serde(default)]
    pub board: BoardFacts,
}

impl Gpu {
    /// Whether it is whole, or a slice of which profile.
    pub fn class(&self) -> GpuClass {
        let mig = self.mig.as_ref();
        mig.map_or(GpuClass::Whole, |mig| {
            GpuClass::Slice(MigProfile::detected(&mig.profile))
        })
    }

    /// The whole GPU that it is or belongs to, as far as the unit tells: of a slice neither memory nor NVLinks.
    #[must_use]
    pub fn as_whole(&self) -> Self {
        match &self.mig {
            None => self.clone(),
            Some(mig) => Self {
                uuid: mig.parent.clone(),
                mig: None,
                memory_bytes: 0,
                ..self.clone()
            },
        }
    }

    /// UUID of the whole GPU that it is or belongs to.
    pub fn whole(&self) -> &str {
        self.mig.as_ref().map_or(&self.uuid, |mig| &mig.parent)
    }
}

/// Parent and profile of a MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Mig"))]
pub struct MigInstance {
    /// MIG profile, such as `1g.10gb`.
    pub profile: String,
    /// UUID of the parent GPU.
    pub parent: String,
}

/// Operation that a host supports on all processes of a step at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Kill all processes, whatever they do.
    Kill,
    /// Freeze and thaw the processes.
    Freeze,
    /// Restrict access to devices that were not granted.
    Devices,
    /// Share CPU time by weight and limit it.
    Cpu,
    /// Limit memory use.
    Memory,
    /// Limit the number of processes.
    Pids,
    /// Pin processes to CPU cores.
    Cpuset,
}

impl Capability {
    /// All capabilities, in display order.
    pub const ALL: [Capability; 7] = [
        Capability::Kill,
        Capability::Freeze,
        Capability::Devices,
        Capability::Cpu,
        Capability::Memory,
        Capability::Pids,
        Capability::Cpuset,
    ];

    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Capability::Kill => "kill",
            Capability::Freeze => "freeze",
            Capability::Devices => "devices",
            Capability::Cpu => "cpu",
            Capability::Memory => "memory",
            Capability::Pids => "pids",
            Capability::Cpuset => "cpuset",
        }
    }
}

/// Error for a word that is not a capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a capability: {}", word.escape_debug(), capability_hint(word))]
pub struct UnknownCapability {
    word: String,
}

fn capability_hint(word: &str) -> String {
    let known = Capability::ALL.map(Capability::as_str);
    match nearest(word, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write {}", known.join(", ")),
    }
}

impl FromStr for Capability {
    type Err = UnknownCapability;

    fn from_str(word: &str) -> Result<Self, UnknownCapability> {
        let mut all = Capability::ALL.into_iter();
        let word = word.to_owned();
        all.find(|capability| capability.as_str() == word)
            .ok_or(UnknownCapability { word })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Mechanism that provides a [`Capability`], best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// Control groups version 2.
    Cgroup2,
    /// Control groups version 1.
    Cgroup1,
    /// Signals to the process group, plus a search for processes that left it.
    ProcessGroup,
    /// The capability is not available.
    None,
}

impl Mechanism {
    /// The name as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mechanism::Cgroup2 => "cgroup2",
            Mechanism::Cgroup1 => "cgroup1",
            Mechanism::ProcessGroup => "process_group",
            Mechanism::None => "none",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Inventory {
    /// The required capabilities that the host lacks. A process group counts as a mechanism for `kill`, though it is
    /// the weakest one.
    pub fn missing_capabilities(&self, required: &BTreeSet<Capability>) -> BTreeSet<Capability> {
        let has = |capability: &Capability| {
            let how = self.capabilities.get(capability);
            how.is_some_and(|how| *how != Mechanism::None)
        };
        let missing = required.iter().filter(|capability| !has(capability));
        missing.copied().collect()
    }

    /// Forms of images that the host's container runtimes can run.
    pub fn image_forms(&self) -> BTreeSet<ImageKind> {
        let forms = ImageKind::ALL.into_iter();
        let runs = |form| ContainerRuntime::choose(form, &self.container_runtimes).is_some();
        forms.filter(|form| runs(*form)).collect()
    }

    /// Capacity of the host in units of the resource keys.
    pub fn capacity(&self) -> Amounts {
        let gpus = self.gpus.iter().map(|gpu| gpu.class().mgpu());
        Amounts::new()
            .with(MGPU, gpus.sum())
            .with(MCPU, u64::from(self.cpus) * 1000)
            .with(MEMORY_MB, megabytes_down(self.memory_bytes))
            .with(STORAGE_MB, megabytes_down(self.storage_bytes))
    }
}

/// Latest measurements of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readings {
    /// Measurements of the host itself.
    pub host: HostReading,
    /// Measurements of each GPU that answers, including parent GPUs and their MIG instances.
    pub gpus: Vec<GpuReading>,
}

/// Measurements of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostReading {
    /// Load average over one minute, in thousandths.
    pub load_milli: u64,
    /// Memory available without swapping, in bytes.
    pub memory_available_bytes: u64,
    /// Free disk space below the state directory, in bytes.
    pub storage_free_bytes: u64,
}

/// Measurements of a GPU or MIG instance. `None` if the driver does not report the value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuReading {
    /// UUID of the GPU or instance.
    pub uuid: String,
    /// Memory in use, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Free memory, in bytes.
    pub memory_free_bytes: Option<u64>,
    /// Share of recent time in which the GPU was busy, in percent.
    pub utilization_percent: Option<u32>,
    /// Temperature of the chip in degrees Celsius.
    pub temperature_celsius: Option<u32>,
    /// Power draw, in milliwatts.
    pub power_milliwatts: Option<u32>,
    /// Power limit, in milliwatts.
    pub power_limit_milliwatts: Option<u32>,
    /// Corrected memory errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected memory errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Number of events per XID since the agent started to listen.
    pub xids: BTreeMap<u64, u64>,
    /// Processes that use the GPU; `None` if unknown.
    pub processes: Option<Vec<GpuProcess>>,
    /// Measurements of the board; `None` for an instance, which shares its GPU's.
    #[serde(default)]
    pub board: Option<BoardReading>,
}

/// A process that uses a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuProcess {
    /// Process id, in the namespace of the driver's library.
    pub pid: u32,
    /// GPU memory of the process, in bytes; `None` if unknown.
    pub memory_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_capability_is_lacked_where_it_is_had_by_no_means() {
        let host = Inventory {
            capabilities: [
                (Capability::Kill, Mechanism::ProcessGroup),
                (Capability::Freeze, Mechanism::Cgroup1),
                (Capability::Devices, Mechanism::None),
            ]
            .into(),
            ..Inventory::default()
        };
        let lacks = host.missing_capabilities(&Capability::ALL.into());
        let expected = [
            Capability::Devices,
            Capability::Cpu,
            Capability::Memory,
            Capability::Pids,
            Capability::Cpuset,
        ];
        assert_eq!(lacks, expected.into());
        assert!(
            host.missing_capabilities(&[Capability::Kill].into())
                .is_empty()
        );
    }

    #[test]
    fn a_word_that_is_no_capability_is_refused_with_the_nearest() {
        for capability in Capability::ALL {
            assert_eq!(capability.as_str().parse(), Ok(capability));
        }
        let said = |word: &str| word.parse::<Capability>().unwrap_err().to_string();
        assert_eq!(
            said("devises"),
            "`devises` is not a capability: did you mean `devices`?"
        );
        assert_eq!(
            said("sudo"),
            "`sudo` is not a capability: write kill, freeze, devices, cpu, memory, pids, cpuset"
        );
    }
}
