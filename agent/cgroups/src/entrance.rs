//! The way into an attempt's groups for its first process. It is born in the group of version 2 where the kernel can do
//! that, and walks into those of version 1 by itself before it does anything else.
//!
//! Both spare the host a pause: for a process that another moves, the kernel holds up every fork and exit until all
//! processors have seen it, which takes ten milliseconds and more. A thread that moves itself holds up nobody.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// One attempt's entrance.
#[derive(Debug, Default)]
pub struct Entrance {
    /// The group of version 2, and the file by which it is entered where nobody can be born in it.
    pub birthplace: Option<(File, PathBuf)>,
    /// Files of version 1 by which the thread that writes them enters.
    pub files: Vec<PathBuf>,
}

impl Entrance {
    /// Where to be born.
    pub fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.birthplace.as_ref().map(|(group, _)| group.as_fd())
    }

    /// Brings the calling process in; it must have one thread.
    ///
    /// # Errors
    /// Where the kernel refuses: the sentence names the file.
    pub fn enter(&self, was_born_inside: bool) -> Result<(), String> {
        let outside = self.birthplace.iter().filter(|_| !was_born_inside);
        let files = outside.map(|(_, procs)| procs).chain(&self.files);
        for path in files {
            enter_by(path)
                .map_err(|e| format!("the host could not write {}: {e}", path.display()))?;
        }
        Ok(())
    }
}

/// Zero is whoever writes it.
fn enter_by(path: &PathBuf) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(b"0")
}
