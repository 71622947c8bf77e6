//! Opens a store: creates it or checks every byte of it, and builds the state from the log.

use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coordinator_core::{LogEntry, RecoveryCause, State};
use redb::{Builder, Database, ReadTransaction, ReadableDatabase, ReadableTable};
use sluice_common::hex;
use sluice_common::id::ClusterId;
use sluice_common::time::Time;

use super::encoding::{self, Corruption};
use super::fold::{JournalRecords, fold_journal};
use super::guard::guarded;
use super::journal::{self, JOURNAL_FILE, Journal};
use super::lock::DirLock;
use super::reserve::Reserve;
use super::sizes::LogSizes;
use super::snapshot::text_of;
use super::tables::{
    ENVIRONMENT, FORMAT, LOG, MARK, META, RecoveryMark, SNAPSHOT, SNAPSHOT_PART, make_tables, table,
};
use super::tip::{TipFile, TipRecord};
use super::{DEFAULT_RETENTION, Recovered, Snapshot, Store, StoreError, parse_variables};
use crate::seal::Seal;

/// Memory for pages. Writes go to the end of the log and readers follow close behind, so little of the file is in use.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Layouts that are read.
const OPENED: [u32; 2] = [FORMAT - 1, FORMAT];

/// Random bytes in a cluster's id.
const CLUSTER_ID_BYTES: usize = 8;

impl Store {
    /// Opens the store in `dir`, creating both if they do not exist, and keeps `retention` records for followers.
    ///
    /// # Errors
    /// If the directory is in use, the disk fails, or anything in the store is damaged.
    pub fn open(dir: &Path, retention: u64) -> Result<(Store, Recovered), StoreError> {
        Self::open_of(dir, retention, None)
    }

    /// Opens the store of a cluster whose certificates exist: a store that has to be created belongs to that cluster,
    /// whose earlier store was lost.
    ///
    /// # Errors
    /// The same as for [`Store::open`].
    pub fn open_of(
        dir: &Path,
        retention: u64,
        cluster: Option<ClusterId>,
    ) -> Result<(Store, Recovered), StoreError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| StoreError::io("make the data directory", dir, source))?;
        let lock = DirLock::take(dir)?;
        let file = dir.join("store.redb");
        let tip_path = dir.join("tip");
        let mark = TipFile::read(&tip_path)?.unwrap_or_default();
        let journal = journal::read(dir)?;
        if !file.exists() {
            if mark.seq > 0 {
                return Err(lost(&file, &tip_path, 0, mark.seq));
            }
            // It would come to another store than its own.
            if let Some(last) = journal::last_in(&journal) {
                return Err(lost(&file, &dir.join(JOURNAL_FILE), 0, last));
            }
            create(dir, &file, cluster)?;
        }
        keep_private(&file)?;
        judge_file(&file, &mark)?;
        let tip = TipFile::open(&tip_path)?;
        // Before redb may change the file.
        tip.set(mark.seq)?;
        tip.sync()?;
        let (db, loaded) = guarded(|| check_and_load(&file, &tip_path, &mark, &journal))
            .unwrap_or_else(|panic| Err(StoreError::damaged(&file, panic)))?;
        upgrade(&db).map_err(|source| StoreError::commit(&file, source))?;
        tip.set(loaded.recovered.last_seq)?;
        let journal = Journal::open(&file)?;
        let (seal, reserve) = (Seal::of(dir)?, Reserve::of(dir, &file));
        let (store, recovered) = loaded.store(db, file, tip, seal);
        let store = Store {
            retention,
            journal: Some(journal),
            reserve,
            _lock: Some(lock),
            ..store
        };
        Ok((store, recovered))
    }

    /// Opens a store without a journal on a test's disk.
    #[cfg(test)]
    pub(crate) fn on_backend(
        backend: impl redb::StorageBackend,
    ) -> Result<(Store, Recovered), StoreError> {
        Self::on_backends(backend, &[])
    }

    /// Opens a store on a test's disk, with what is in its journal.
    #[cfg(test)]
    pub(super) fn on_backends(
        backend: impl redb::StorageBackend,
        journal: &[u8],
    ) -> Result<(Store, Recovered), StoreError> {
        let file = PathBuf::from("memory");
        let opening = |error| StoreError::opening(&file, error);
        let new = backend.len().map_or(0, |len| len) == 0;
        let db = Builder::new()
            .create_with_backend(backend)
            .map_err(|e| opening(e.into()))?;
        if new {
            make_tables(&db, &new_cluster()?, None).map_err(opening)?;
        }
        fold_journal(&db, &file, journal)?;
        let loaded = load(&db, &file)?;
        Ok(loaded.store(db, file, TipFile::Nowhere, Seal::drawn()?))
    }
}

