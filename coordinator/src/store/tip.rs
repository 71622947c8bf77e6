//! The tip file: the number of the last committed record, kept beside the store.
//!
//! redb repairs a bad last commit by falling back to the one before it, and takes an emptied file for a new one. Either
//! would silently lose acknowledged records. The number is therefore written to a file of its own after each commit,
//! without a sync: it survives any death of the process, and after a power failure it may lag behind the log but is
//! never ahead of it.
//!
//! After a clean end it contains the store's checksum too (see [`super::file_checksum`]), until the next start.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::encoding;
use super::file_checksum::FileChecksum;

/// Contents of the tip file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TipRecord {
    /// Number of the last committed record.
    pub(super) seq: u64,
    /// Checksum of the store's file after a clean end; `None` while it is open, or after a crash.
    pub(super) closed: Option<FileChecksum>,
}

/// Storage of the tip.
#[derive(Debug)]
pub(super) enum TipFile {
    /// A file on disk.
    File { path: PathBuf, file: File },
    /// No storage, for tests in memory.
    #[cfg(test)]
    Nowhere,
}

/// Length of the file, so that every write replaces the last one completely. The longest content has about a hundred
/// bytes.
const WIDTH: usize = 160;

impl TipFile {
    /// Reads the tip file at `path`; `None` if there is none yet.
    pub(super) fn read(path: &Path) -> Result<Option<TipRecord>, StoreError> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("read", path, error)),
        };
        if text.is_empty() {
            return Ok(None);
        }
        let mark = encoding::parse(text.trim_ascii_end());
        mark.map(Some)
            .map_err(|damage| StoreError::damaged(path, damage))
    }

    /// Opens the file for writing.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|source| StoreError::io("open", path, source))?;
        Ok(TipFile::File {
            path: path.to_owned(),
            file,
        })
    }

    /// Writes that record `seq` was committed.
    pub(super) fn set(&self, seq: u64) -> Result<(), StoreError> {
        self.write(&TipRecord { seq, closed: None })
    }

    /// Writes that record `seq` was the last, with the checksum of the closed store.
    pub(super) fn close(&self, seq: u64, store: &Path) -> Result<(), StoreError> {
        match self {
            TipFile::File { .. } => self.write(&TipRecord {
                seq,
                closed: Some(FileChecksum::measure(store)?),
            }),
            #[cfg(test)]
            TipFile::Nowhere => Ok(()),
        }
    }

    fn write(&self, mark: &TipRecord) -> Result<(), StoreError> {
        match self {
            TipFile::File { path, file } => {
                let mut text = encoding::seal(mark);
                text.resize(WIDTH - 1, b' ');
                text.push(b'\n');
                file.write_all_at(&text, 0)
                    .map_err(|source| StoreError::io("write", path, source))
            }
            #[cfg(test)]
            TipFile::Nowhere => Ok(()),
        }
    }

    /// Makes the file survive a power failure.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        match self {
            TipFile::File { path, file } => file
                .sync_data()
                .map_err(|source| StoreError::io("sync", path, source)),
            #[cfg(test)]
            TipFile::Nowhere => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_overwrites_a_longer_one_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tip");
        assert_eq!(TipFile::read(&path).unwrap(), None);
        let tip = TipFile::open(&path).unwrap();
        let longest = TipRecord {
            seq: u64::MAX,
            closed: Some(FileChecksum {
                bytes: u64::MAX,
                crc32: u32::MAX,
            }),
        };
        tip.write(&longest).unwrap();
        assert_eq!(TipFile::read(&path).unwrap(), Some(longest));
        tip.set(7).unwrap();
        let short = TipRecord {
            seq: 7,
            closed: None,
        };
        assert_eq!(TipFile::read(&path).unwrap(), Some(short));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), WIDTH as u64);
    }
}
