//! Simulated hosts: their size and platform.

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, STORAGE_MB};
use sluice_common::id::PoolName;
use sluice_common::platform;
use sluice_scheduler::{Hardware, HostResources};

/// More of a key than any request asks for, and small enough to be added up over many hosts.
const UNLIMITED: u64 = 1 << 44;

/// The resources of a host. Absent keys are not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSize {
    pub gpus: u64,
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
    fn units(self) -> HostResources {
        let or_unlimited = |amount: Option<u64>| amount.unwrap_or(UNLIMITED);
        let amounts = Amounts::new()
            .with_gpus(self.gpus)
            .with(MCPU, or_unlimited(self.mcpu))
            .with(MEMORY_MB, or_unlimited(self.memory_mb))
            .with(STORAGE_MB, or_unlimited(self.storage_mb));
        HostResources::from_amounts(&amounts).with_steps(UNLIMITED)
    }
}

impl SimulatedHost {
    pub(super) fn of(pool: PoolName, size: HostSize, model: Option<&str>) -> Self {
        let hardware = match model.filter(|_| size.gpus > 0) {
            Some(model) => {
                let platform = platform::from_slug(&platform::slug(model));
                Hardware::uniform([platform].into(), size.gpus)
            }
            None => Hardware::of_unknown_model(size.gpus),
        };
        Self {
            pool,
            units: size.units(),
            hardware,
            domain_path: Vec::new(),
        }
    }
}
