//! File locks by which a process shows that it lives. They belong to the process and not to the open file, so
//! its forks do not share them.

use std::fs::File;

use nix::fcntl::{FcntlArg, fcntl};

/// A write lock on a whole file.
pub(crate) fn whole() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// The lock of another process that conflicts with a write lock; of type `F_UNLCK` if there is none. A holder
/// in another pid namespace has no pid here.
///
/// # Errors
/// If the file system has no locks.
pub(crate) fn found(file: &File) -> nix::Result<libc::flock> {
    let mut lock = whole();
    fcntl(file, FcntlArg::F_GETLK(&mut lock))?;
    Ok(lock)
}
