//! The store: a durable log of records in one file. Only this module uses redb.
//!
//! Five tables. `log` holds every [`LogEntry`] record by its number, `snapshot` and `snapshot_part` the last two states by
//! the number of their last record, `meta` the format and the cluster's id, `environment` the variables of each remembered
//! step by its id: their values, which may be secrets, are nowhere else and are deleted with the step. Every value but the
//! parts of a snapshot, which have one checksum in all, is a line of text, a checksum and JSON (see [`encoding`]), because
//! redb returns a flipped byte without an error and because a readable log helps a repair.
//!
//! **Contract**: once [`Store::append`] has returned, the records survive the death of the process and of the machine.
//! A store that is damaged, or has lost records, does not open: the error names file, table and record.
//!
//! The engine's thread drives [`Store`]; followers of events read through [`StoreReader`] on their own threads;
//! [`StoreHistory`] reads the store of a stopped coordinator.

mod encoding;
mod error;
mod file_checksum;
mod fold;
mod guard;
mod history;
mod journal;
mod lock;
mod open;
mod read;
mod reserve;
mod sizes;
mod snapshot;
mod tables;
#[cfg(test)]
mod tests;
mod tip;
mod transfer;

use std::path::PathBuf;
use std::sync::Arc;

use coordinator_core::{LogEntry, RecoveryCause, State, StoredState};
use redb::{Database, ReadableTable};
use serde::Serialize;
use sluice_common::environment::Environment;
use sluice_common::id::ClusterId;
use sluice_common::time::Time;

pub use encoding::Corruption;
pub use error::StoreError;
pub use history::{CheckedStore, HistoryError, StoreHistory};
pub(crate) use journal::JOURNAL_FILE;
pub use lock::DirLock;
pub use read::{Event, LogPage, ReadError, StoreReader};
pub use snapshot::{SealedSnapshot, Snapshot, SnapshotPart};
pub use transfer::{ExportError, StoreBuilder, StorePart};

use crate::seal::Seal;
use fold::{JournalRecords, fold};
use journal::{Journal, StoredRecord};
use reserve::Reserve;
use sizes::LogSizes;
use tables::{LOG, MARK, META, RecoveryMark, StepVariables};
use tip::TipFile;

/// Least number of records between two snapshots. A restart reads as many after a snapshot in well below a second.
pub const SNAPSHOT_EVERY: u64 = 10_000;

/// A snapshot takes seconds if there are 100,000 steps. Then it waits until the records come to this part of its size, so
/// that all snapshots together cost a small multiple of what is written anyway.
const SNAPSHOT_SHARE: u64 = 4;

/// Most records between two snapshots: a restart reads them in a few seconds.
const MOST_BETWEEN: u64 = 10 * SNAPSHOT_EVERY;

/// Bytes of records between two snapshots, or the size of the last snapshot if that is more: large records are dropped
/// as soon as many small ones, and snapshots cost no more than what they replace.
const SNAPSHOT_EVERY_BYTES: u64 = 64 << 20;

/// Bytes of records kept for followers, whatever their number, besides those since the older snapshot.
const RETENTION_BYTES: u64 = 512 << 20;

/// Most records dropped with one snapshot. Above [`MOST_BETWEEN`], so that a `retention` lowered from millions to thousands
/// is reached soon.
const MOST_DROPPED: u64 = 2 * MOST_BETWEEN;

/// Default number of records kept for followers of events: at about 500 bytes each, 50 MB of disk and several hours of
/// a busy cluster.
pub const DEFAULT_RETENTION: u64 = 100_000;

/// Result of reading the store at a start.
#[derive(Debug)]
pub struct Recovered {
    /// Cluster that this store belongs to.
    pub cluster: ClusterId,
    /// State after all records.
    pub state: State,
    /// Number of the last record; 0 if there is none.
    pub last_seq: u64,
    /// Time of the last record. The clock must not start before it.
    pub last_at: Time,
    /// Why hosts may know more than the store, if it was restored or made anew.
    pub recovers: Option<RecoveryCause>,
}

/// An open store; its owner is the only writer.
#[derive(Debug)]
pub struct Store {
    db: Arc<Database>,
    file: PathBuf,
    tip: TipFile,
    /// `None` if a test runs in memory: then all records go to the tables at once.
    journal: Option<Journal>,
    unfolded: JournalRecords,
    retention: u64,
    last_seq: u64,
    last_at: Time,
    last_snapshot: u64,
    /// Size of the last snapshot.
    snapshot_bytes: u64,
    /// Bytes of records since the last snapshot.
    since_snapshot: u64,
    /// Sizes of the parts of the log.
    sizes: LogSizes,
    seal: Seal,
    /// `None` if a test runs in memory.
    reserve: Option<Reserve>,
    /// Released when the store is dropped; `None` if a test runs in memory.
    _lock: Option<DirLock>,
}

