//! Processors: model, cores, and logical processors for steps.

use std::thread::available_parallelism;

use sluice_common::inventory::Inventory;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use super::notes::Notes;

pub(crate) fn detect(inventory: &mut Inventory, notes: &mut Notes) {
    let wanted = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    match System::new_with_specifics(wanted) {
        Ok(system) => {
            let first = system.cpus().first();
            inventory.cpu_model = first.map_or(String::new(), |cpu| cpu.brand().trim().to_owned());
            inventory.cpus = usable(system.cpus().len());
        }
        Err(error) => {
            inventory.cpus = usable(1);
            notes.add(format!("the processors cannot be read: {error}"));
        }
    }
    let cores = System::physical_core_count().unwrap_or_default();
    inventory.cores = u32::try_from(cores).unwrap_or(u32::MAX);
}

/// Steps may use only the processors that this process may use, because a container or cpuset can limit them.
fn usable(present: usize) -> u32 {
    let allowed = available_parallelism().map_or(present, |n| n.get());
    u32::try_from(allowed.min(present.max(1))).unwrap_or(u32::MAX)
}
