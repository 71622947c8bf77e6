//! The host's memory.

use sluice_common::inventory::{HostReading, Inventory};
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use super::notes::Notes;

fn look() -> Result<System, String> {
    let wanted = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    System::new_with_specifics(wanted).map_err(|error| error.to_string())
}

/// Fills in the total.
pub(crate) fn detect(inventory: &mut Inventory, notes: &mut Notes) {
    match look() {
        Ok(system) => inventory.memory_bytes = system.total_memory(),
        Err(error) => notes.add(format!("the memory cannot be read: {error}")),
    }
}

/// Memory that is available now, in bytes.
pub(crate) fn available() -> Option<u64> {
    look().ok().map(|system| system.available_memory())
}

/// Fills in what is available now.
pub(crate) fn read(reading: &mut HostReading) {
    if let Some(bytes) = available() {
        reading.memory_available_bytes = bytes;
    }
}
