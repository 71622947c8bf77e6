//! The tables of the store's file.

use std::path::Path;

use coordinator_core::RecoveryCause;
use redb::{Database, ReadTransaction, TableDefinition, TableError};
use serde::{Deserialize, Serialize};
use sluice_common::environment::Environment;
use sluice_common::id::ClusterId;

use super::encoding;
use super::error::StoreError;

pub(super) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
pub(super) const SNAPSHOT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("snapshot");
pub(super) const SNAPSHOT_PART: TableDefinition<'_, (u64, u32), &[u8]> =
    TableDefinition::new("snapshot_part");
pub(super) const ENVIRONMENT: TableDefinition<'_, &str, &[u8]> =
    TableDefinition::new("environment");
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// Layout of the tables. Stores of other layouts are rejected, except for the one before, which had no `snapshot_part`.
pub(super) const FORMAT: u32 = 3;

/// Key in `meta` of a [`RecoveryMark`].
pub(super) const MARK: &str = "recovers";

/// Marks a store of which hosts may know more. Valid as long as no record was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecoveryMark {
    pub(super) why: RecoveryCause,
    /// Last record when the mark was made.
    pub(super) seq: u64,
}

/// The stored variables of a step.
#[derive(Serialize, Deserialize)]
pub(super) struct StepVariables {
    /// Id of the step, or the key of a version of a service.
    pub(super) step: String,
    pub(super) env: Environment,
}

/// Makes every table of a new file, so that readers never find one missing.
pub(super) fn make_tables(
    db: &Database,
    cluster: &ClusterId,
    mark: Option<RecoveryMark>,
) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    {
        txn.open_table(LOG)?;
        txn.open_table(SNAPSHOT)?;
        txn.open_table(SNAPSHOT_PART)?;
        txn.open_table(ENVIRONMENT)?;
        let mut meta = txn.open_table(META)?;
        meta.insert("format", encoding::seal(&FORMAT).as_slice())?;
        meta.insert("cluster", encoding::seal(cluster).as_slice())?;
        if let Some(mark) = mark {
            meta.insert(MARK, encoding::seal(&mark).as_slice())?;
        }
    }
    Ok(txn.commit()?)
}

/// Opens a table that every store has; without it the file is another program's.
pub(super) fn table<K: redb::Key + 'static>(
    txn: &ReadTransaction,
    file: &Path,
    definition: redb::TableDefinition<'_, K, &'static [u8]>,
) -> Result<redb::ReadOnlyTable<K, &'static [u8]>, StoreError> {
    txn.open_table(definition).map_err(|error| match error {
        TableError::TableDoesNotExist(name) => {
            StoreError::damaged(file, format!("it has no table `{name}`"))
        }
        other => StoreError::opening(file, other.into()),
    })
}