impl Store {
    /// Sets how many records are kept for followers, from the next snapshot on.
    pub fn keep(&mut self, retention: u64) {
        self.retention = retention;
    }

    /// Returns a reader for other threads.
    pub fn reader(&self) -> StoreReader {
        StoreReader::new(
            Arc::clone(&self.db),
            self.file.clone(),
            self.unfolded.clone(),
        )
    }

    /// Returns the seal of this data directory.
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Number of the last record; 0 if there is none.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Makes `records` durable in one commit, and returns the JSON of each. After an error their state is unknown, so the
    /// process must end and open the store again.
    ///
    /// # Errors
    /// If a record does not follow the last one, or the commit failed.
    pub fn append(&mut self, records: &[LogEntry]) -> Result<Vec<String>, StoreError> {
        let Some(last) = records.last() else {
            return Ok(Vec::new());
        };
        self.check_order(records)?;
        let stored = records.iter().map(StoredRecord::of).map(Arc::new);
        let stored: Vec<_> = stored.collect();
        let lines = stored.iter().map(|record| encoding::json_of(&record.line));
        let lines = lines.collect();
        for record in &stored {
            self.sizes.add(record.seq, record.bytes());
            self.since_snapshot += record.bytes();
        }
        self.write(stored)?;
        self.last_seq = last.seq;
        self.last_at = last.at;
        // After the commit: the tip may lag behind the log but never run ahead of it.
        self.tip.set(last.seq)?;
        Ok(lines)
    }

    /// Makes a record of an admin's command durable while no coordinator runs. A pending recovery stays pending for the
    /// next start.
    ///
    /// # Errors
    /// The same as for [`Store::append`].
    pub fn append_offline(
        &mut self,
        record: &LogEntry,
        recovers: Option<RecoveryCause>,
    ) -> Result<(), StoreError> {
        // Before the record: a mark ahead of the log is overtaken by the record, and one behind it is void.
        if let Some(why) = recovers {
            let mark = RecoveryMark {
                why,
                seq: record.seq,
            };
            self.commit_mark(mark)
                .map_err(|source| StoreError::commit(&self.file, source))?;
        }
        self.append(std::slice::from_ref(record)).map(drop)
    }

    fn commit_mark(&self, mark: RecoveryMark) -> Result<(), redb::Error> {
        let txn = self.db.begin_write()?;
        txn.open_table(META)?
            .insert(MARK, encoding::seal(&mark).as_slice())?;
        Ok(txn.commit()?)
    }

    fn check_order(&self, records: &[LogEntry]) -> Result<(), StoreError> {
        let places = self.last_seq + 1..;
        match places
            .zip(records)
            .find(|(place, record)| record.seq != *place)
        {
            None => Ok(()),
            Some((expected, record)) => Err(StoreError::OutOfOrder {
                expected,
                found: record.seq,
            }),
        }
    }

    /// Makes records durable: in the journal, or in the tables with all that is in it, if they find no room there.
    fn write(&mut self, records: Vec<Arc<StoredRecord>>) -> Result<(), StoreError> {
        let written = match &mut self.journal {
            None => false,
            Some(journal) => {
                let written = journal.append(&records);
                written.map_err(|source| StoreError::io("write", journal.path(), source))?
            }
        };
        if !written {
            return self.fold(&records);
        }
        self.unfolded.add(records);
        Ok(())
    }

    /// Moves the records of the journal to the tables, and `more` with them.
    fn fold(&mut self, more: &[Arc<StoredRecord>]) -> Result<(), StoreError> {
        let commit = || -> Result<(), redb::Error> {
            let txn = self.db.begin_write()?;
            fold(&txn, &self.unfolded.all())?;
            fold(&txn, more)?;
            Ok(txn.commit()?)
        };
        commit().map_err(|source| StoreError::commit(&self.file, source))?;
        self.note_folded();
        Ok(())
    }

    fn note_folded(&mut self) {
        self.unfolded.clear();
        if let Some(journal) = &mut self.journal {
            journal.rewind();
        }
        self.keep_reserve();
    }

    fn keep_reserve(&mut self) {
        if let Some(reserve) = &mut self.reserve {
            reserve.keep();
        }
    }