/// Gives the store the present layout, if it is of an earlier release.
fn upgrade(db: &Database) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    {
        let mut meta = txn.open_table(META)?;
        let present = encoding::seal(&FORMAT);
        let is_present = |value: redb::AccessGuard<'_, &[u8]>| value.value() == present;
        if meta.get("format")?.is_some_and(is_present) {
            return Ok(());
        }
        meta.insert("format", present.as_slice())?;
        txn.open_table(SNAPSHOT_PART)?;
    }
    Ok(txn.commit()?)
}

pub(super) fn lost(file: &Path, tip: &Path, found: u64, committed: u64) -> StoreError {
    StoreError::Lost {
        file: file.to_owned(),
        tip: tip.to_owned(),
        found,
        committed,
    }
}

pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Restricts the file to its owner: it contains the variables of steps, and the directory may have been made by
/// somebody else.
pub(super) fn keep_private(file: &Path) -> Result<(), StoreError> {
    fs::set_permissions(file, Permissions::from_mode(0o600))
        .map_err(|source| StoreError::io("keep others from", file, source))
}

/// Creates a store under a temporary name, so that a crash leaves nothing that looks like a damaged store.
fn create(dir: &Path, file: &Path, cluster: Option<ClusterId>) -> Result<(), StoreError> {
    let draft = dir.join("store.redb.new");
    match fs::remove_file(&draft) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(StoreError::io("remove", &draft, e));
        }
        Ok(()) | Err(_) => {}
    }
    let db = builder()
        .create(&draft)
        .map_err(|error| StoreError::opening(&draft, error.into()))?;
    keep_private(&draft)?;
    let mark = cluster.is_some().then_some(RecoveryMark {
        why: RecoveryCause::StoreLost,
        seq: 0,
    });
    let cluster = cluster.map_or_else(new_cluster, Ok)?;
    make_tables(&db, &cluster, mark).map_err(|source| StoreError::commit(&draft, source))?;
    drop(db);
    fs::rename(&draft, file).map_err(|source| StoreError::io("make", file, source))?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| StoreError::io("sync", dir, source))
}

fn new_cluster() -> Result<ClusterId, StoreError> {
    let mut bytes = [0; CLUSTER_ID_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Random(error.to_string()))?;
    Ok(ClusterId::new(hex::encode(&bytes)).expect("hexadecimal digits are an id"))
}

/// Checks the whole file before it is opened: a closed store must be unchanged.
pub(super) fn judge_file(file: &Path, mark: &TipRecord) -> Result<(), StoreError> {
    match &mark.closed {
        Some(whole) => whole.check(file).map_err(|changed| diagnose(file, changed)),
        None => Ok(()),
    }
}

/// Checks the open store, and adds what its journal has beyond it: redb's checksums detect damage of its structure, ours
/// damage of records, and the tip missing records at the end. Together with [`judge_file`] this is the check of a start
/// and of `sluice-coordinator check`, which opens a copy.
pub(super) fn judge(
    db: &mut Database,
    file: &Path,
    tip: &Path,
    mark: &TipRecord,
    journal: &[u8],
) -> Result<LoadedStore, StoreError> {
    let intact = db.check_integrity();
    if !intact.map_err(|e| StoreError::opening(file, e.into()))? {
        tracing::warn!(file = %file.display(), "the store's page table was mended; every record was found whole");
    }
    fold_journal(db, file, journal)?;
    let loaded = load(db, file)?;
    let last_seq = loaded.recovered.last_seq;
    if mark.seq > last_seq {
        return Err(lost(file, tip, last_seq, mark.seq));
    }
    Ok(loaded)
}

fn check_and_load(
    file: &Path,
    tip: &Path,
    mark: &TipRecord,
    journal: &[u8],
) -> Result<(Database, LoadedStore), StoreError> {
    let db = builder().open(file);
    let mut db = db.map_err(|e| StoreError::opening(file, e.into()))?;
    let judged = judge(&mut db, file, tip, mark, journal)?;
    Ok((db, judged))
}

/// Returns the damaged record in a file that has changed since it was closed, or the error as it is if the damage is
/// elsewhere. Leaves the file as it was.
fn diagnose(file: &Path, changed: StoreError) -> StoreError {
    let looked = guarded(|| {
        let db = builder().open_read_only(file).ok()?;
        load(&db, file).err()
    });
    looked.ok().flatten().unwrap_or(changed)
}

