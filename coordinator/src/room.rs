//! The room that is left on the file system of the store. New steps are refused while it is short, so that what has been
//! accepted can still be recorded: a commit that fails ends the program, and with it the leases of all that runs. What
//! somebody else takes of it meanwhile is made up for by blocks that the store's file was given before (`store/reserve`).

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use sluice_common::amount::format_memory;

/// Kept free for the records of what was accepted: so much, or so small a part of the file system, whichever is less. The
/// largest submit is 16 MiB, and a snapshot of a hundred thousand steps about 60.
const KEPT_BYTES: u64 = 256 << 20;
const KEPT_PART: u64 = 20;

/// The room of a directory's file system.
#[derive(Debug)]
pub(crate) struct Room {
    dir: PathBuf,
}

/// Less is free than is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the coordinator's disk is nearly full: {} are free at {}, and {} are kept for the records of accepted steps: remove \
     what is not needed there, and call again", format_memory(*free), dir.display(), format_memory(*kept)
)]
pub struct DiskFull {
    dir: PathBuf,
    /// In bytes.
    pub free: u64,
    /// In bytes.
    pub kept: u64,
}

impl Room {
    /// Of this directory.
    pub(crate) fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Whether there is room for more, as it is now. A file system that does not say has.
    pub(crate) fn check(&self) -> Result<(), DiskFull> {
        match self.read() {
            Some((free, kept)) if free < kept => Err(DiskFull {
                dir: self.dir.clone(),
                free,
                kept,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Bytes that are kept free; 0 if the file system does not say what it has.
    pub(crate) fn kept(&self) -> u64 {
        self.read().map_or(0, |(_, kept)| kept)
    }

    /// Bytes that are free, and those that are kept.
    fn read(&self) -> Option<(u64, u64)> {
        let disk = statvfs(&self.dir).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
        let kept = KEPT_BYTES.min(bytes(disk.blocks()) / KEPT_PART);
        Some((bytes(disk.blocks_available()), kept))
    }
}
