//! Kernel, processors and memory, by sysinfo.

use std::thread::available_parallelism;

use sluice_common::inventory::Inventory;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// Fills in kernel, architecture, processors and memory.
pub(crate) fn detect(inventory: &mut Inventory) {
    inventory.arch = System::cpu_arch();
    match System::kernel_version() {
        Ok(release) => inventory.kernel = release,
        Err(error) => inventory
            .notes
            .push(format!("the kernel's release could not be read: {error}")),
    }
    let wanted = RefreshKind::nothing()
        .with_cpu(CpuRefreshKind::nothing())
        .with_memory(MemoryRefreshKind::nothing().with_ram());
    match System::new_with_specifics(wanted) {
        Ok(system) => read(&system, inventory),
        Err(error) => inventory
            .notes
            .push(format!("processors and memory could not be read: {error}")),
    }
}

fn read(system: &System, inventory: &mut Inventory) {
    let model = system
        .cpus()
        .first()
        .map(|cpu| cpu.brand().trim().to_owned());
    inventory.cpu_model = model.unwrap_or_default();
    inventory.memory_bytes = system.total_memory();
    inventory.cpus = usable_cpus(system.cpus().len());
}

/// Steps may use no more processors than this process may: a container or a cpuset can allow fewer than there are.
fn usable_cpus(present: usize) -> u32 {
    let allowed = available_parallelism().map_or(present, |n| n.get());
    u32::try_from(allowed.min(present.max(1))).unwrap_or(u32::MAX)
}
