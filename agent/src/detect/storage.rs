//! The disk of steps: the file system with the state directory.

use std::path::Path;

use nix::sys::statvfs::{Statvfs, statvfs};
use sluice_common::inventory::{HostReading, Inventory};

use super::notes::Notes;

/// Fills in the total size.
pub(crate) fn detect(state_dir: &Path, inventory: &mut Inventory, notes: &mut Notes) {
    match statvfs(state_dir) {
        Ok(disk) => inventory.storage_bytes = bytes(&disk, disk.blocks()),
        Err(error) => notes.add(format!(
            "the size of the disk below {} cannot be read: {}",
            state_dir.display(),
            error.desc()
        )),
    }
}

/// Fills in the space that is free for ordinary users.
pub(crate) fn read(state_dir: &Path, reading: &mut HostReading) {
    if let Ok(disk) = statvfs(state_dir) {
        reading.storage_free_bytes = bytes(&disk, disk.blocks_available());
    }
}

fn bytes(disk: &Statvfs, blocks: u64) -> u64 {
    blocks.saturating_mul(disk.fragment_size())
}
