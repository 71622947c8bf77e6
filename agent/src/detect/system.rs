//! The operating system, its kernel and the architecture.

use sluice_common::inventory::Inventory;
use sysinfo::System;

use super::notes::Notes;

/// Fills in the names.
pub(crate) fn detect(inventory: &mut Inventory, notes: &mut Notes) {
    inventory.arch = System::cpu_arch();
    match System::kernel_version() {
        Ok(release) => inventory.kernel = release,
        Err(error) => notes.add(format!("the kernel's release cannot be read: {error}")),
    }
    // A system without a name of its own is Linux.
    let name = System::name().unwrap_or_else(|_| "Linux".to_owned());
    let version = System::os_version().unwrap_or_default();
    inventory.os = format!("{name} {version}").trim().to_owned();
}
