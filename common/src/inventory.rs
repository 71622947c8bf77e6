//! What a host has, as its agent found it: the same types for `sluice detect`, the link, the store and the API.
//!
//! [`Inventory`] is what stays the same while nobody touches the host: it is stored, and a change of it is a fact in the
//! log. [`Readings`] are what changes by itself: they are sent now and then, kept in memory alone and never decided on.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::amount::{Amounts, GPU, MCPU, MEMORY_MB, STORAGE_MB, megabytes_down};
use crate::device::DeviceNode;
use crate::nearest::nearest;

/// One host, as seen at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inventory {
    /// Kernel release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// The operating system by its own name, such as `Debian GNU/Linux 12 (bookworm)`.
    #[serde(default)]
    pub os: String,
    /// Processor architecture, such as `x86_64`.
    pub arch: String,
    /// Processor model as the kernel names it.
    pub cpu_model: String,
    /// Physical cores; 0 where the kernel does not tell.
    #[serde(default)]
    pub cores: u32,
    /// Logical processors that steps may use.
    pub cpus: u32,
    /// Memory that steps may use, in bytes.
    pub memory_bytes: u64,
    /// Disk space below the state directory, in bytes.
    pub storage_bytes: u64,
    /// What can be done to the processes of a step here, and by which means.
    #[serde(default)]
    pub capabilities: BTreeMap<Capability, Mechanism>,
    /// Version of the NVIDIA driver, where one answers.
    pub driver: Option<String>,
    /// The highest version of CUDA that the driver serves, such as `12.8`.
    #[serde(default)]
    pub cuda: Option<String>,
    /// What can be granted, in the driver's order: whole GPUs, and in place of one that is cut the instances of it.
    pub gpus: Vec<Gpu>,
    /// What could not be read and why, in words for an admin. Empty where everything answered.
    pub notes: Vec<String>,
    /// What its admin keeps from steps for the host itself. It is taken off `cpus` and `memory_bytes` already.
    #[serde(default)]
    pub reserve: Reserve,
    /// By what this machine is told from another that has a copy of its disk.
    #[serde(default)]
    pub machine: MachineIdentity,
}

/// Marks of a machine. They leave the host as digests only: what they are made of is the host's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Machine"))]
#[serde(default)]
pub struct MachineIdentity {
    /// Of the id that its system was given (`/etc/machine-id`). Empty if it has none.
    pub id: String,
    /// Of the addresses that its network hardware was built with.
    pub addresses: BTreeSet<String>,
}

impl MachineIdentity {
    /// Whether two hosts are two machines for sure. One card that both have makes them one: others may be new, or not
    /// found yet while a host is being booted. Ids decide only if one of the two has no hardware to tell it by, because a
    /// copy of a disk has the same id, and a machine that is installed anew another.
    pub fn differs_from(&self, before: &Self) -> bool {
        if !self.addresses.is_empty() && !before.addresses.is_empty() {
            return self.addresses.is_disjoint(&before.addresses);
        }
        !self.id.is_empty() && !before.id.is_empty() && self.id != before.id
    }
}

/// What of a host steps are not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Reserve {
    /// Logical processors.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

impl Reserve {
    /// Whether steps are given all that there is.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One GPU, or one instance of a GPU that is cut by MIG: what a step can be granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "InventoryGpu")
)]
pub struct Gpu {
    /// The driver's index at the time of the report; instances have that of their GPU. It may change over a reboot;
    /// the UUID does not.
    pub index: u32,
    /// What a step is given it by, such as `GPU-8932f937-...` or `MIG-...`.
    pub uuid: String,
    /// Where it sits, such as `0000:17:00.0`.
    #[serde(default)]
    pub pci: Option<String>,
    /// The model as NVML names it, such as `NVIDIA H100 80GB HBM3`.
    pub model: String,
    /// The platform that its model maps to, such as `h100`.
    #[serde(default)]
    pub platform: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// What it is an instance of; `None` for a whole GPU.
    #[serde(default)]
    pub mig: Option<MigInstance>,
    /// UUIDs of the whole GPUs of this host that NVLink reaches from it, directly or through switches.
    #[serde(default)]
    pub nvlink: Vec<String>,
    /// The NUMA node that it is attached to.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Whether errors in its memory are corrected; `None` where the driver does not tell.
    #[serde(default)]
    pub ecc: Option<bool>,
    /// The device nodes through which a step reaches it; those of an instance begin with that of its GPU.
    #[serde(default)]
    pub devices: Vec<DeviceNode>,
}

