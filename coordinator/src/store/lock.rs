//! Locks a data directory for one coordinator, by a file lock that the kernel releases when the holder dies. Readers
//! share the lock and leave the file as it is.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use super::StoreError;

/// An exclusive lock, held until dropped.
#[derive(Debug)]
pub struct DirLock {
    _file: Flock<File>,
}

/// A lock that keeps coordinators away until dropped.
#[derive(Debug)]
pub(super) struct ReadLock {
    _file: Flock<File>,
}

impl ReadLock {
    /// Locks `dir` against coordinators; `None` if none ever ran in it, as in a copy of the store alone.
    pub(super) fn take(dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = dir.join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StoreError::io("open", &path, source)),
        };
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(locked) => Ok(Some(Self { _file: locked })),
            Err((file, Errno::EWOULDBLOCK)) => Err(in_use(dir, file)),
            Err((_, errno)) => Err(StoreError::io("lock", &path, errno.into())),
        }
    }
}

impl DirLock {
    /// Locks `dir`, and writes the process id into the lock file, for the message of a refused coordinator.
    ///
    /// # Errors
    /// If another process holds it, or the file cannot be made.
    pub fn take(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("lock");
        let io = |action| move |source| StoreError::io(action, &dir.join("lock"), source);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Root may take the lock in the directory of another user, and writes in it.
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .map_err(io("open"))?;
        let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((file, Errno::EWOULDBLOCK)) => return Err(in_use(dir, file)),
            Err((_, errno)) => return Err(io("lock")(errno.into())),
        };
        file.set_len(0).map_err(io("write"))?;
        file.rewind().map_err(io("write"))?;
        writeln!(file, "{}", std::process::id()).map_err(io("write"))?;
        Ok(Self { _file: file })
    }
}

fn in_use(dir: &Path, mut file: File) -> StoreError {
    let mut text = String::new();
    // The holder may be about to write its id; the message is right without one.
    let pid = file
        .read_to_string(&mut text)
        .ok()
        .and_then(|_| text.trim().parse::<u32>().ok());
    StoreError::InUse {
        dir: dir.to_owned(),
        holder: pid.map_or_else(|| "pid unknown".to_owned(), |pid| format!("pid {pid}")),
    }
}
