//! The disk that steps write to: the one that holds the state directory.

use std::path::Path;

use sluice_common::inventory::Inventory;
use sysinfo::{DiskRefreshKind, Disks};

/// Fills in the total size of the file system below `state_dir`.
pub(crate) fn detect(state_dir: &Path, inventory: &mut Inventory) {
    let wanted = DiskRefreshKind::nothing().with_storage();
    let size = match Disks::new_with_refreshed_list_specifics(wanted) {
        Ok(disks) => size_below(&disks, state_dir),
        Err(_) => None,
    };
    // sysinfo lists block devices; an overlay or a tmpfs it may pass over, and those the kernel itself can measure.
    match size.or_else(|| measured(state_dir)) {
        Some(bytes) => inventory.storage_bytes = bytes,
        None => {
            let note = format!(
                "the size of the disk below {} could not be read",
                state_dir.display()
            );
            inventory.notes.push(note);
        }
    }
}

fn size_below(disks: &Disks, dir: &Path) -> Option<u64> {
    let dir = dir.canonicalize().ok()?;
    let holding = disks
        .iter()
        .filter(|disk| dir.starts_with(disk.mount_point()));
    let nearest = holding.max_by_key(|disk| disk.mount_point().components().count())?;
    Some(nearest.total_space()).filter(|bytes| *bytes > 0)
}

fn measured(dir: &Path) -> Option<u64> {
    let stat = nix::sys::statvfs::statvfs(dir).ok()?;
    Some(stat.blocks() * stat.fragment_size())
}
