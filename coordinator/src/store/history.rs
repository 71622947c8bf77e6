//! Reads the history of a stopped coordinator's store: the state at any record that snapshots and log still reach. It
//! works on a copy, because redb repairs what a crash left and the original must stay as it is; no coordinator may
//! start while the copy is made.
//!
//! Only the records needed for the answer must be intact, so a store that a coordinator rejects can be inspected up to
//! the damage.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use coordinator_core::{ApplyError, LogEntry, State};
use redb::{Database, ReadTransaction, ReadableDatabase};
use sluice_common::id::ClusterId;
use sluice_common::time::Time;

use super::encoding::Corruption;
use super::fold::{ends, fold_journal};
use super::guard::guarded;
use super::journal;
use super::lock::ReadLock;
use super::open::{builder, judge, judge_file, lost, read_meta, record_in, snapshot_in};
use super::snapshot::text_of;
use super::tables::{LOG, SNAPSHOT, table};
use super::tip::{TipFile, TipRecord};
use super::{Recovered, Snapshot, StoreError};
use crate::seal::Seal;

/// Why the history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The directory has no store.
    #[error(
        "there is no store in {}: name the data directory of a coordinator, or that of `sluice dev --data`",
        dir.display()
    )]
    NoStore {
        /// Directory that was searched.
        dir: PathBuf,
    },
    /// A coordinator runs on the store.
    #[error(
        "a coordinator runs in {} ({holder}): ask it with `sluice get events`, or stop it first",
        dir.display()
    )]
    Running {
        dir: PathBuf,
        /// Holder of the lock, such as `pid 4711`.
        holder: String,
    },
    /// The state at that record is no longer kept.
    #[error("record {asked} is too old: the first whose state is still kept is {first}")]
    TooOld { asked: u64, first: u64 },
    /// There is no such record yet.
    #[error("record {asked} has not happened: the last is {last}")]
    TooNew { asked: u64, last: u64 },
    /// The store cannot be read, or is damaged where it was read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store without damage.
#[derive(Debug)]
pub struct CheckedStore {
    /// Result of reading it.
    pub recovered: Recovered,
    /// Last record in its newest snapshot, if it has one.
    pub snapshot: Option<u64>,
    /// First record of its log; 0 if there is none.
    pub first: u64,
}

/// A copy of a store, opened for reading.
#[derive(Debug)]
pub struct StoreHistory {
    db: Database,
    /// Path of the original, for messages.
    file: PathBuf,
    cluster: ClusterId,
    first: u64,
    last: u64,
}

impl StoreHistory {
    /// Opens the store in `dir`, or in the coordinator's part of a directory of `sluice dev`.
    ///
    /// # Errors
    /// If there is none, a coordinator runs on it, it cannot be copied or read, or it has lost records.
    pub fn open(dir: &Path) -> Result<Self, HistoryError> {
        let copied = StoreCopy::take(dir, |_, _| Ok(()))?;
        let (tip, committed) = (copied.tip(), copied.mark.seq);
        let past = look(&copied.file.clone(), |_| begin(copied))?;
        if committed > past.last {
            return Err(lost(&past.file, &tip, past.last, committed).into());
        }
        Ok(past)
    }

    /// Checks the store in `dir` as the start of a coordinator does, except for certificates.
    ///
    /// # Errors
    /// The first damage, by table and record; or as for [`StoreHistory::open`].
    pub fn judge(dir: &Path) -> Result<CheckedStore, HistoryError> {
        let copied = StoreCopy::take(dir, judge_file)?;
        let tip = copied.tip();
        let StoreCopy {
            mut db,
            file,
            journal,
            mark,
        } = copied;
        let judged = look(&file, |file| judge(&mut db, file, &tip, &mark, &journal))?;
        Seal::check(file.parent().unwrap_or(dir)).map_err(StoreError::from)?;
        let (recovered, snapshot) = (judged.recovered, judged.last_snapshot);
        let first = look(&file, |file| {
            Ok(ends(&reading(&db, file)?, file, LOG)?.map_or(0, |(first, _)| first))
        })?;
        Ok(CheckedStore {
            recovered,
            snapshot: (snapshot > 0).then_some(snapshot),
            first,
        })
    }

    pub(super) fn db(&self) -> &Database {
        &self.db
    }

