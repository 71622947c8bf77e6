//! The log of what happened, kept in one file: the only room that knows redb.
//!
//! Four tables. `log` holds every [`Stamped`] record by its number, `snapshot` the last two states by the number of
//! the last record in them, `meta` the format and the cluster's id, `environment` the variables of each remembered step
//! by its id: their values, which may be secrets, stand nowhere else, and go when the step is forgotten. Every value is a line of text, a checksum and JSON
//! (see [`line`]), because redb gives back a flipped byte without a word and because a log that a person can read is
//! half of a repair.
//!
//! **Contract**: once [`Store::append`] has returned, the records survive the death of the process and of the machine.
//! A store that is damaged, or that has lost records it once had, does not open: the error names file, table and record.
//!
//! The engine's thread drives [`Store`]; followers of events read through [`StoreReader`] on threads of their own;
//! [`Past`] looks at a store in which no coordinator runs.
//! What a record means is the core's business.

mod error;
mod guard;
mod line;
mod lock;
mod open;
mod past;
mod read;
mod reserve;
mod sizes;
#[cfg(test)]
mod tests;
mod tip;
mod transfer;
mod whole;

use std::path::PathBuf;
use std::sync::Arc;

use coordinator_core::{Record, RecoveryWhy, Stamped, State};
use redb::{Database, ReadableTable, ReadableTableMetadata, TableDefinition};
use serde::{Deserialize, Serialize};
use sluice_common::environment::Environment;
use sluice_common::id::{ClusterId, StepId};
use sluice_common::time::Time;

pub use error::StoreError;
pub use line::Damage;
pub use lock::DirLock;
pub use past::{Judged, Past, PastError};
pub use read::{Event, ReadError, StoreReader};
pub use transfer::{Draft, ExportError, Piece};

use crate::seal::Seal;
use reserve::Reserve;
use sizes::Sizes;
use tip::Tip;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const SNAPSHOT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("snapshot");
const ENVIRONMENT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("environment");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// The layout of the tables. A store of another one is refused, never guessed at.
const FORMAT: u32 = 2;

/// Records between two snapshots. A restart reads at most this many records beyond a snapshot, well below a second;
/// writing a snapshot costs tens of milliseconds, so rarer is better.
pub const SNAPSHOT_EVERY: u64 = 10_000;

/// Bytes of records between two snapshots, or what the last one took if that is more: so large records are dropped as soon
/// as many small ones, and snapshots cost no more than what they follow.
const SNAPSHOT_EVERY_BYTES: u64 = 64 << 20;

/// Bytes of records that stay readable for followers, however many these are, beside those since the older snapshot.
const RETENTION_BYTES: u64 = 512 << 20;

/// Most records that a snapshot drops. It is many times what comes between two of them, so that a `retention` that was
/// millions, and is thousands now, is reached soon enough.
const MOST_DROPPED: u64 = 10 * SNAPSHOT_EVERY;

/// Snapshots that are kept: the newest, and one more for whoever has to look into a damaged store.
const SNAPSHOTS_KEPT: usize = 2;

/// Records that stay readable for followers of events unless the config says otherwise: at about 500 bytes each this
/// is 50 MB of disk and several hours of a busy cluster.
pub const DEFAULT_RETENTION: u64 = 100_000;

/// What a restart knows.
#[derive(Debug)]
pub struct Recovered {
    /// The realm that this store belongs to.
    pub cluster: ClusterId,
    /// The fold of all records.
    pub state: State,
    /// Number of the last record; 0 where there is none.
    pub last_seq: u64,
    /// Time of the last record. The clock must not start before it.
    pub last_at: Time,
    /// Why hosts may know more than the store does, where it was put back or made anew.
    pub recovers: Option<RecoveryWhy>,
}

/// A state with its place in the log, as it is stored.
#[derive(Serialize, Deserialize)]
struct Snapshot<S> {
    seq: u64,
    at: Time,
    state: S,
}

/// The key in `meta` of a [`Mark`].
const MARK: &str = "recovers";

/// Says that hosts may know more than the store does. It counts as long as nothing was written since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    why: RecoveryWhy,
    /// The last record when it was made.
    seq: u64,
}

/// The variables of a step, as they are stored.
#[derive(Serialize, Deserialize)]
struct Variables {
    step: StepId,
    env: Environment,
}

