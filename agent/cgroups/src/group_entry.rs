//! Entry of an attempt's first process into the attempt's control groups. If the kernel supports it,
//! `clone3` creates the process inside the group of version 2; the process then enters the groups of version
//! 1 by itself, before anything else.
//!
//! Both avoid a pause of the whole host: if one process moves another, the kernel blocks every fork and exit
//! until all processors have noticed, which takes ten milliseconds and more. A thread that moves itself
//! blocks nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// The groups that an attempt's first process enters.
#[derive(Debug, Default)]
pub struct GroupEntry {
    /// The open group of version 2 for `clone3`, and the `cgroup.procs` file by which a process enters if
    /// `clone3` cannot do it.
    pub clone_target: Option<(File, PathBuf)>,
    /// `tasks` files of version 1. The thread that writes to one enters that group.
    pub files: Vec<PathBuf>,
}

impl GroupEntry {
    /// The group into which `clone3` starts a process.
    pub fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        self.clone_target.as_ref().map(|(group, _)| group.as_fd())
    }

    /// Moves the calling process, which must have one thread, into the groups.
    ///
    /// # Errors
    /// If the kernel rejects it; the message names the file.
    pub fn enter(&self, was_cloned_inside: bool) -> Result<(), String> {
        let outside = self.clone_target.iter().filter(|_| !was_cloned_inside);
        let files = outside.map(|(_, procs)| procs).chain(&self.files);
        for path in files {
            enter_by(path)
                .map_err(|e| format!("the host could not write {}: {e}", path.display()))?;
        }
        Ok(())
    }
}

/// Writes 0, which means the writing process.
fn enter_by(path: &PathBuf) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(b"0")
}