    /// Closes the store. The next start recognises the file by its checksum. If a reader is still at work the file
    /// stays open until the process ends, and the next start checks it as after a crash.
    ///
    /// # Errors
    /// If the file or its tip cannot be read or written; everything appended is durable nevertheless.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.fold(&[])?;
        let Some(db) = Arc::into_inner(self.db) else {
            return Ok(());
        };
        drop(db);
        self.tip.close(self.last_seq, &self.file)
    }

    /// Whether enough was written since the last snapshot.
    pub fn snapshot_due(&self) -> bool {
        let records = self.last_seq - self.last_snapshot;
        let share = self.since_snapshot >= self.snapshot_bytes / SNAPSHOT_SHARE;
        (records >= SNAPSHOT_EVERY && share)
            || records >= MOST_BETWEEN
            || self.since_snapshot >= SNAPSHOT_EVERY_BYTES.max(self.snapshot_bytes)
    }

    /// Begins a snapshot of `state`, which must be the state after everything appended so far. It is sealed elsewhere,
    /// while the log grows, and stored by [`Store::add_part`] and [`Store::add_snapshot`].
    pub fn begin_snapshot(&mut self, state: &State) -> Snapshot<StoredState> {
        self.last_snapshot = self.last_seq;
        self.since_snapshot = 0;
        Snapshot {
            seq: self.last_seq,
            at: self.last_at,
            state: state.to_stored(),
        }
    }

    /// Stores a part of a snapshot.
    ///
    /// # Errors
    /// If the commit failed; the log is intact nevertheless.
    pub fn add_part(&mut self, part: &SnapshotPart) -> Result<(), StoreError> {
        let stored = || -> Result<(), redb::Error> {
            let txn = self.db.begin_write()?;
            snapshot::add_part(&txn, part)?;
            Ok(txn.commit()?)
        };
        stored().map_err(|source| StoreError::commit(&self.file, source))?;
        self.keep_reserve();
        Ok(())
    }

    /// Stores a snapshot whose parts are stored, and drops the part of the log that neither a restart nor a follower of events needs.
    ///
    /// # Errors
    /// If the commit failed; the log is intact nevertheless.
    pub fn add_snapshot(&mut self, sealed: &SealedSnapshot) -> Result<(), StoreError> {
        let dropped = self
            .commit_snapshot(sealed)
            .map_err(|source| StoreError::commit(&self.file, source))?;
        self.note_folded();
        self.sizes.drop_until(dropped);
        self.snapshot_bytes = sealed.bytes;
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn snapshot(&mut self, state: &State) -> Result<(), StoreError> {
        let (parts, sealed) = self.begin_snapshot(state).small_parts();
        parts.iter().try_for_each(|part| self.add_part(part))?;
        self.add_snapshot(&sealed)
    }

    /// Commits a snapshot, and returns the last record that was dropped.
    fn commit_snapshot(&self, sealed: &SealedSnapshot) -> Result<u64, redb::Error> {
        let txn = self.db.begin_write()?;
        fold(&txn, &self.unfolded.all())?;
        let dropped = {
            let oldest = snapshot::add_head(&txn, sealed)?;
            let mut log = txn.open_table(LOG)?;
            let first = log.first()?.map_or(0, |(seq, _)| seq.value());
            let heavy = self.sizes.beyond(RETENTION_BYTES);
            let cut = cut(first, oldest, self.last_seq, self.retention, heavy);
            log.retain_in(..=cut, |_, _| false)?;
            cut
        };
        txn.commit()?;
        Ok(dropped)
    }
}

/// Returns the last record to drop from a log that begins at `first`, if a restart begins at `oldest` and everything up
/// to `heavy` is too large to keep. At most [`MOST_DROPPED`] go at once, because the engine waits meanwhile; the rest
/// goes with the next snapshots.
fn cut(first: u64, oldest: u64, last: u64, retention: u64, heavy: u64) -> u64 {
    let unwanted = oldest.min(last.saturating_sub(retention.max(1)).max(heavy));
    unwanted.min(first.saturating_add(MOST_DROPPED - 1))
}

/// Returns a value as stored text with its checksum.
pub(crate) fn seal_line(value: &impl Serialize) -> Vec<u8> {
    encoding::seal(value)
}

/// Returns the JSON of a stored text whose checksum is right.
pub(crate) fn unseal_line(text: &[u8]) -> Result<&[u8], Corruption> {
    encoding::unseal(text)
}

/// Parses the record in a stored text.
pub(crate) fn parse_record(text: &[u8]) -> Result<LogEntry, Corruption> {
    encoding::parse(text)
}

/// Parses a step and its variables in a stored text.
pub(crate) fn parse_variables(text: &[u8]) -> Result<(String, Environment), Corruption> {
    let StepVariables { step, env } = encoding::parse(text)?;
    Ok((step, env))
}

/// Parses a snapshot in a stored text: its last record, its time, and the state.
pub(crate) fn parse_snapshot(text: &[u8]) -> Result<(u64, Time, State), Corruption> {
    let snapshot: Snapshot<State> = encoding::parse(text)?;
    match snapshot.state.seq() == snapshot.seq {
        true => Ok((snapshot.seq, snapshot.at, snapshot.state)),
        false => Err(Corruption::Misplaced {
            seq: snapshot.state.seq(),
        }),
    }
}
