//! A witness of how far the log has come, beside the store.
//!
//! redb mends a bad newest commit by falling back to the one before it, and takes an emptied file for a new one. Either
//! would lose records that were acknowledged, in silence. So the number of the last committed record is written to a
//! file of its own after each commit, without a sync: it outlives any death of the process, and after a power failure
//! it may lag behind the log but never runs ahead of it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::StoreError;
use super::line;

/// Where the number is kept.
#[derive(Debug)]
pub(super) enum Tip {
    /// In this file.
    File {
        /// Where.
        path: PathBuf,
        /// Open.
        file: File,
    },
    /// Nowhere: a test runs on memory.
    #[cfg(test)]
    Nowhere,
}

/// Digits of the number, so that every line has one length and overwrites the last one whole.
const DIGITS: usize = 20;

impl Tip {
    /// Reads the number at `path`; `None` where there is none yet.
    pub(super) fn read(path: &Path) -> Result<Option<u64>, StoreError> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("read", path, error)),
        };
        if text.is_empty() {
            return Ok(None);
        }
        let digits: Result<String, _> = line::parse(text.trim_ascii_end());
        match digits.map(|digits| digits.parse()) {
            Ok(Ok(seq)) => Ok(Some(seq)),
            Ok(Err(_)) | Err(_) => Err(StoreError::damaged(
                path,
                "it does not hold the number of a record",
            )),
        }
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
        Ok(Tip::File {
            path: path.to_owned(),
            file,
        })
    }

    /// Remembers that record `seq` was committed.
    pub(super) fn set(&self, seq: u64) -> Result<(), StoreError> {
        match self {
            Tip::File { path, file } => {
                let mut text = line::seal(&format!("{seq:0DIGITS$}"));
                text.push(b'\n');
                file.write_all_at(&text, 0)
                    .map_err(|source| StoreError::io("write", path, source))
            }
            #[cfg(test)]
            Tip::Nowhere => Ok(()),
        }
    }
}
