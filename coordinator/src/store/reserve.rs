//! Room on the disk that the store has before it needs it, so that a disk which somebody else fills ends no coordinator:
//! redb doubles its file as it grows and writes into it later, and a file has blocks only where it was written or where
//! they were asked for.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use crate::disk_space::DiskSpace;

/// Bytes beyond the end of the file, on a disk that is large enough.
const BEYOND: u64 = 16 << 20;

/// The store's file, and how far it has blocks.
#[derive(Debug)]
pub(super) struct Reserve {
    file: File,
    room: DiskSpace,
    /// Length of the file when it was last given blocks.
    given: u64,
}

impl Reserve {
    /// Of the store's file in `dir`; `None` if it cannot be opened, which costs the room ahead alone.
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

    /// Gives blocks to all of the file and to some bytes beyond its end, if it has grown since. Where the file system gives
    /// none ahead, a full disk ends the next commit as it did before.
    pub(super) fn keep(&mut self) {
        let Ok(length) = self.file.metadata().map(|found| found.len()) else {
            return;
        };
        if length == self.given {
            return;
        }
        let beyond = BEYOND.min(self.room.kept() / 2);
        let range = i64::try_from(length.saturating_add(beyond)).unwrap_or(i64::MAX);
        let kept_size = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(self.file.as_fd(), kept_size, 0, range) {
            // Others may make room.
            Err(Errno::ENOSPC | Errno::EINTR) => {}
            // A file system that cannot do it is asked again when the file has grown.
            Ok(()) | Err(_) => self.given = length,
        }
    }
}
