//! Why a table could not be opened.

use std::io;
use std::path::PathBuf;

use crate::atomic_file::FileError;
use crate::groups::leftovers::StillRunningError;
use crate::process::BootIdError;
use crate::seal::SealError;
use crate::spool::SpoolError;
use crate::uids::UidError;

/// Why the supervisor could not take up its work.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The kernel does not name the boot.
    #[error("cannot tell one boot of this host from another")]
    BootId(#[from] BootIdError),
    /// The spool is unusable.
    #[error("cannot use the spool")]
    Spool(#[from] SpoolError),
    /// Whose leases count is not known.
    #[error("cannot tell whose leases count")]
    Seal(#[from] SealError),
    /// The groups of attempts have no name.
    #[error("cannot tell what the groups of attempts are called")]
    GroupName(#[from] FileError),
    /// What an earlier supervisor of this directory ran does not die.
    #[error("cannot say that this host runs nothing")]
    Leftovers(#[from] StillRunningError),
    /// Attempts could be given no user ids.
    #[error("cannot give attempts user ids of their own")]
    Uids(#[from] UidError),
    /// Spawning would fail.
    #[error("cannot prepare to start attempts")]
    Spawner(#[source] io::Error),
    /// The attempts' directories cannot be made.
    #[error("cannot make {}", path.display())]
    Directory {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A fork of several threads would be unsound.
    #[error("this process has {threads} threads and must have one")]
    Threads {
        /// How many it has.
        threads: usize,
    },
}