/// Of which GPU an instance is a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Mig"))]
pub struct MigInstance {
    /// Its profile, such as `1g.10gb`.
    pub profile: String,
    /// UUID of the whole GPU.
    pub parent: String,
}

/// Something that can be done to all processes of a step at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Ending them, whatever they do about it.
    Kill,
    /// Stopping and continuing them.
    Freeze,
    /// Keeping them from devices that they were not given.
    Devices,
    /// Sharing out processor time.
    Cpu,
    /// Limiting memory.
    Memory,
    /// Limiting how many there are.
    Pids,
    /// Having them run on some processors and on no others.
    Cpuset,
}

impl Capability {
    /// Every capability, in the order in which they are shown.
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

/// A word that names no capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no capability: {}", word.escape_debug(), capability_hint(word))]
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

/// By which means a [`Capability`] is had, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// A control group of version 2.
    Cgroup2,
    /// A controller of version 1.
    Cgroup1,
    /// A signal to the process group, and a search for those that left it.
    ProcessGroup,
    /// Not at all.
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
    /// Which of these the host does not have by any means. To end processes a signal to their group is a means too,
    /// though the weakest: whoever requires `kill` wants what was started to be stopped, which it is by each of them.
    pub fn missing_capabilities(&self, required: &BTreeSet<Capability>) -> BTreeSet<Capability> {
        let has = |capability: &Capability| {
            let how = self.capabilities.get(capability);
            how.is_some_and(|how| *how != Mechanism::None)
        };
        let missing = required.iter().filter(|capability| !has(capability));
        missing.copied().collect()
    }

    /// What steps may ask of this host, in units of the resource keys.
    pub fn capacity(&self) -> Amounts {
        Amounts::new()
            .with(GPU, self.gpus.len() as u64)
            .with(MCPU, u64::from(self.cpus) * 1000)
            .with(MEMORY_MB, megabytes_down(self.memory_bytes))
            .with(STORAGE_MB, megabytes_down(self.storage_bytes))
    }
}

/// What changes by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readings {
    /// Of the host.
    pub host: HostReading,
    /// Of each GPU that answers, whole ones that are cut and their instances alike.
    pub gpus: Vec<GpuReading>,
}

/// What changes by itself on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostReading {
    /// The load average of one minute, in thousandths.
    pub load_milli: u64,
    /// Memory that could be had without swapping, in bytes.
    pub memory_available_bytes: u64,
    /// Free disk space below the state directory, in bytes.
    pub storage_free_bytes: u64,
}

/// What changes by itself on a GPU or an instance. `None` where the driver does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuReading {
    /// Whose: of a GPU or of an instance.
    pub uuid: String,
    /// Memory in use, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Free memory, in bytes.
    pub memory_free_bytes: Option<u64>,
    /// Part of the last moments in which something ran on it, in percent.
    pub utilization_percent: Option<u32>,
    /// Temperature of the chip in degrees Celsius.
    pub temperature_celsius: Option<u32>,
    /// Power drawn, in milliwatts.
    pub power_milliwatts: Option<u32>,
    /// Power that it may draw, in milliwatts.
    pub power_limit_milliwatts: Option<u32>,
    /// Errors in memory that were corrected since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Errors in memory that could not be corrected since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// How often each XID was raised since the agent began to listen.
    pub xids: BTreeMap<u64, u64>,
    /// Processes that use it; `None` where the driver does not tell.
    pub processes: Option<Vec<GpuProcess>>,
}

/// A process that uses a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuProcess {
    /// Process id, in the namespace of the driver's library.
    pub pid: u32,
    /// Memory that it holds on the GPU, in bytes; `None` where the driver does not tell.
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
            "`devises` is no capability: did you mean `devices`?"
        );
        assert_eq!(
            said("sudo"),
            "`sudo` is no capability: write kill, freeze, devices, cpu, memory, pids, cpuset"
        );
    }
}
