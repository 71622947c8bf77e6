//! The supervisor's directory: one supervisor at a time holds its lock, and whoever holds it owns the socket in it.

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

/// The socket's name in the directory.
pub const SOCKET: &str = "supervisor.sock";

const NEW_SOCKET: &str = "supervisor.sock.new";
const LOCK: &str = "supervisor.lock";

/// Why the directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// Somebody else works there.
    #[error(
        "another supervisor (pid {pid}) works in {}: stop it first, or give this one a directory of its own",
        dir.display()
    )]
    Taken {
        /// Where.
        dir: PathBuf,
        /// Who, as far as it is known.
        pid: String,
    },
    /// Somebody else may have put something there.
    #[error("cannot work in {}: {reason}, and could lead this supervisor astray: {way_out}", dir.display())]
    Untrusted {
        /// Where.
        dir: PathBuf,
        /// What gives others a hand in it.
        reason: String,
        /// What to do.
        way_out: String,
    },
    /// The socket cannot be bound at so long a path.
    #[error("cannot make socket {}: choose a shorter --state-dir if its path is longer than 107 bytes", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something else failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The directory, locked for as long as this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    lock: File,
}

impl StateDir {
    /// Makes the directory if need be, and locks it.
    ///
    /// # Errors
    /// Where another supervisor holds it or it cannot be made.
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        let path = prepare(path)?;
        let lock = open_lock(&path)?;
        Self::locked(path, lock)
    }

    /// Takes over the lock that this process held before it became this program: opened once more and closed, it would
    /// be lost.
    ///
    /// # Errors
    /// Where it is not the lock, or another supervisor holds it.
    pub fn take_over(path: &Path, lock: OwnedFd) -> Result<Self, StateDirError> {
        let path = prepare(path)?;
        Self::locked(path, lock.into())
    }

    fn locked(path: PathBuf, file: File) -> Result<Self, StateDirError> {
        take_lock(&path, &file)?;
        Ok(Self { path, lock: file })
    }

    /// Whether one could be opened there now, but for its lock.
    ///
    /// # Errors
    /// Where it could not.
    pub fn check(path: &Path) -> Result<(), StateDirError> {
        prepare(path).map(drop)
    }

    /// What [`StateDir::take_over`] needs.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

/// Makes the directory if need be; its absolute path.
fn prepare(path: &Path) -> Result<PathBuf, StateDirError> {
    // Others may pass through: an agent of another user has business with the socket and with output.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(path)
        .map_err(|e| failed("make directory", path, e))?;
    // Attempts get absolute paths from it, and have other working directories.
    let path = fs::canonicalize(path).map_err(|e| failed("resolve", path, e))?;
    check_trust(&path)?;
    Ok(path)
}

impl StateDir {
    /// Where it is; absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Binds the socket. It takes its name last, so whoever sees that name finds a supervisor that listens.
    ///
    /// # Errors
    /// Where it cannot be bound.
    pub fn listen(&self, agent_uid: Option<u32>) -> Result<UnixListener, StateDirError> {
        let (new, path) = (self.path.join(NEW_SOCKET), self.path.join(SOCKET));
        // Whoever left it is dead: the lock is ours.
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

    /// Takes the socket's name away, so that nobody waits on a supervisor that leaves.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub fn unlisten(&self) -> Result<(), StateDirError> {
        remove(&self.path.join(SOCKET))
    }
}

/// Who may write in the directory, or in one that an earlier supervisor made there, could put a link in the place of a
/// file that this one is about to make.
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

/// Whether a supervisor works there, one that is stopped included.
pub fn is_taken(dir: &Path) -> bool {
    let file = File::open(dir.join(LOCK)).ok();
    let found = file.and_then(|file| lock::found(&file).ok());
    found.is_some_and(|it| it.l_type != libc::F_UNLCK as libc::c_short)
}

/// It ends with the supervisor even while a child of it lives on.
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

/// Who holds the lock; unknown where it was let go just now, or is held from another container.
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
