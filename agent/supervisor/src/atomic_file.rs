//! The supervisor's own small files: written beside their place and renamed into it, so that a crash at any byte leaves the
//! older one or the newer one; or opened in their place. What they hold, and where, is of those who keep them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What could not be done with a file.
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

    /// Whether there is no such file, or no directory for it.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Puts `bytes` in place of what is at `path`, by way of the file `beside` it. Root alone may read it.
///
/// # Errors
/// Where it cannot be written; then what was at `path` is untouched.
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

/// Opens the file at `path` to be written in its place, and makes it if it is not there. What it holds stays. The caller's
/// user alone may read it, and no link is followed.
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