    /// Returns the directory of the original.
    pub fn dir(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the cluster of the store.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// First record whose state can be rebuilt; 0 is the time before the first.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number of the last record.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the state after record `seq`, and its time: the newest snapshot before it plus what follows.
    ///
    /// # Errors
    /// If it is no longer kept, or something on the way to it is damaged.
    pub fn fold(&self, seq: u64) -> Result<(State, Time), HistoryError> {
        if seq < self.first {
            return Err(HistoryError::TooOld {
                asked: seq,
                first: self.first,
            });
        }
        if seq > self.last {
            return Err(HistoryError::TooNew {
                asked: seq,
                last: self.last,
            });
        }
        let mut from = look(&self.file, |file| snapshot_before(&self.db, seq, file))?;
        self.each(from.seq, seq, |record| {
            from.at = from.at.max(record.at);
            from.state.apply(record)
        })?;
        Ok((from.state, from.at))
    }

    /// Calls back with each record after `after` up to `to`, in order.
    ///
    /// # Errors
    /// If one of them is damaged, missing, or inconsistent.
    pub fn each(
        &self,
        after: u64,
        to: u64,
        mut show: impl FnMut(&LogEntry) -> Result<(), ApplyError>,
    ) -> Result<(), StoreError> {
        look(&self.file, |file| {
            each(&self.db, after..to, file, &mut show)
        })
    }
}

/// Maps the lock error of a running coordinator, whose message differs here.
fn running(error: StoreError) -> HistoryError {
    match error {
        StoreError::InUse { dir, holder } => HistoryError::Running { dir, holder },
        other => other.into(),
    }
}

/// A copy of a store, opened as it was found.
struct StoreCopy {
    db: Database,
    /// Path of the original.
    file: PathBuf,
    journal: Vec<u8>,
    mark: TipRecord,
}

impl StoreCopy {
    /// Copies the store while no coordinator can start, and runs `before` on the original meanwhile.
    fn take(
        dir: &Path,
        before: impl FnOnce(&Path, &TipRecord) -> Result<(), StoreError>,
    ) -> Result<Self, HistoryError> {
        let places = [dir.to_owned(), dir.join("coordinator")];
        let place = places
            .iter()
            .find(|place| place.join("store.redb").exists());
        let dir = place.ok_or_else(|| HistoryError::NoStore {
            dir: dir.to_owned(),
        })?;
        let file = dir.join("store.redb");
        let lock = ReadLock::take(dir).map_err(running)?;
        let mark = TipFile::read(&dir.join("tip"))?.unwrap_or_default();
        before(&file, &mark)?;
        let (copy, journal) = (copied(&file)?, journal::read(dir)?);
        drop(lock);
        let db = look(&file, |file| {
            let db = builder().create_file(copy);
            db.map_err(|error| StoreError::opening(file, error.into()))
        })?;
        Ok(Self {
            db,
            file,
            journal,
            mark,
        })
    }

    fn tip(&self) -> PathBuf {
        self.file.with_file_name("tip")
    }
}

/// Copies the file into an unnamed one, which vanishes with the process.
fn copied(file: &Path) -> Result<File, StoreError> {
    let copy = || {
        let mut copy = tempfile::tempfile()?;
        io::copy(&mut File::open(file)?, &mut copy)?;
        Ok(copy)
    };
    copy().map_err(|source| StoreError::io("copy", file, source))
}

/// Runs `work`; a panic of redb counts as damage.
pub(super) fn look<T>(
    file: &Path,
    work: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    guarded(|| work(file)).unwrap_or_else(|panic| Err(StoreError::damaged(file, panic)))
}

/// Reads where the history begins and ends, with the records of the journal.
fn begin(copied: StoreCopy) -> Result<StoreHistory, StoreError> {
    let StoreCopy {
        db, file, journal, ..
    } = copied;
    let cluster = read_meta(&reading(&db, &file)?, &file)?;
    fold_journal(&db, &file, &journal)?;
    let txn = reading(&db, &file)?;
    let log = ends(&txn, &file, LOG)?;
    let snapshots = ends(&txn, &file, SNAPSHOT)?;
    // Without a snapshot the whole log is needed, and one that does not begin at 1 fails when the state is built.
    let first = match (log, snapshots) {
        (Some((1, _)), _) | (_, None) => 0,
        (_, Some((oldest, _))) => oldest,
    };
    let last = log.into_iter().chain(snapshots).map(|(_, last)| last).max();
    drop(txn);
    Ok(StoreHistory {
        db,
        file,
        cluster,
        first,
        last: last.unwrap_or(0),
    })
}

fn reading(db: &Database, file: &Path) -> Result<ReadTransaction, StoreError> {
    let txn = db.begin_read();
    txn.map_err(|error| StoreError::opening(file, error.into()))
}

/// Returns the newest snapshot of record `seq` or an earlier one; the empty state if there is none.
fn snapshot_before(db: &Database, seq: u64, file: &Path) -> Result<Snapshot<State>, StoreError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let txn = reading(db, file)?;
    let snapshots = table(&txn, file, SNAPSHOT)?;
    let newest = snapshots.range(..=seq).map_err(opening)?.next_back();
    let Some(newest) = newest else {
        return Ok(Snapshot {
            seq: 0,
            at: Time::default(),
            state: State::default(),
        });
    };
    let (seq, head) = newest.map_err(opening)?;
    let text = text_of(&txn, file, (seq.value(), head.value()))?;
    snapshot_in(&text, seq.value(), file)
}

/// Calls back with the records after the first number of `places`, including the last.
fn each(
    db: &Database,
    places: std::ops::Range<u64>,
    file: &Path,
    show: &mut dyn FnMut(&LogEntry) -> Result<(), ApplyError>,
) -> Result<(), StoreError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let damaged = |seq, damage| StoreError::damaged_record(file, "log", seq, damage);
    let log = table(&reading(db, file)?, file, LOG)?;
    let mut stored = log.range(places.start + 1..=places.end).map_err(opening)?;
    for place in places.start + 1..=places.end {
        let Some(entry) = stored.next() else {
            return Err(damaged(place, Corruption::Missing));
        };
        let (seq, line) = entry.map_err(opening)?;
        if seq.value() != place {
            return Err(damaged(place, Corruption::Missing));
        }
        let record = record_in(line.value(), place).map_err(|damage| damaged(place, damage))?;
        show(&record).map_err(|misfit| damaged(place, Corruption::Unfit(misfit.what.into())))?;
    }
    Ok(())
}
