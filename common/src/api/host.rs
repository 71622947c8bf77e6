//! A host with how it does: what `sluice detect` prints and what the API tells of a node.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::inventory::{
    Capability, Gpu, GpuReading, HostReading, Inventory, Mechanism, MigInstance, Readings, Reserve,
};

/// A host. The fields of [`Inventory`], and beside the host and beside each GPU what was last read of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Host")
)]
#[serde(default)]
pub struct HostView {
    /// Kernel release.
    pub kernel: String,
    /// The operating system by its own name.
    pub os: String,
    /// Processor architecture.
    pub arch: String,
    /// Processor model.
    pub cpu_model: String,
    /// Physical cores; 0 where the kernel does not tell.
    pub cores: u32,
    /// Logical processors that steps may use.
    pub cpus: u32,
    /// Memory that steps may use, in bytes.
    pub memory_bytes: u64,
    /// Disk space below the state directory, in bytes.
    pub storage_bytes: u64,
    /// What can be done to the processes of a step, and by which means.
    pub capabilities: BTreeMap<Capability, Mechanism>,
    /// Version of the NVIDIA driver.
    pub driver: Option<String>,
    /// The highest version of CUDA that the driver serves.
    pub cuda: Option<String>,
    /// What can be granted.
    pub gpus: Vec<GpuView>,
    /// What could not be read and why.
    pub notes: Vec<String>,
    /// What its admin keeps from steps for the host itself; `cpus` and `memory_bytes` are without it.
    #[serde(skip_serializing_if = "Reserve::is_empty")]
    pub reserve: Reserve,
    /// How the host does; absent until it has told.
    pub reading: Option<HostReading>,
}

/// A GPU or an instance of one, with what was last read of it.
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
    /// What a step is given it by.
    pub uuid: String,
    /// Where it sits.
    pub pci: Option<String>,
    /// The model as NVML names it.
    pub model: String,
    /// The platform that its model maps to.
    pub platform: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// What it is an instance of.
    pub mig: Option<MigInstance>,
    /// UUIDs of the GPUs that NVLink reaches from it.
    pub nvlink: Vec<String>,
    /// Its NUMA node.
    pub numa_node: Option<u32>,
    /// Whether errors in its memory are corrected.
    pub ecc: Option<bool>,
    /// Paths of the device nodes through which a step reaches it.
    pub devices: Vec<String>,
    /// How it does; absent until its host has told. What the driver tells only of the whole GPU (temperature, power,
    /// errors) is told here of its instances too.
    pub reading: Option<GpuReading>,
}

impl HostView {
    /// What a host has, beside how it does.
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
            driver: inventory.driver.clone(),
            cuda: inventory.cuda.clone(),
            gpus: inventory
                .gpus
                .iter()
                .map(|gpu| GpuView::of(gpu, readings))
                .collect(),
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
            reading: own.map(|own| with_whole(own, whole)),
        }
    }
}

/// A reading, and where it is silent what is known of the whole GPU. Memory and use are not handed down: those of the
/// whole are not the instance's.
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
        ..own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(HostView::of(&inventory, None).gpus[0].reading, None);
    }
}