/// Contents of a store.
pub(super) struct LoadedStore {
    /// State after all records.
    pub(super) recovered: Recovered,
    /// Number of the newest snapshot.
    pub(super) last_snapshot: u64,
    /// Sizes of the log's parts.
    sizes: LogSizes,
    /// Size of the newest snapshot.
    snapshot_bytes: u64,
    /// Size of the records after it.
    since_snapshot: u64,
}

impl LoadedStore {
    /// Makes a store of it, with default retention, without a lock and without reserved blocks.
    fn store(self, db: Database, file: PathBuf, tip: TipFile, seal: Seal) -> (Store, Recovered) {
        let store = Store {
            db: Arc::new(db),
            file,
            tip,
            journal: None,
            unfolded: JournalRecords::default(),
            retention: DEFAULT_RETENTION,
            last_seq: self.recovered.last_seq,
            last_at: self.recovered.last_at,
            last_snapshot: self.last_snapshot,
            snapshot_bytes: self.snapshot_bytes,
            since_snapshot: self.since_snapshot,
            sizes: self.sizes,
            seal,
            reserve: None,
            _lock: None,
        };
        (store, self.recovered)
    }
}

/// Builds the state of everything in `db`.
pub(super) fn load(db: &impl ReadableDatabase, file: &Path) -> Result<LoadedStore, StoreError> {
    let opening = |error| StoreError::opening(file, error);
    let txn = db.begin_read().map_err(|e| opening(e.into()))?;
    let cluster = read_meta(&txn, file)?;
    let snapshot = read_snapshots(&txn, file)?;
    let (snapshot, snapshot_bytes) = snapshot.unzip();
    let last_snapshot = snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
    let mut recovered = Recovered {
        cluster,
        state: State::default(),
        last_seq: 0,
        last_at: Time::default(),
        recovers: None,
    };
    if let Some(snapshot) = snapshot {
        recovered.state = snapshot.state;
        recovered.last_seq = snapshot.seq;
        recovered.last_at = snapshot.at;
    }
    let (sizes, since_snapshot) = read_log(&txn, file, &mut recovered)?;
    give_environments(&txn, file, &mut recovered.state)?;
    // A later record shows that a coordinator has begun the recovery. A mark ahead of the log belongs to a record that
    // was never written.
    let mark = read_mark(&txn, file)?;
    let mark = mark.filter(|mark| mark.seq >= recovered.last_seq);
    recovered.recovers = mark.map(|mark| mark.why);
    Ok(LoadedStore {
        recovered,
        last_snapshot,
        sizes,
        snapshot_bytes: snapshot_bytes.unwrap_or_default(),
        since_snapshot,
    })
}

/// Puts the values of variables into the steps, checking all their checksums.
fn give_environments(
    txn: &ReadTransaction,
    file: &Path,
    state: &mut State,
) -> Result<(), StoreError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let damaged =
        |step: &str, damage| StoreError::damaged_record(file, "environment", step, damage);
    let variables = table(txn, file, ENVIRONMENT)?;
    for entry in variables.iter().map_err(opening)? {
        let (step, line) = entry.map_err(opening)?;
        encoding::unseal(line.value()).map_err(|damage| damaged(step.value(), damage))?;
    }
    let lacking = state.give_environments(|step| -> Result<_, StoreError> {
        let value = variables.get(step).map_err(opening)?;
        let variables = value
            .map(|value| parse_variables(value.value()))
            .transpose();
        let variables = variables.map_err(|damage| damaged(step, damage))?;
        Ok(variables.filter(|(of, _)| of == step).map(|(_, env)| env))
    })?;
    match lacking {
        None => Ok(()),
        Some(step) => Err(damaged(step.as_str(), Corruption::Missing)),
    }
}

pub(super) fn read_meta(txn: &ReadTransaction, file: &Path) -> Result<ClusterId, StoreError> {
    let format: u32 = read_meta_value(txn, file, "format")?;
    if !OPENED.contains(&format) {
        return Err(StoreError::OtherFormat {
            file: file.to_owned(),
            found: format,
            known: FORMAT,
        });
    }
    read_meta_value(txn, file, "cluster")
}

