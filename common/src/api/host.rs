//! A host's inventory joined with its latest readings: output of `sluice detect` and part of a node in the API.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::image::ContainerRuntimes;
use crate::inventory::{
    BoardFacts, Capability, Gpu, GpuReading, HostReading, Inventory, Mechanism, MigInstance,
    Readings, Reserve,
};

/// A host: the fields of [`Inventory`], with the latest reading of the host and of each GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Host")
)]
#[serde(default)]
pub struct HostView {
    /// Kernel release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// Name of the operating system.
    pub os: String,
    /// Processor architecture, such as `x86_64`.
    pub arch: String,
    /// Processor model as the kernel names it.
    pub cpu_model: String,
    /// Number of physical cores; 0 if unknown.
    pub cores: u32,
    /// Number of logical processors available to steps.
    pub cpus: u32,
    /// Memory available to steps, in bytes.
    pub memory_bytes: u64,
    /// Disk space below the state directory, in bytes.
    pub storage_bytes: u64,
    /// Capabilities of the host and the mechanism that provides each.
    pub capabilities: BTreeMap<Capability, Mechanism>,
    /// Container runtimes that steps can use, with their versions.
    #[serde(skip_serializing_if = "ContainerRuntimes::is_empty")]
    pub container_runtimes: ContainerRuntimes,
    /// Version of the NVIDIA driver.
    pub driver: Option<String>,
    /// Highest CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// Grantable GPUs and MIG instances.
    pub gpus: Vec<GpuView>,
    /// Whether there may be GPUs that are not known yet, because the driver has not answered since the agent started.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub gpus_unknown: bool,
    /// Properties that could not be detected, with reasons.
    pub notes: Vec<String>,
    /// Resources reserved for the host itself; already subtracted from `cpus` and `memory_bytes`.
    #[serde(skip_serializing_if = "Reserve::is_empty")]
    pub reserve: Reserve,
    /// Latest reading of the host; absent until reported.
    pub reading: Option<HostReading>,
}

/// A GPU or MIG instance with its latest reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Gpu")
)]
#[serde(default)]
pub struct GpuView {
    /// The driver's index.
    pub index: u32,
    /// UUID by which a step is given the GPU.
    pub uuid: String,
    /// PCI address, such as `0000:17:00.0`.
    pub pci: Option<String>,
    /// Model as NVML names it.
    pub model: String,
    /// Platform derived from the model.
    pub platform: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// Parent GPU and profile, if this is a MIG instance.
    pub mig: Option<MigInstance>,
    /// UUIDs of the GPUs reachable over NVLink.
    pub nvlink: Vec<String>,
    /// NUMA node of the GPU.
    pub numa_node: Option<u32>,
    /// Whether ECC is enabled; absent if unknown.
    pub ecc: Option<bool>,
    /// Paths of the device nodes that a step uses.
    pub devices: Vec<String>,
    /// Facts of the board.
    pub board: BoardFacts,
    /// Latest reading; absent until reported. Temperature, power and error counts, which the driver reports only for
    /// whole GPUs, are copied to their instances.
    pub reading: Option<GpuReading>,
}

impl HostView {
    /// Joins an inventory with the latest readings.
    pub fn of(inventory: &Inventory, readings: Option<&Readings>) -> Self {
        Self {
            kernel: inventory.kernel.clone(),
            os: inventory.os.clone(),
            arch: inventory.arch.clone(),
            cpu_model: inventory.cpu_model.clone(),
            cores: inventory.cores,
            cpus: inventory.cpus,
            memory_bytes: inventory.memory_bytes,
            storage_bytes: inventory.storage_bytes,
            capabilities: inventory.capabilities.clone(),
            container_runtimes: inventory.container_runtimes.clone(),
            driver: inventory.driver.clone(),
            cuda: inventory.cuda.clone(),
            gpus: inventory
                .gpus
                .iter()
                .map(|gpu| GpuView::of(gpu, readings))
                .collect(),
            gpus_unknown: inventory.gpus_unknown,
            notes: inventory.notes.clone(),
            reserve: inventory.reserve,
            reading: readings.map(|readings| readings.host),
        }
    }
}

impl GpuView {
    fn of(gpu: &Gpu, readings: Option<&Readings>) -> Self {
        let find = |uuid: &str| readings?.gpus.iter().find(|reading| reading.uuid == uuid);
        let own = find(&gpu.uuid).cloned();
        let whole = gpu.mig.as_ref().and_then(|mig| find(&mig.parent));
        Self {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            pci: gpu.pci.clone(),
            model: gpu.model.clone(),
            platform: gpu.platform.clone(),
            memory_bytes: gpu.memory_bytes,
            mig: gpu.mig.clone(),
            nvlink: gpu.nvlink.clone(),
            numa_node: gpu.numa_node,
            ecc: gpu.ecc,
            devices: gpu.devices.iter().map(|node| node.path.clone()).collect(),
            board: gpu.board.clone(),
            reading: own.map(|own| with_whole(own, whole)),
        }
    }
}

/// Fills gaps in an instance's reading from its whole GPU. Memory, utilization and processes are not copied: they
/// differ.
fn with_whole(own: GpuReading, whole: Option<&GpuReading>) -> GpuReading {
    let Some(whole) = whole else { return own };
    GpuReading {
        temperature_celsius: own.temperature_celsius.or(whole.temperature_celsius),
        power_milliwatts: own.power_milliwatts.or(whole.power_milliwatts),
        power_limit_milliwatts: own.power_limit_milliwatts.or(whole.power_limit_milliwatts),
        ecc_corrected: own.ecc_corrected.or(whole.ecc_corrected),
        ecc_uncorrected: own.ecc_uncorrected.or(whole.ecc_uncorrected),
        xids: if own.xids.is_empty() {
            whole.xids.clone()
        } else {
            own.xids
        },
        board: own.board.or_else(|| whole.board.clone()),
        ..own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::BoardReading;
    use alloc::vec;

    #[test]
    fn an_instance_shares_the_temperature_of_its_gpu_and_not_its_memory() {
        let reading = |uuid: &str| GpuReading {
            uuid: uuid.into(),
            ..GpuReading::default()
        };
        let inventory = Inventory {
            gpus: vec![Gpu {
                uuid: "MIG-1".into(),
                mig: Some(MigInstance {
                    profile: "1g.10gb".into(),
                    parent: "GPU-1".into(),
                }),
                ..Gpu::default()
            }],
            ..Inventory::default()
        };
        let readings = Readings {
            gpus: vec![
                GpuReading {
                    temperature_celsius: Some(41),
                    memory_used_bytes: Some(9),
                    board: Some(BoardReading {
                        persistence: Some(true),
                        ..BoardReading::default()
                    }),
                    ..reading("GPU-1")
                },
                reading("MIG-1"),
            ],
            ..Readings::default()
        };
        let view = HostView::of(&inventory, Some(&readings));
        let found = view.gpus[0].reading.as_ref().unwrap();
        assert_eq!(found.temperature_celsius, Some(41));
        assert_eq!(found.memory_used_bytes, None);
        assert_eq!(found.board.as_ref().unwrap().persistence, Some(true));
        assert_eq!(HostView::of(&inventory, None).gpus[0].reading, None);
    }
}
