//! Reserves disk blocks before the store needs them, so that a disk filled by other programs does not end the
//! coordinator: redb doubles its file as it grows and writes into it later, and a sparse file has blocks only where it
//! was written.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use crate::disk_space::DiskSpace;

/// Bytes reserved beyond the end of the file, on a disk that is large enough.
const BEYOND: u64 = 16 << 20;

/// The store's file, and its reserved length.
#[derive(Debug)]
pub(super) struct Reserve {
    file: File,
    room: DiskSpace,
    /// Length of the file at the last reservation.
    given: u64,
}

impl Reserve {
    /// Opens the store's file in `dir`; `None` if that fails, which only loses the reserve.
    pub(super) fn of(dir: &Path, file: &Path) -> Option<Self> {
        let file = File::options().read(true).write(true).open(file).ok()?;
        let mut reserve = Self {
            file,
            room: DiskSpace::of(dir),
            given: 0,
        };
        reserve.keep();
        Some(reserve)
    }

    /// Reserves blocks for all of the file and some beyond its end, if it has grown. On file systems without
    /// preallocation, a full disk makes the next commit fail as before.
    pub(super) fn keep(&mut self) {
        let Ok(length) = self.file.metadata().map(|found| found.len()) else {
            return;
        };
        if length == self.given {
            return;
        }
        let beyond = BEYOND.min(self.room.kept_bytes() / 2);
        let range = i64::try_from(length.saturating_add(beyond)).unwrap_or(i64::MAX);
        let kept_size = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(self.file.as_fd(), kept_size, 0, range) {
            // Others may free space.
            Err(Errno::ENOSPC | Errno::EINTR) => {}
            // A file system that cannot do it is asked again when the file has grown.
            Ok(()) | Err(_) => self.given = length,
        }
    }
}
