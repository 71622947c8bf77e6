//! Why the table cannot be opened.

use std::io;
use std::path::PathBuf;

use crate::atomic_file::FileError;
use crate::groups::leftovers::StillRunningError;
use crate::process::BootIdError;
use crate::seal::SealError;
use crate::spool::SpoolError;
use crate::uids::UidError;

/// Why the table cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The boot id cannot be read.
    #[error("cannot read the boot id of this host")]
    BootId(#[from] BootIdError),
    /// The spool cannot be used.
    #[error("cannot use the spool")]
    Spool(#[from] SpoolError),
    /// The pinned lease key cannot be used.
    #[error("cannot use the lease key")]
    Seal(#[from] SealError),
    /// The name of the groups cannot be read.
    #[error("cannot read the name of the attempts' control groups")]
    GroupName(#[from] FileError),
    /// Processes of an earlier supervisor of this directory do not die.
    #[error("cannot start while attempts of an earlier supervisor run")]
    Leftovers(#[from] StillRunningError),
    /// User ids cannot be assigned.
    #[error("cannot give attempts user ids of their own")]
    Uids(#[from] UidError),
    /// Processes cannot be started.
    #[error("cannot prepare to start attempts")]
    Spawner(#[source] io::Error),
    /// The directory of attempts cannot be made.
    #[error("cannot make {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// The process has several threads, so a fork would be unsound.
    #[error("this process has {threads} threads and must have one")]
    Threads { threads: usize },
}
