//! The way of records from the journal to the tables. Until then they are in memory too, for readers of the tables.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, WriteTransaction};

use super::error::StoreError;
use super::journal::{JOURNAL_FILE, StoredRecord, records_after};
use super::tables::{ENVIRONMENT, LOG, SNAPSHOT, table};

/// The records that are in the journal and not in the tables, oldest first. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct JournalRecords(Arc<Mutex<Vec<Arc<StoredRecord>>>>);

impl JournalRecords {
    pub(super) fn add(&self, records: Vec<Arc<StoredRecord>>) {
        self.lock().extend(records);
    }

    /// Forgets all, once they are in the tables.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Returns all. A reader asks for them before it begins to read the tables: whatever is in neither was not committed
    /// before, and what is in both counts once.
    pub(super) fn all(&self) -> Vec<Arc<StoredRecord>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<StoredRecord>>> {
        // No statement that could panic leaves a part of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes records and their variables to the tables.
pub(super) fn fold(
    txn: &WriteTransaction,
    records: &[Arc<StoredRecord>],
) -> Result<(), redb::Error> {
    let mut log = txn.open_table(LOG)?;
    let mut environment = txn.open_table(ENVIRONMENT)?;
    for record in records {
        log.insert(record.seq, record.line.as_slice())?;
        if let Some((key, text)) = &record.variables {
            environment.insert(key.as_str(), text.as_slice())?;
        }
        for key in &record.dropped {
            environment.remove(key.as_str())?;
        }
    }
    Ok(())
}

/// Writes to the tables what a journal has beyond them.
///
/// # Errors
/// If a record between the two is missing, or the tables cannot be read or written.
pub(super) fn fold_journal(db: &Database, file: &Path, journal: &[u8]) -> Result<(), StoreError> {
    let opening = |error: redb::Error| StoreError::opening(file, error);
    let txn = db.begin_read().map_err(|error| opening(error.into()))?;
    let (log, snapshots) = (ends(&txn, file, LOG)?, ends(&txn, file, SNAPSHOT)?);
    drop(txn);
    let last = log.into_iter().chain(snapshots).map(|(_, last)| last).max();
    let records = records_after(last.unwrap_or(0), journal).map_err(|missing| {
        let (file, journal) = (file.to_owned(), file.with_file_name(JOURNAL_FILE));
        StoreError::Gap {
            file,
            journal,
            missing,
        }
    })?;
    if records.is_empty() {
        return Ok(());
    }
    let folded = || -> Result<(), redb::Error> {
        let txn = db.begin_write()?;
        fold(&txn, &records)?;
        Ok(txn.commit()?)
    };
    folded().map_err(opening)
}

/// Returns the first and the last number in a table; `None` if it is empty.
pub(super) fn ends(
    txn: &ReadTransaction,
    file: &Path,
    definition: redb::TableDefinition<'_, u64, &'static [u8]>,
) -> Result<Option<(u64, u64)>, StoreError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let table = table(txn, file, definition)?;
    let first = table.first().map_err(opening)?.map(|(seq, _)| seq.value());
    let last = table.last().map_err(opening)?.map(|(seq, _)| seq.value());
    Ok(first.zip(last))
}
