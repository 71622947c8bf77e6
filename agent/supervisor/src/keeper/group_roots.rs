//! The file by which a supervisor tells keepers the roots of its attempts' groups.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_common::id::BootId;

use crate::atomic_file::{self, FileError};
use crate::groups::existing::GroupRoots;

/// Directory of keepers in a state directory.
pub const DIRECTORY: &str = "keeper";

const FILE: &str = "groups.json";
const NEW: &str = ".new";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredRoots {
    /// Groups exist only within one boot.
    boot_id: BootId,
    roots: GroupRoots,
}

/// The file, read again when it changes.
#[derive(Debug)]
pub struct GroupRootsFile {
    path: PathBuf,
    read: Vec<u8>,
}

impl GroupRootsFile {
    /// Uses the file in this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            path: state_dir.join(DIRECTORY).join(FILE),
            read: Vec::new(),
        }
    }

    /// The roots, if they have changed. An unreadable file changes nothing.
    pub fn changed(&mut self, boot_id: &BootId) -> Option<GroupRoots> {
        let bytes = fs::read(&self.path).ok()?;
        if bytes == self.read {
            return None;
        }
        let written: StoredRoots = serde_json::from_slice(&bytes).ok()?;
        self.read = bytes;
        (written.boot_id == *boot_id).then_some(written.roots)
    }
}

/// Makes the directory of keepers if it is missing.
///
/// # Errors
/// If it cannot be made.
pub fn make_directory(state_dir: &Path) -> Result<PathBuf, FileError> {
    let dir = state_dir.join(DIRECTORY);
    let made = fs::DirBuilder::new().mode(0o700).create(&dir);
    match made {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(FileError::new("make", &dir, e)),
        Ok(()) | Err(_) => Ok(dir),
    }
}

/// Writes the roots. An unchanged file is not written again, so that a full disk does not matter.
///
/// # Errors
/// If the file cannot be written.
pub fn write(state_dir: &Path, boot_id: &BootId, roots: GroupRoots) -> Result<(), FileError> {
    let dir = make_directory(state_dir)?;
    let boot_id = boot_id.clone();
    let path = dir.join(FILE);
    let bytes = serde_json::to_vec(&StoredRoots { boot_id, roots })
        .map_err(|e| FileError::new("write", &path, e.into()))?;
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    atomic_file::replace(&path, &dir.join(NEW), &bytes)
}
