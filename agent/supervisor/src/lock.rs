//! Locks on files, by which a process shows that it lives: they are the process's and not the open file's, so children that
//! are not yet another program do not share them.

use std::fs::File;

use nix::fcntl::{FcntlArg, fcntl};

/// A lock for writing on all of a file.
pub(crate) fn whole() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// The lock of another process that one for writing would wait for; of kind `F_UNLCK` if there is none. A holder in another
/// container has no number here.
///
/// # Errors
/// If the file system has no locks.
pub(crate) fn found(file: &File) -> nix::Result<libc::flock> {
    let mut lock = whole();
    fcntl(file, FcntlArg::F_GETLK(&mut lock))?;
    Ok(lock)
}
