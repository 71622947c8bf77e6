//! Checksum of the whole store file, taken at a clean end and compared at the next start. It detects damage in unused
//! places too, which is harmless today and a sign of a failing disk.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::StoreError;

/// Bytes of one read.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Length and checksum of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileChecksum {
    pub(super) bytes: u64,
    pub(super) crc32: u32,
}

impl FileChecksum {
    /// Computes the checksum once all of the file is on the disk.
    pub(super) fn measure(path: &Path) -> Result<Self, StoreError> {
        let measured = File::open(path).and_then(|file| {
            file.sync_all()?;
            Self::read(file)
        });
        measured.map_err(|source| StoreError::io("read", path, source))
    }

    fn read(mut file: File) -> io::Result<Self> {
        let mut hasher = crc32fast::Hasher::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut bytes = 0;
        loop {
            let count = file.read(&mut chunk)?;
            if count == 0 {
                let crc32 = hasher.finalize();
                return Ok(Self { bytes, crc32 });
            }
            hasher.update(&chunk[..count]);
            bytes += count as u64;
        }
    }

    /// Compares with the file at `path`.
    pub(super) fn check(&self, path: &Path) -> Result<(), StoreError> {
        let found = Self::measure(path)?;
        if found == *self {
            return Ok(());
        }
        let what = if found.bytes == self.bytes {
            "its content has changed since it was closed".to_owned()
        } else {
            format!(
                "it has {} bytes and had {} when it was closed",
                found.bytes, self.bytes
            )
        };
        Err(StoreError::damaged(path, what))
    }
}
