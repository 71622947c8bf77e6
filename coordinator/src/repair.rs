//! Sets the epoch of a stopped coordinator's store, after a backup of it. Needed if hosts drove the counter up while
//! coordinators still believed them, or if the store and `warrants.key` were lost and no host can prove which epoch it
//! has obeyed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use coordinator_core::{LogEntry, Record};
use nix::unistd::{geteuid, setgid, setgroups, setuid};
use sluice_common::api::timestamp;
use sluice_common::epoch::MAX_EPOCH;
use sluice_common::id::Epoch;
use sluice_common::time::Span;

use crate::backup::{BackupError, control};
use crate::clock::wall;
use crate::store::{DEFAULT_RETENTION, Store, StoreError};

/// New value of a counter that was too high: above all starts that a coordinator can have had before.
const AFRESH: u64 = 1 << 20;

/// Why an epoch was not set. The store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// This process cannot become the owner of the directory, or the directory does not exist.
    #[error("cannot work as the owner of {}", dir.display())]
    Owner { dir: PathBuf, source: io::Error },
    #[error("cannot back up first")]
    Backup(#[from] BackupError),
    /// The store cannot be opened, perhaps because a coordinator runs.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The epoch needs no repair.
    #[error(
        "epoch {epoch} is in order: nothing was changed; to go above what hosts have obeyed, use --above"
    )]
    InOrder { epoch: u64 },
    /// The store's epoch is not below the wanted one.
    #[error(
        "the store is at epoch {epoch} already, and the next coordinator goes above it: nothing was changed"
    )]
    Lower { epoch: u64 },
    /// The wanted epoch would leave no room for another start.
    #[error("--above must be less than {MAX_EPOCH}")]
    TooHigh,
}

/// A repaired epoch.
#[derive(Debug)]
pub struct EpochRepair {
    /// Epoch before the repair.
    pub from: u64,
    /// Epoch after the repair.
    pub to: u64,
    /// Backup made before the repair, with its keys.
    pub backup: PathBuf,
}

/// Sets the epoch of the store in `dir` to `above`, or, if that is `None` and the store's epoch is impossible, to a
/// number that is certainly high enough.
///
/// # Errors
/// If a coordinator runs there, the backup fails, or the epoch must not be set.
pub fn repair_epoch(dir: &Path, above: Option<u64>) -> Result<EpochRepair, RepairError> {
    become_owner(dir).map_err(|source| RepairError::Owner {
        dir: dir.to_owned(),
        source,
    })?;
    let name = format!("before-repair-{}.backup", timestamp(wall())).replace(':', "");
    let backup = dir.join(name);
    control::backup(dir, &backup, true)?;
    let done = set(dir, above);
    if done.is_err() {
        let _it_is_of_no_use = fs::remove_file(&backup);
    }
    let (from, to) = done?;
    Ok(EpochRepair { from, to, backup })
}

fn set(dir: &Path, above: Option<u64>) -> Result<(u64, u64), RepairError> {
    let (mut store, recovered) = Store::open(dir, DEFAULT_RETENTION)?;
    let from = recovered.state.epoch().map_or(0, |epoch| epoch.counter);
    let outcome = target(from, above);
    if let Ok(to) = outcome {
        let record = LogEntry {
            seq: recovered.last_seq + 1,
            at: wall().max(recovered.last_at),
            record: Record::CoordinatorStarted {
                epoch: Epoch {
                    cluster: recovered.cluster,
                    counter: to,
                },
                // The record keeps the leases of earlier epochs; this one has granted none.
                lost_after: Span::ZERO,
            },
        };
        store.append_offline(&record, recovered.recovers)?;
    }
    store.close()?;
    Ok((from, outcome?))
}

fn target(from: u64, above: Option<u64>) -> Result<u64, RepairError> {
    let is_possible = from < MAX_EPOCH;
    match above {
        None if is_possible => Err(RepairError::InOrder { epoch: from }),
        None => Ok(AFRESH),
        Some(above) if above >= MAX_EPOCH => Err(RepairError::TooHigh),
        Some(above) if is_possible && above <= from => Err(RepairError::Lower { epoch: from }),
        Some(above) => Ok(above),
    }
}

/// Becomes the owner of the directory: the coordinator, which is not root, must be able to use the files, and links in
/// its directory must not lead root elsewhere.
fn become_owner(dir: &Path) -> io::Result<()> {
    let owner = fs::metadata(dir)?;
    if !geteuid().is_root() || owner.uid() == 0 {
        return Ok(());
    }
    setgroups(&[])?;
    setgid(owner.gid().into())?;
    setuid(owner.uid().into())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_core::RecoveryCause;
    use sluice_common::time::Time;

    fn driven_to(dir: &Path, counter: u64) {
        let (mut store, recovered) = Store::open(dir, DEFAULT_RETENTION).unwrap();
        let cluster = recovered.cluster;
        let record = LogEntry {
            seq: recovered.last_seq + 1,
            at: Time::from_unix_millis(1),
            record: Record::CoordinatorStarted {
                epoch: Epoch { cluster, counter },
                lost_after: Span::from_secs(1),
            },
        };
        store.append(&[record]).unwrap();
        store.close().unwrap();
    }

    fn epoch_in(dir: &Path) -> (u64, Option<RecoveryCause>) {
        let (store, recovered) = Store::open(dir, DEFAULT_RETENTION).unwrap();
        store.close().unwrap();
        let epoch = recovered.state.epoch().unwrap();
        (epoch.counter, recovered.recovers)
    }

    #[test]
    fn an_impossible_epoch_is_set_back_and_what_was_there_is_in_a_backup() {
        let dir = tempfile::tempdir().unwrap();
        let poisoned = (1 << 53) + 1;
        driven_to(dir.path(), poisoned);
        let done = repair_epoch(dir.path(), None).unwrap();
        assert_eq!((done.from, done.to), (poisoned, AFRESH));
        assert_eq!(epoch_in(dir.path()), (AFRESH, None));
        let backup = control::check(&done.backup).unwrap();
        assert_eq!(backup.state.epoch().unwrap().counter, poisoned);
    }

    #[test]
    fn an_epoch_in_order_is_raised_by_an_explicit_word_and_never_lowered() {
        let dir = tempfile::tempdir().unwrap();
        driven_to(dir.path(), 7);
        let refused = |above| repair_epoch(dir.path(), above).unwrap_err().to_string();
        assert!(refused(None).contains("epoch 7 is in order"));
        assert!(refused(Some(6)).contains("epoch 7 already"));
        assert!(refused(Some(MAX_EPOCH)).contains("must be less"));
        let left = fs::read_dir(dir.path()).unwrap().flatten();
        let backups = left.filter(|it| it.file_name().to_string_lossy().contains("backup"));
        assert_eq!(backups.count(), 0, "nothing was done, so nothing is kept");
        assert_eq!(repair_epoch(dir.path(), Some(57)).unwrap().to, 57);
        assert_eq!(epoch_in(dir.path()), (57, None));
    }

    #[test]
    fn a_recovery_that_is_to_begin_is_begun_after_a_repair() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = "c".parse().unwrap();
        let (store, _) = Store::open_of(dir.path(), DEFAULT_RETENTION, Some(cluster)).unwrap();
        store.close().unwrap();
        repair_epoch(dir.path(), Some(57)).unwrap();
        assert_eq!(epoch_in(dir.path()), (57, Some(RecoveryCause::StoreLost)));
    }

    #[test]
    fn a_store_in_use_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        driven_to(dir.path(), 7);
        let (_store, _) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
        assert!(repair_epoch(dir.path(), Some(57)).is_err());
    }
}
