//! Reads and writes certificate and key files, with checked permissions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes. A certificate takes about one thousand.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Error with a certificate or key file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is too large for a PEM file.
    #[error("{path} is longer than {MAX_FILE_BYTES} bytes: is it a PEM file?", path = path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// Other users can read or write the private key.
    #[error(
        "{path} holds a private key and others have access to it (mode {mode:04o}): run `chmod 600 {path}`",
        path = path.display()
    )]
    Exposed {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The private key belongs to another user.
    #[error(
        "{path} holds a private key and belongs to user {owner}, and this program runs as user {ours}: run \
         `chown {ours} {path}`", path = path.display()
    )]
    Foreign {
        /// Path of the file.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// User id of this program.
        ours: u32,
    },
    /// The file cannot be written.
    #[error("cannot write {path}", path = path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Reads a certificate file.
///
/// # Errors
/// If it cannot be read, is too large or is not text.
pub fn read_public(path: &Path) -> Result<String, FileError> {
    let file = File::open(path).map_err(|e| read_error(path, e))?;
    read(path, file)
}

/// Reads a key file, which only its owner may access.
///
/// # Errors
/// [`FileError::Exposed`] if others can access it; otherwise as [`read_public`].
pub fn read_private(path: &Path) -> Result<String, FileError> {
    let file = File::open(path).map_err(|e| read_error(path, e))?;
    // Checks the opened file, so that it cannot be exchanged in between.
    let metadata = file.metadata().map_err(|e| read_error(path, e))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(FileError::Exposed { path, mode });
    }
    check_owner(path, metadata.uid(), nix::unistd::geteuid().as_raw())?;
    read(path, file)
}

/// Keys may belong to root, and root may read the keys of any user.
fn check_owner(path: &Path, owner: u32, ours: u32) -> Result<(), FileError> {
    if owner == ours || owner == 0 || ours == 0 {
        return Ok(());
    }
    let path = path.to_owned();
    Err(FileError::Foreign { path, owner, ours })
}

fn read(path: &Path, file: File) -> Result<String, FileError> {
    let mut text = String::new();
    let count = file
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|e| read_error(path, e))?;
    if count as u64 > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { path: path.into() });
    }
    Ok(text)
}

fn read_error(path: &Path, source: io::Error) -> FileError {
    let path = path.to_owned();
    FileError::Read { path, source }
}

/// Writes a certificate file atomically.
///
/// # Errors
/// If it cannot be written.
pub fn write_public(path: &Path, text: &str) -> Result<(), FileError> {
    write(path, text, PUBLIC)
}

/// Writes a key file atomically. Others can never read it.
///
/// # Errors
/// If it cannot be written.
pub fn write_private(path: &Path, text: &str) -> Result<(), FileError> {
    write(path, text, PRIVATE)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    write_new(&beside, text, mode)
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| sync_folder(path))
        .map_err(|source| FileError::Write {
            path: path.to_owned(),
            source,
        })
}

fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    // A leftover of an interrupted write may have other permissions.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes the new name durable.
fn sync_folder(of: &Path) -> io::Result<()> {
    match of.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        Some(_) | None => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_key_file_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        fs::write(dir.path().join("a.key.new"), "left over").unwrap();
        fs::write(&path, "older").unwrap();
        write_private(&path, "secret").unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(read_private(&path).unwrap(), "secret");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write_private(&path, "secret").unwrap();
        for bits in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            let text = read_private(&path).unwrap_err().to_string();
            assert!(text.contains(&format!("mode {bits:04o}")), "{text}");
            assert!(text.contains("chmod 600 /"), "{text}");
            assert!(text.contains("a.key"), "{text}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(read_private(&path).unwrap(), "secret");
    }

    #[test]
    fn a_key_of_another_user_is_refused_with_the_way_out() {
        let path = Path::new("/x/a.key");
        for (owner, ours) in [(7, 7), (0, 7), (7, 0)] {
            check_owner(path, owner, ours).unwrap();
        }
        let text = check_owner(path, 8, 7).unwrap_err().to_string();
        assert!(text.contains("belongs to user 8"), "{text}");
        assert!(text.contains("`chown 7 /x/a.key`"), "{text}");
    }

    #[test]
    fn every_error_names_its_path() {
        let missing = Path::new("/nonexistent/ca.pem");
        for error in [
            read_public(missing).unwrap_err(),
            read_private(missing).unwrap_err(),
            write_public(missing, "").unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.contains("/nonexistent/ca.pem"), "{text}");
        }
        let text = read_public(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(text.contains("is it a PEM file?"), "{text}");
    }
}
