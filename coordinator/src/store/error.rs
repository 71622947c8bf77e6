//! Errors of the store, with what the admin has to do.

use std::io;
use std::path::{Path, PathBuf};

use super::encoding::Corruption;

/// Advice about a damaged store of any kind: nothing may be guessed.
const WAY_OUT: &str = "restore the data directory from a copy, or move it away to begin a new cluster (hosts stop \
                       what still runs when its lease passes)";

/// Why the store cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory could not be made, read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another coordinator uses the directory.
    #[error(
        "the data directory {} is in use by another coordinator ({holder}): stop it, or choose another directory with --data-dir",
        dir.display()
    )]
    InUse {
        dir: PathBuf,
        /// Holder of the lock, such as `pid 4711`.
        holder: String,
    },
    /// The file as a whole is damaged.
    #[error("the store {} is damaged: {what}; {WAY_OUT}", file.display())]
    DamagedFile { file: PathBuf, what: String },
    /// One value is damaged.
    #[error("the store {} is damaged: table `{table}`, record {record}: {damage}; {WAY_OUT}", file.display())]
    DamagedRecord {
        file: PathBuf,
        table: &'static str,
        record: String,
        damage: Corruption,
    },
    /// The log ends before a record that was committed.
    #[error(
        "the store {} is damaged or an older copy: table `log` ends at record {found}, and record {committed} was committed; \
         put the whole file back, or remove {} to go on from record {found} and lose what came after it",
        file.display(), tip.display()
    )]
    Lost {
        file: PathBuf,
        /// Path of the tip file.
        tip: PathBuf,
        /// Last record in the log.
        found: u64,
        /// Last record committed.
        committed: u64,
    },
    /// The journal goes on beyond a record that is missing.
    #[error(
        "record {missing} is neither in the store {} nor in its journal {}, and later ones are: one of them is damaged or an older copy; \
         put both back as they were at one time, or remove the journal to go on from record {} and lose what came after it",
        file.display(), journal.display(), missing - 1
    )]
    Gap {
        file: PathBuf,
        journal: PathBuf,
        /// Number of the record.
        missing: u64,
    },
    /// Another version wrote the store.
    #[error(
        "the store {} has format {found}, and this version reads format {known}: run the version of the coordinator that wrote it",
        file.display()
    )]
    OtherFormat {
        file: PathBuf,
        found: u32,
        known: u32,
    },
    /// A commit failed; whether it took place is unknown until the store is opened again.
    #[error("cannot commit to the store {}", file.display())]
    Commit {
        file: PathBuf,
        source: Box<redb::Error>,
    },
    /// A defect: a record was appended out of order.
    #[error("record {found} was offered to the log in place of record {expected}")]
    OutOfOrder {
        /// The next number.
        expected: u64,
        /// The record's number.
        found: u64,
    },
    /// The key of the seal on warrants cannot be used.
    #[error(transparent)]
    Seal(#[from] crate::seal::SealError),
    /// No random bytes for a new cluster's id.
    #[error("cannot generate an id for a new cluster: {0}")]
    Random(String),
}

impl StoreError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        StoreError::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn commit(file: &Path, source: redb::Error) -> Self {
        StoreError::Commit {
            file: file.to_owned(),
            source: Box::new(source),
        }
    }

    pub(super) fn damaged(file: &Path, what: impl ToString) -> Self {
        StoreError::DamagedFile {
            file: file.to_owned(),
            what: what.to_string(),
        }
    }

    pub(super) fn damaged_record(
        file: &Path,
        table: &'static str,
        record: impl ToString,
        damage: Corruption,
    ) -> Self {
        StoreError::DamagedRecord {
            file: file.to_owned(),
            table,
            record: record.to_string(),
            damage,
        }
    }

    /// Maps redb's errors while a store is opened: disk errors stay, everything else is damage.
    pub(super) fn opening(file: &Path, error: redb::Error) -> Self {
        match error {
            redb::Error::Io(source)
                if !matches!(
                    source.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
                ) =>
            {
                StoreError::io("open", file, source)
            }
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse {
                dir: file.parent().unwrap_or(file).to_owned(),
                holder: "another process has its store open".to_owned(),
            },
            other => StoreError::damaged(file, other),
        }
    }
}
