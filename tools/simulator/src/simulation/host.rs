//! Simulated hosts: their size and platform.

use std::collections::BTreeMap;

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, STORAGE_MB};
use sluice_common::id::{PlatformName, PoolName};
use sluice_common::mig::{GpuClass, MigProfile, cut_in_order};
use sluice_common::platform;
use sluice_scheduler::{GpuKind, Hardware, HostResources};

/// More of a key than any request asks for, and small enough to be added up over many hosts.
const UNLIMITED: u64 = 1 << 44;

/// The resources of a host. Absent keys are not bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSize {
    /// Number of whole GPUs.
    pub gpus: u64,
    /// Slices of further GPUs: their number by profile.
    pub mig: BTreeMap<MigProfile, u64>,
    /// Thousandths of a core.
    pub mcpu: Option<u64>,
    /// Memory in units of 10^6 bytes.
    pub memory_mb: Option<u64>,
    /// Disk space in units of 10^6 bytes.
    pub storage_mb: Option<u64>,
}

/// A host with its size.
#[derive(Clone, Debug)]
pub(super) struct SimulatedHost {
    pub(super) pool: PoolName,
    pub(super) units: HostResources,
    pub(super) hardware: Hardware,
    /// Values of the levels of the topology, the widest first.
    pub(super) domain_path: Vec<String>,
}

impl HostSize {
    /// Thousandths of a GPU, in whole ones and in slices.
    fn mgpu(&self) -> u64 {
        let slices = self.mig.iter();
        let slices = slices.map(|(profile, count)| profile.mgpu() * count);
        self.gpus * GpuClass::Whole.mgpu() + slices.sum::<u64>()
    }

    /// Hardware of a host with slices; `platform` is that of its whole GPUs.
    fn hardware(&self, platform: &PlatformName) -> Hardware {
        let of = |class: GpuClass, platform: PlatformName| GpuKind {
            class,
            platforms: [platform].into(),
        };
        let whole = of(GpuClass::Whole, platform.clone());
        let whole = (0..self.gpus).map(|n| (gpu_name(&whole.class, n), whole.clone()));
        let slices = self.mig.iter().flat_map(|(profile, count)| {
            let slices = platform::of_slice(platform, profile.as_str());
            let kind = of(GpuClass::Slice(profile.clone()), slices);
            (0..*count).map(move |n| (gpu_name(&kind.class, n), kind.clone()))
        });
        let cut = cut_in_order(&self.mig)
            .last()
            .map_or(0, |(last, _)| last + 1);
        Hardware::from_gpus(whole.chain(slices), self.gpus + cut)
    }

    fn units(&self) -> HostResources {
        let or_unlimited = |amount: Option<u64>| amount.unwrap_or(UNLIMITED);
        let amounts = Amounts::new()
            .with(MGPU, self.mgpu())
            .with(MCPU, or_unlimited(self.mcpu))
            .with(MEMORY_MB, or_unlimited(self.memory_mb))
            .with(STORAGE_MB, or_unlimited(self.storage_mb));
        HostResources::from_amounts(&amounts).with_steps(UNLIMITED)
    }
}

/// Name of the nth GPU of a class.
pub(super) fn gpu_name(class: &GpuClass, n: u64) -> String {
    match class {
        GpuClass::Whole => n.to_string(),
        GpuClass::Slice(profile) => format!("{profile}-{n}"),
    }
}

impl SimulatedHost {
    /// Number of its GPUs of a class.
    pub(super) fn gpus_of(&self, class: &GpuClass) -> u64 {
        let kinds = self.hardware.gpus.iter();
        let kinds = kinds.filter(|(kind, _)| kind.class == *class);
        kinds.map(|(_, mgpu)| mgpu / class.mgpu()).sum()
    }

    pub(super) fn of(pool: PoolName, size: HostSize, model: Option<&str>) -> Self {
        let platform = match model {
            Some(model) => platform::from_slug(&platform::slug(model)),
            None => platform::from_slug(platform::GENERIC_GPU),
        };
        let hardware = match (size.mig.is_empty(), size.gpus) {
            (false, _) => size.hardware(&platform),
            (true, 0) => Hardware::of_unknown_model(0),
            (true, gpus) => Hardware::uniform([platform].into(), gpus),
        };
        Self {
            pool,
            units: size.units(),
            hardware,
            domain_path: Vec::new(),
        }
    }
}
