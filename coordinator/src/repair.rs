//! Sets the epoch of a store in which no coordinator runs, after a backup of all that is there. For a counter that hosts
//! drove up while coordinators still believed them, and for a cluster that has lost its store and its `warrants.key`, in
//! which no host can prove what it has obeyed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use coordinator_core::{Record, Stamped};
use nix::unistd::{geteuid, setgid, setgroups, setuid};
use sluice_common::api::timestamp;
use sluice_common::epoch::MAX_EPOCH;
use sluice_common::id::Epoch;
use sluice_common::time::Span;

use crate::backup::{BackupError, control};
use crate::clock::wall;
use crate::store::{DEFAULT_RETENTION, Store, StoreError};

/// Where a counter begins anew that was too high: above all starts that a coordinator can have had before.
const AFRESH: u64 = 1 << 20;

/// Why an epoch was not set. The store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The directory belongs to somebody whom we cannot become, or is not there.
    #[error("cannot work as the owner of {}", dir.display())]
    Owner {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The backup failed.
    #[error("cannot back up first")]
    Backup(#[from] BackupError),
    /// The store cannot be opened, perhaps because a coordinator runs.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing is wrong.
    #[error(
        "epoch {epoch} is in order: nothing was changed; to go above what hosts have obeyed, use --above"
    )]
    InOrder {
        /// The store's.
        epoch: u64,
    },
    /// Hosts refuse a lower one, and the same needs no repair.
    #[error(
        "the store is at epoch {epoch} already, and the next coordinator goes above it: nothing was changed"
    )]
    Lower {
        /// The store's.
        epoch: u64,
    },
    /// No start would be left.
    #[error("--above must be less than {MAX_EPOCH}")]
    TooHigh,
}

/// What was done.
#[derive(Debug)]
pub struct Repaired {
    /// The epoch that the store had.
    pub from: u64,
    /// The one that it has now.
    pub to: u64,
    /// The store as it was, with its keys.
    pub backup: PathBuf,
}

/// Sets the epoch of the store in `dir` to `above`, or without it to a number that is surely high enough if the store's own
/// is impossible.
///
/// # Errors
/// Where a coordinator runs there, the backup fails, or the epoch is not to be set so.
pub fn repair_epoch(dir: &Path, above: Option<u64>) -> Result<Repaired, RepairError> {
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
    Ok(Repaired { from, to, backup })
}

fn set(dir: &Path, above: Option<u64>) -> Result<(u64, u64), RepairError> {
    let (mut store, recovered) = Store::open(dir, DEFAULT_RETENTION)?;
    let from = recovered.state.epoch().map_or(0, |epoch| epoch.counter);
    let outcome = target(from, above);
    if let Ok(to) = outcome {
        let record = Stamped {
            seq: recovered.last_seq + 1,
            at: wall().max(recovered.last_at),
            record: Record::CoordinatorStarted {
                epoch: Epoch {
                    cluster: recovered.cluster,
                    counter: to,
                },
                // The leases of those before are kept with the record; this one has given none.
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

/// The coordinator, which is not root, must be able to read and write what comes of it, and may have laid links in its
/// directory to what is not its own.
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
    use coordinator_core::RecoveryWhy;
    use sluice_common::time::Time;

    fn driven_to(dir: &Path, counter: u64) {
        let (mut store, recovered) = Store::open(dir, DEFAULT_RETENTION).unwrap();
        let cluster = recovered.cluster;
        let record = Stamped {
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

    fn epoch_in(dir: &Path) -> (u64, Option<RecoveryWhy>) {
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
        let kept = control::check(&done.backup).unwrap();
        assert_eq!(kept.state.epoch().unwrap().counter, poisoned);
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
        assert_eq!(epoch_in(dir.path()), (57, Some(RecoveryWhy::StoreLost)));
    }

    #[test]
    fn a_store_in_use_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        driven_to(dir.path(), 7);
        let (_store, _) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
        assert!(repair_epoch(dir.path(), Some(57)).is_err());
    }
}