/// Reads the mark of a restored store, or of one made in place of a lost one.
fn read_mark(txn: &ReadTransaction, file: &Path) -> Result<Option<RecoveryMark>, StoreError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let value = table(txn, file, META)?.get(MARK).map_err(opening)?;
    let mark = value
        .map(|value| encoding::parse(value.value()))
        .transpose();
    mark.map_err(|damage| StoreError::damaged_record(file, "meta", MARK, damage))
}

fn read_meta_value<T: serde::de::DeserializeOwned>(
    txn: &ReadTransaction,
    file: &Path,
    key: &str,
) -> Result<T, StoreError> {
    let value = table(txn, file, META)?
        .get(key)
        .map_err(|error| StoreError::opening(file, error.into()))?;
    let damaged = |damage| StoreError::damaged_record(file, "meta", key, damage);
    let value = value.ok_or_else(|| damaged(Corruption::Missing))?;
    encoding::parse(value.value()).map_err(damaged)
}

/// Reads the newest snapshot and its size, checking the checksums of all.
fn read_snapshots(
    txn: &ReadTransaction,
    file: &Path,
) -> Result<Option<(Snapshot<State>, u64)>, StoreError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let snapshots = table(txn, file, SNAPSHOT)?;
    let mut newest = None;
    for entry in snapshots.iter().map_err(opening)? {
        let (seq, head) = entry.map_err(opening)?;
        let seq = seq.value();
        let text = text_of(txn, file, (seq, head.value()))?;
        encoding::unseal(&text)
            .map_err(|damage| StoreError::damaged_record(file, "snapshot", seq, damage))?;
        newest = Some((seq, text));
    }
    let Some((seq, text)) = newest else {
        return Ok(None);
    };
    let snapshot = snapshot_in(&text, seq, file)?;
    Ok(Some((snapshot, text.len() as u64)))
}

/// Parses the snapshot in a stored text, at its position.
pub(super) fn snapshot_in(
    line: &[u8],
    seq: u64,
    file: &Path,
) -> Result<Snapshot<State>, StoreError> {
    let damaged = |damage| StoreError::damaged_record(file, "snapshot", seq, damage);
    let snapshot: Snapshot<State> = encoding::parse(line).map_err(damaged)?;
    if snapshot.seq != seq || snapshot.state.seq() != snapshot.seq {
        return Err(damaged(Corruption::Misplaced { seq: snapshot.seq }));
    }
    Ok(snapshot)
}

/// Parses the record in a stored text, at its position.
pub(super) fn record_in(line: &[u8], seq: u64) -> Result<LogEntry, Corruption> {
    let record: LogEntry = encoding::parse(line)?;
    match record.seq == seq {
        true => Ok(record),
        false => Err(Corruption::Misplaced { seq: record.seq }),
    }
}

/// Checks that the log has no gap and no damage, and applies what follows the snapshot. Returns the sizes of the log
/// and of those records.
fn read_log(
    txn: &ReadTransaction,
    file: &Path,
    recovered: &mut Recovered,
) -> Result<(LogSizes, u64), StoreError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let damaged = |seq: u64, damage| StoreError::damaged_record(file, "log", seq, damage);
    let log = table(txn, file, LOG)?;
    let snapshot = recovered.last_seq;
    let mut expected = None;
    let mut sizes = LogSizes::default();
    let mut since_snapshot = 0;
    for entry in log.iter().map_err(opening)? {
        let (seq, line) = entry.map_err(opening)?;
        let seq = seq.value();
        // Before the snapshot the log may begin anywhere; the record right after it must be there.
        let place = expected.unwrap_or_else(|| seq.min(snapshot + 1));
        if seq != place {
            return Err(damaged(place, Corruption::Missing));
        }
        expected = Some(seq + 1);
        let bytes = line.value().len() as u64;
        sizes.add(seq, bytes);
        if seq <= snapshot {
            encoding::unseal(line.value()).map_err(|damage| damaged(seq, damage))?;
            continue;
        }
        since_snapshot += bytes;
        let record = record_in(line.value(), seq).map_err(|damage| damaged(seq, damage))?;
        recovered
            .state
            .apply(&record)
            .map_err(|misfit| damaged(seq, Corruption::Unfit(misfit.what.into())))?;
        recovered.last_seq = seq;
        recovered.last_at = recovered.last_at.max(record.at);
    }
    // The log keeps the record of the newest snapshot, so one that ends before it has lost its tail.
    match expected.unwrap_or(snapshot.max(1)) {
        next if next <= snapshot => Err(damaged(next, Corruption::Missing)),
        _ => Ok((sizes, since_snapshot)),
    }
}