/// The open store; whoever has it is the only writer.
#[derive(Debug)]
pub struct Store {
    db: Arc<Database>,
    file: PathBuf,
    tip: Tip,
    retention: u64,
    last_seq: u64,
    last_at: Time,
    last_snapshot: u64,
    /// Bytes of the last snapshot.
    snapshot_bytes: u64,
    /// Bytes of records since.
    since_snapshot: u64,
    /// What the log takes.
    sizes: Sizes,
    seal: Seal,
    /// `None` where a test runs on memory.
    reserve: Option<Reserve>,
    /// Given back when the store is dropped; `None` where a test runs on memory.
    _lock: Option<DirLock>,
}

impl Store {
    /// How many records are kept for followers, from the next snapshot on.
    pub fn keep(&mut self, retention: u64) {
        self.retention = retention;
    }

    /// A reader for other threads.
    pub fn reader(&self) -> StoreReader {
        StoreReader::new(Arc::clone(&self.db), self.file.clone())
    }

    /// The seal on what hosts keep for the cluster.
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Number of the last record; 0 where there is none.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Makes `records` durable in one commit. They survive once this has returned; after an error nobody can tell, so
    /// the process must end and open the store anew.
    ///
    /// # Errors
    /// Where a record does not follow the last one, or the commit failed.
    pub fn append(&mut self, records: &[Stamped]) -> Result<(), StoreError> {
        let Some(last) = records.last() else {
            return Ok(());
        };
        self.check_order(records)?;
        let bytes = self
            .commit_log(records)
            .map_err(|source| StoreError::commit(&self.file, source))?;
        for (record, bytes) in records.iter().zip(bytes) {
            self.sizes.add(record.seq, bytes);
            self.since_snapshot += bytes;
        }
        self.last_seq = last.seq;
        self.last_at = last.at;
        if let Some(reserve) = &mut self.reserve {
            reserve.keep();
        }
        // After the commit, never before: the tip may lag behind the log and must not run ahead of it.
        self.tip.set(last.seq)
    }

    /// Makes a record durable that an admin's command has made while no coordinator ran. A recovery that the next start is
    /// to begin is still to be begun then.
    ///
    /// # Errors
    /// As for [`Store::append`].
    pub fn append_offline(
        &mut self,
        record: &Stamped,
        recovers: Option<RecoveryWhy>,
    ) -> Result<(), StoreError> {
        // Before the record: a mark ahead of the log is overtaken by the record, and one behind it counts no more.
        if let Some(why) = recovers {
            let mark = Mark {
                why,
                seq: record.seq,
            };
            self.commit_mark(mark)
                .map_err(|source| StoreError::commit(&self.file, source))?;
        }
        self.append(std::slice::from_ref(record))
    }

    fn commit_mark(&self, mark: Mark) -> Result<(), redb::Error> {
        let txn = self.db.begin_write()?;
        txn.open_table(META)?
            .insert(MARK, line::seal(&mark).as_slice())?;
        Ok(txn.commit()?)
    }

