//! The supervisor's small files: replaced atomically by a rename, so that a crash leaves either the old or the new
//! content; continued by a line, which a crash may leave cut; or opened in place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    pub(crate) fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self {
            action,
            path,
            source,
        }
    }

    /// Whether the file or its directory does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Replaces the file at `path` with `bytes`, by a rename of the file `beside`. Only the owner can read it.
///
/// # Errors
/// If it cannot be written; the file at `path` is unchanged then.
pub(crate) fn replace(path: &Path, beside: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(beside)
        .map_err(|e| FileError::new("make", beside, e))?;
    file.write_all(bytes)
        .map_err(|e| FileError::new("write", beside, e))?;
    fs::rename(beside, path).map_err(|e| FileError::new("replace", path, e))
}

/// Adds a line at the end of the file at `path`, and makes the file if it is missing. Only the owner can read it. False
/// if the file has `max` bytes or more; then nothing is added.
///
/// # Errors
/// If it cannot be written whole; the file is as it was then.
pub(crate) fn append_line(path: &Path, line: &[u8], max: u64) -> Result<bool, FileError> {
    let failed = |e| FileError::new("write", path, e);
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| FileError::new("make", path, e))?;
    let before = file.metadata().map_err(failed)?.len();
    if before >= max {
        return Ok(false);
    }
    let separator = if before == 0 { &b""[..] } else { b"\n" };
    if let Err(e) = file.write_all(&[separator, line].concat()) {
        // What is left is a cut line, which readers pass over.
        let _passed_over = file.set_len(before);
        return Err(failed(e));
    }
    Ok(true)
}

/// Opens the file at `path` for writing in place, and makes it if it is missing. The content stays. Only the
/// owner can read it, and no link is followed.
///
/// # Errors
/// If it cannot be opened or made.
pub(crate) fn open_in_place(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_there_whole_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, beside) = (dir.path().join("kept"), dir.path().join(".new"));
        fs::write(&beside, "what a crash left, longer than what comes").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
        replace(&path, &beside, b"older").unwrap();
        replace(&path, &beside, b"newer").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert!(!beside.exists());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_cannot_be_written_leaves_the_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept");
        fs::write(&path, "older").unwrap();
        let beside = dir.path().join("none/.new");
        let error = replace(&path, &beside, b"newer").unwrap_err();
        assert!(error.is_not_found());
        assert!(error.to_string().contains("cannot make"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"older");
    }
}
