//! Exports a store as its stored texts, for a backup, and builds one from them, for a restore. The texts keep their
//! checksums, so they are the same in a backup.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coordinator_core::RecoveryCause;
use redb::{Database, ReadableDatabase, ReadableTable, WriteTransaction};
use sluice_common::id::ClusterId;

use super::fold::ends;
use super::history::{StoreHistory, look};
use super::journal::StoredRecord;
use super::open::{builder, keep_private, read_meta};
use super::read::StoreReader;
use super::snapshot::text_of;
use super::tables::{ENVIRONMENT, LOG, MARK, META, RecoveryMark, SNAPSHOT, make_tables, table};
use super::{StoreError, encoding};

/// One stored text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePart<'a> {
    /// The newest snapshot.
    Snapshot {
        /// Last record in it.
        seq: u64,
        /// Checksum and JSON.
        text: &'a [u8],
    },
    /// The variables of a step.
    Variables {
        step: &'a str,
        /// Checksum and JSON.
        text: &'a [u8],
    },
    /// A record of the log.
    Record {
        seq: u64,
        /// Checksum and JSON.
        text: &'a [u8],
    },
}

/// Why a store was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output cannot be written.
    #[error(transparent)]
    Sink(#[from] io::Error),
}

type PartSink<'a> = &'a mut dyn FnMut(StorePart<'_>) -> io::Result<()>;

impl StoreReader {
    /// Exports the last committed state: the newest snapshot, then the log, then the variables of steps.
    ///
    /// # Errors
    /// If it cannot be read, or `take` fails.
    pub fn export(&self, take: PartSink<'_>) -> Result<(), ExportError> {
        let unfolded = self.unfolded().all();
        export(self.db(), self.file(), &unfolded, take)
    }

    /// Returns the cluster of the store.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn cluster(&self) -> Result<ClusterId, StoreError> {
        let txn = self.db().begin_read();
        let txn = txn.map_err(|error| StoreError::opening(self.file(), error.into()))?;
        read_meta(&txn, self.file())
    }
}

impl StoreHistory {
    /// Exports the store of a stopped coordinator.
    ///
    /// # Errors
    /// The same as for a running one.
    pub fn export(&self, take: PartSink<'_>) -> Result<(), ExportError> {
        let mut sink = Ok(());
        let taken = look(self.file(), |file| {
            match export(self.db(), file, &[], take) {
                Err(ExportError::Store(error)) => Err(error),
                Err(ExportError::Sink(error)) => {
                    sink = Err(error);
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        });
        taken?;
        Ok(sink?)
    }
}

/// Exports the tables, with the records that were not in them before.
fn export(
    db: &Database,
    file: &Path,
    unfolded: &[Arc<StoredRecord>],
    take: PartSink<'_>,
) -> Result<(), ExportError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let txn = db.begin_read();
    let txn = txn.map_err(|error| StoreError::opening(file, error.into()))?;
    let snapshots = table(&txn, file, SNAPSHOT)?;
    if let Some((seq, head)) = snapshots.last().map_err(opening)? {
        let text = text_of(&txn, file, (seq.value(), head.value()))?;
        take(StorePart::Snapshot {
            seq: seq.value(),
            text: &text,
        })?;
    }
    let log = table(&txn, file, LOG)?;
    for entry in log.iter().map_err(opening)? {
        let (seq, text) = entry.map_err(opening)?;
        let (seq, text) = (seq.value(), text.value());
        take(StorePart::Record { seq, text })?;
    }
    let last = ends(&txn, file, LOG)?.map_or(0, |(_, last)| last);
    let mut changed: BTreeMap<&str, Option<&[u8]>> = BTreeMap::new();
    for record in unfolded.iter().filter(|record| record.seq > last) {
        let (seq, text) = (record.seq, record.line.as_slice());
        take(StorePart::Record { seq, text })?;
        if let Some((key, text)) = &record.variables {
            changed.insert(key, Some(text));
        }
        changed.extend(record.dropped.iter().map(|key| (key.as_str(), None)));
    }
    let variables = table(&txn, file, ENVIRONMENT)?;
    for entry in variables.iter().map_err(opening)? {
        let (step, text) = entry.map_err(opening)?;
        let (step, text) = (step.value(), text.value());
        if !changed.contains_key(step) {
            take(StorePart::Variables { step, text })?;
        }
    }
    for (step, text) in changed {
        if let Some(text) = text {
            take(StorePart::Variables { step, text })?;
        }
    }
    Ok(())
}

/// Builds a store; nothing of it exists before it is finished.
pub struct StoreBuilder {
    db: Database,
    txn: WriteTransaction,
    file: PathBuf,
    last: u64,
}

impl fmt::Debug for StoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        f.debug_struct("Draft")
            .field("file", file)
            .finish_non_exhaustive()
    }
}

impl StoreBuilder {
    /// Begins a store in `file`, replacing an existing one.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(file: &Path, cluster: &ClusterId) -> Result<Self, StoreError> {
        match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", file, e));
            }
            Ok(()) | Err(_) => {}
        }
        let opening = |error: redb::Error| StoreError::opening(file, error);
        let db = builder().create(file).map_err(|e| opening(e.into()))?;
        keep_private(file)?;
        make_tables(&db, cluster, None).map_err(|source| StoreError::commit(file, source))?;
        let txn = db.begin_write().map_err(|e| opening(e.into()))?;
        Ok(Self {
            db,
            txn,
            file: file.to_owned(),
            last: 0,
        })
    }

    /// Adds a text.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, piece: StorePart<'_>) -> Result<(), StoreError> {
        let txn = &self.txn;
        let numbered = |definition, seq, text| -> Result<u64, redb::Error> {
            txn.open_table(definition)?.insert(seq, text)?;
            Ok(seq)
        };
        let named = |step, text| -> Result<u64, redb::Error> {
            txn.open_table(ENVIRONMENT)?.insert(step, text)?;
            Ok(0)
        };
        let added = match piece {
            StorePart::Snapshot { seq, text } => numbered(SNAPSHOT, seq, text),
            StorePart::Record { seq, text } => numbered(LOG, seq, text),
            StorePart::Variables { step, text } => named(step, text),
        };
        let seq = added.map_err(|source| StoreError::commit(&self.file, source))?;
        self.last = self.last.max(seq);
        Ok(())
    }

    /// Makes the store durable. The next coordinator on it begins a recovery.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self, why: RecoveryCause) -> Result<(), StoreError> {
        let Self {
            db,
            txn,
            file,
            last,
        } = self;
        let mark = RecoveryMark { why, seq: last };
        let commit = || -> Result<(), redb::Error> {
            txn.open_table(META)?
                .insert(MARK, encoding::seal(&mark).as_slice())?;
            Ok(txn.commit()?)
        };
        commit().map_err(|source| StoreError::commit(&file, source))?;
        drop(db);
        let synced = File::open(&file).and_then(|file| file.sync_all());
        synced.map_err(|source| StoreError::io("sync", &file, source))
    }
}