    fn check_order(&self, records: &[Stamped]) -> Result<(), StoreError> {
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

    /// The bytes of each record.
    fn commit_log(&self, records: &[Stamped]) -> Result<Vec<u64>, redb::Error> {
        let txn = self.db.begin_write()?;
        let mut bytes = Vec::with_capacity(records.len());
        {
            let mut log = txn.open_table(LOG)?;
            let mut environment = txn.open_table(ENVIRONMENT)?;
            for stamped in records {
                let line = line::seal(stamped);
                log.insert(stamped.seq, line.as_slice())?;
                bytes.push(line.len() as u64);
                if let Some((step, values)) = stamped.record.environment() {
                    let kept = line::seal(&Variables {
                        step: step.clone(),
                        env: values.clone(),
                    });
                    environment.insert(step.as_str(), kept.as_slice())?;
                }
                if let Record::StepForgotten { step } = &stamped.record {
                    environment.remove(step.as_str())?;
                }
            }
        }
        txn.commit()?;
        Ok(bytes)
    }

    /// Ends well: the next start knows the file by its checksum. Where a reader is still at work the file stays open
    /// to the end of the process, as after a death, and the next start looks at it all the closer.
    ///
    /// # Errors
    /// Where the file or its witness cannot be read or written; everything appended is durable all the same.
    pub fn close(self) -> Result<(), StoreError> {
        let Some(db) = Arc::into_inner(self.db) else {
            return Ok(());
        };
        drop(db);
        self.tip.close(self.last_seq, &self.file)
    }

    /// Whether enough has happened since the last snapshot.
    pub fn snapshot_due(&self) -> bool {
        self.last_seq - self.last_snapshot >= SNAPSHOT_EVERY
            || self.since_snapshot >= SNAPSHOT_EVERY_BYTES.max(self.snapshot_bytes)
    }

    /// Stores `state`, which must be the fold of everything appended so far, and drops the part of the log that
    /// neither a restart nor a follower of events may ask for.
    ///
    /// # Errors
    /// Where the commit failed; the log is whole all the same.
    pub fn snapshot(&mut self, state: &State) -> Result<(), StoreError> {
        let snapshot = Snapshot {
            seq: self.last_seq,
            at: self.last_at,
            state,
        };
        let sealed = line::seal(&snapshot);
        let dropped = self
            .commit_snapshot(&sealed)
            .map_err(|source| StoreError::commit(&self.file, source))?;
        self.sizes.drop_until(dropped);
        self.last_snapshot = self.last_seq;
        self.snapshot_bytes = sealed.len() as u64;
        self.since_snapshot = 0;
        Ok(())
    }

    /// The last record that was dropped.
    fn commit_snapshot(&self, sealed: &[u8]) -> Result<u64, redb::Error> {
        let txn = self.db.begin_write()?;
        let dropped = {
            let mut snapshots = txn.open_table(SNAPSHOT)?;
            snapshots.insert(self.last_seq, sealed)?;
            while snapshots.len()? > SNAPSHOTS_KEPT as u64 {
                snapshots.pop_first()?;
            }
            let oldest = snapshots.first()?.map_or(0, |(seq, _)| seq.value());
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

/// The last record that is dropped of a log whose first is `first`, where a restart begins with `oldest` and all up to `heavy`
/// is too much to be kept. No more go at once
/// than [`MOST_DROPPED`]: nothing else is decided meanwhile, and the rest goes with the next snapshots.
fn cut(first: u64, oldest: u64, last: u64, retention: u64, heavy: u64) -> u64 {
    let unwanted = oldest.min(last.saturating_sub(retention.max(1)).max(heavy));
    unwanted.min(first.saturating_add(MOST_DROPPED - 1))
}

/// Every table of a new file, so that readers never meet one that does not exist.
fn make_tables(db: &Database, cluster: &ClusterId, mark: Option<Mark>) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    {
        txn.open_table(LOG)?;
        txn.open_table(SNAPSHOT)?;
        txn.open_table(ENVIRONMENT)?;
        let mut meta = txn.open_table(META)?;
        meta.insert("format", line::seal(&FORMAT).as_slice())?;
        meta.insert("cluster", line::seal(cluster).as_slice())?;
        if let Some(mark) = mark {
            meta.insert(MARK, line::seal(&mark).as_slice())?;
        }
    }
    Ok(txn.commit()?)
}

/// A text with its checksum, as it is stored.
pub(crate) fn seal_line(value: &impl Serialize) -> Vec<u8> {
    line::seal(value)
}

/// The JSON of such a text, once its checksum was found right.
pub(crate) fn unseal_line(text: &[u8]) -> Result<&[u8], Damage> {
    line::unseal(text)
}

/// The record in a stored text.
pub(crate) fn parse_record(text: &[u8]) -> Result<Stamped, Damage> {
    line::parse(text)
}

/// A step and its variables in a stored text.
pub(crate) fn parse_variables(text: &[u8]) -> Result<(StepId, Environment), Damage> {
    let Variables { step, env } = line::parse(text)?;
    Ok((step, env))
}

/// The snapshot in a stored text: the last record in it, its time, and the state.
pub(crate) fn parse_snapshot(text: &[u8]) -> Result<(u64, Time, State), Damage> {
    let snapshot: Snapshot<State> = line::parse(text)?;
    match snapshot.state.seq() == snapshot.seq {
        true => Ok((snapshot.seq, snapshot.at, snapshot.state)),
        false => Err(Damage::Misplaced {
            seq: snapshot.state.seq(),
        }),
    }
}
