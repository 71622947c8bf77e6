//! The supervisor's state directory. One supervisor at a time holds its lock, and the holder owns the socket
//! in it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use crate::atomic_file::open_in_place;
use crate::lock;
use crate::trust::untrusted_reason;

/// Name of the socket in the directory.
pub const SOCKET: &str = "supervisor.sock";

const NEW_SOCKET: &str = "supervisor.sock.new";
const LOCK: &str = "supervisor.lock";

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// Another supervisor uses it.
    #[error(
        "another supervisor (pid {pid}) works in {}: stop it first, or give this one a directory of its own",
        dir.display()
    )]
    Taken {
        dir: PathBuf,
        /// The pid of the other supervisor, if it is known.
        pid: String,
    },
    /// Another user may have placed files there.
    #[error("cannot work in {}: {reason}, so others could change the supervisor's files: {way_out}", dir.display())]
    Untrusted {
        dir: PathBuf,
        reason: String,
        way_out: String,
    },
    /// The path is too long for a socket.
    #[error("cannot make socket {}: choose a shorter --state-dir if its path is longer than 107 bytes", path.display())]
    Socket { path: PathBuf, source: io::Error },
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// The directory, locked as long as this value lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    lock: File,
}

impl StateDir {
    /// Makes the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// If another supervisor holds the lock, or the directory cannot be made.
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        let path = prepare(path)?;
        let lock = open_lock(&path)?;
        Self::locked(path, lock)
    }

    /// Adopts the lock that this process held before an upgrade. Opening and closing the file again would
    /// release it.
    ///
    /// # Errors
    /// If the descriptor is not the lock, or another supervisor holds it.
    pub fn take_over(path: &Path, lock: OwnedFd) -> Result<Self, StateDirError> {
        let path = prepare(path)?;
        Self::locked(path, lock.into())
    }

    fn locked(path: PathBuf, file: File) -> Result<Self, StateDirError> {
        take_lock(&path, &file)?;
        Ok(Self { path, lock: file })
    }

    /// Whether [`StateDir::open`] would succeed, apart from the lock.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(path: &Path) -> Result<(), StateDirError> {
        prepare(path).map(drop)
    }

    /// Descriptor of the lock, for [`StateDir::take_over`].
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

/// Makes the directory if it is missing; returns its absolute path.
fn prepare(path: &Path) -> Result<PathBuf, StateDirError> {
    // Other users may pass through, because the agent needs the socket and the output.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(path)
        .map_err(|e| failed("make directory", path, e))?;
    // Attempts get absolute paths, because they have other working directories.
    let path = fs::canonicalize(path).map_err(|e| failed("resolve", path, e))?;
    check_trust(&path)?;
    Ok(path)
}

impl StateDir {
    /// Absolute path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Binds the socket. It is renamed to its name last, so a client that finds the name finds a listening
    /// supervisor.
    ///
    /// # Errors
    /// If it cannot be bound.
    pub fn listen(&self, agent_uid: Option<u32>) -> Result<UnixListener, StateDirError> {
        let (new, path) = (self.path.join(NEW_SOCKET), self.path.join(SOCKET));
        // The supervisor that left it is dead, because the lock is ours.
        remove(&new)?;
        let listener = UnixListener::bind(&new).map_err(|source| StateDirError::Socket {
            path: new.clone(),
            source,
        })?;
        listener
            .set_nonblocking(true)
            .map_err(|e| failed("use socket", &new, e))?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))
            .and_then(|()| agent_uid.map_or(Ok(()), |uid| chown(&new, Some(uid), None)))
            .map_err(|e| failed("hand over socket", &new, e))?;
        fs::rename(&new, &path).map_err(|e| failed("name socket", &path, e))?;
        Ok(listener)
    }

    /// Removes the socket's name, so that no client waits for a supervisor that exits.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn unlisten(&self) -> Result<(), StateDirError> {
        remove(&self.path.join(SOCKET))
    }
}

/// A user who can write in the directory, or in one that an earlier supervisor made there, could place links
/// that the supervisor follows.
fn check_trust(dir: &Path) -> Result<(), StateDirError> {
    let own = nix::unistd::geteuid().as_raw();
    let made = ["attempts", "spool", "keeper"].map(|name| dir.join(name));
    for path in std::iter::once(dir.to_owned()).chain(made) {
        let found = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(|e| failed("look at", &path, e))?,
        };
        if !found.is_dir() {
            return Err(failed(
                "work in",
                &path,
                io::ErrorKind::NotADirectory.into(),
            ));
        }
        if let Some((reason, way_out)) = untrusted_reason(&found, own, &path) {
            let dir = dir.to_owned();
            return Err(StateDirError::Untrusted {
                dir,
                reason,
                way_out,
            });
        }
    }
    Ok(())
}

/// Whether a supervisor uses the directory, running or stopped.
pub fn is_taken(dir: &Path) -> bool {
    let file = File::open(dir.join(LOCK)).ok();
    let found = file.and_then(|file| lock::found(&file).ok());
    found.is_some_and(|it| it.l_type != libc::F_UNLCK as libc::c_short)
}

/// The lock ends with the supervisor even if a child of it lives on.
fn take_lock(dir: &Path, file: &File) -> Result<(), StateDirError> {
    match fcntl(file, FcntlArg::F_SETLK(&lock::whole())) {
        Ok(_) => Ok(()),
        Err(Errno::EACCES | Errno::EAGAIN) => Err(StateDirError::Taken {
            dir: dir.to_owned(),
            pid: holder(file).map_or("unknown".to_owned(), |pid| pid.to_string()),
        }),
        Err(e) => Err(failed("lock", &dir.join(LOCK), e.into())),
    }
}

fn open_lock(dir: &Path) -> Result<File, StateDirError> {
    let path = dir.join(LOCK);
    open_in_place(&path).map_err(|e| failed("open", &path, e))
}

/// The pid of the lock's holder; `None` if the lock was just released, or the holder is in another pid
/// namespace.
fn holder(file: &File) -> Option<i32> {
    let lock = lock::found(file).ok()?;
    (lock.l_pid > 0).then_some(lock.l_pid)
}

fn remove(path: &Path) -> Result<(), StateDirError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path, e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StateDirError {
    StateDirError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        drop(state.listen(None).unwrap());
        fs::write(dir.path().join(NEW_SOCKET), b"").unwrap();
        let listener = state.listen(None).unwrap();
        UnixStream::connect(dir.path().join(SOCKET)).unwrap();
        listener.accept().unwrap();
        state.unlisten().unwrap();
        assert!(!dir.path().join(SOCKET).exists());
    }

    #[test]
    fn a_directory_that_others_can_write_or_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let chmod = |mode| fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        for mode in [0o770, 0o702, 0o1777] {
            chmod(mode);
            let text = StateDir::open(dir.path()).unwrap_err().to_string();
            assert!(text.contains("`chmod go-w /"), "{mode:o}: {text}");
        }
        chmod(0o700);
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("attempts")).unwrap();
        assert!(StateDir::open(dir.path()).is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("x".repeat(120))).unwrap();
        let text = state.listen(None).unwrap_err().to_string();
        assert!(text.contains("shorter --state-dir"), "{text}");
    }
}
