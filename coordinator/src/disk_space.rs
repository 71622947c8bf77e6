//! Checks the free space on the file system of the store. New steps are rejected while it is low, so that accepted work
//! can still be recorded: a failed commit ends the program, and with it the leases of all running steps. Space that
//! other programs take meanwhile is covered by blocks allocated to the store's file in advance (`store/reserve`).

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use sluice_common::amount::format_memory;

/// Bytes kept free for records of accepted work, or one `KEPT_PART`th of the file system if that is less. The largest submit is
/// 16 MiB, and a snapshot of a hundred thousand steps about 60 MiB.
const KEPT_BYTES: u64 = 256 << 20;
const KEPT_PART: u64 = 20;

/// The free space of the file system of a directory.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    dir: PathBuf,
}

/// Less space is free than is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the coordinator's disk is nearly full: {} are free at {}, and {} are kept for the records of accepted steps: remove \
     what is not needed there, and call again", format_memory(*free), dir.display(), format_memory(*kept_bytes)
)]
pub struct DiskFull {
    dir: PathBuf,
    pub free: u64,
    /// Bytes kept free.
    pub kept_bytes: u64,
}

impl DiskSpace {
    /// Measures the file system of `dir`.
    pub(crate) fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Fails if less is free than is kept. A file system that reports nothing counts as having space.
    pub(crate) fn check(&self) -> Result<(), DiskFull> {
        match self.read() {
            Some((free, kept_bytes)) if free < kept_bytes => Err(DiskFull {
                dir: self.dir.clone(),
                free,
                kept_bytes,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the bytes kept free; 0 if the file system reports no size.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.read().map_or(0, |(_, kept_bytes)| kept_bytes)
    }

    /// Returns the free bytes and the bytes kept free.
    fn read(&self) -> Option<(u64, u64)> {
        let disk = statvfs(&self.dir).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
        let kept_bytes = KEPT_BYTES.min(bytes(disk.blocks()) / KEPT_PART);
        Some((bytes(disk.blocks_available()), kept_bytes))
    }
}
