//! The bound of each stream's output: whether this host supports it, and an attempt's file of marks. The
//! writer drops the excess.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};
use sluice_common::output::{MARK_BYTES, MARKS_BYTES, MARKS_FILE, mark};
use tracing::warn;

use super::{make_own, open_own};

/// Cannot be an attempt's directory, because ids do not begin with a dot.
const PROBE: &str = ".probe";

/// The bound for each stream: `max_bytes` if the file system below `attempts_dir` can punch holes, else none.
/// The alternatives without holes would be to stop the step or to lose its newest output.
pub fn most_bytes(attempts_dir: &Path, max_bytes: u64) -> u64 {
    match probe(&attempts_dir.join(PROBE)) {
        Ok(()) => max_bytes,
        Err(e) => {
            warn!(
                directory = %attempts_dir.display(),
                "output_max is not enforced: this file system cannot drop the oldest output ({e})"
            );
            u64::MAX
        }
    }
}

/// Opens the file of marks in an attempt's directory, and makes it if it is missing.
///
/// # Errors
/// If it cannot be opened, or is not a file of the supervisor.
pub(super) fn open_marks(dir: &Path) -> io::Result<File> {
    let path = dir.join(MARKS_FILE);
    match open_own(&path, OpenOptions::new().read(true).write(true)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => make_marks(dir, None),
        opened => opened,
    }
}

/// Makes the file of marks in its final size.
///
/// # Errors
/// If it cannot be made.
pub fn make_marks(dir: &Path, reader_uid: Option<u32>) -> io::Result<File> {
    let file = make_own(&dir.join(MARKS_FILE), reader_uid)?;
    let nothing = [mark(0); MARKS_BYTES / MARK_BYTES].concat();
    file.write_all_at(&nothing, 0)?;
    // Users who may read output may see how much of it there is.
    file.set_permissions(Permissions::from_mode(0o644))?;
    Ok(file)
}

/// An empty file is enough to see whether the file system rejects the call.
fn probe(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let punched = fallocate(file.as_fd(), hole, 0, 4096);
    fs::remove_file(path)?;
    Ok(punched?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_file_that_was_made_there_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join(MARKS_FILE), dir.path().join("other"));
        fs::write(&other, "whole").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(open_marks(dir.path()).is_err());
        fs::remove_file(&path).unwrap();
        fs::hard_link(&other, &path).unwrap();
        assert!(open_marks(dir.path()).is_err());
        assert_eq!(fs::read(&other).unwrap(), b"whole");
        fs::remove_file(&path).unwrap();
        let made = open_marks(dir.path()).unwrap().metadata().unwrap();
        assert_eq!(made.len(), MARKS_BYTES as u64);
    }
}
