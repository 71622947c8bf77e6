//! Snapshots are sealed on a thread of their own, one at a time, while the engine goes on.

use std::time::Instant;

use coordinator_core::State;
use tokio::task::{JoinError, JoinHandle};

use crate::store::{SealedSnapshot, Store, StoreError};

/// Writes snapshots of the engine's state to its store.
#[derive(Default)]
pub(super) struct SnapshotWriter {
    sealing: Option<JoinHandle<SealedSnapshot>>,
}

impl SnapshotWriter {
    /// Begins a snapshot if one is due. Everything decided must have been appended to the store.
    pub(super) fn begin_if_due(&mut self, store: &mut Store, state: &State) {
        if self.sealing.is_none() && store.snapshot_due() {
            let snapshot = store.begin_snapshot(state);
            self.sealing = Some(tokio::task::spawn_blocking(|| snapshot.seal()));
        }
    }

    /// Waits until a snapshot is sealed.
    pub(super) async fn sealed(&mut self) -> Result<SealedSnapshot, JoinError> {
        let Some(sealing) = &mut self.sealing else {
            return std::future::pending().await;
        };
        let sealed = sealing.await;
        self.sealing = None;
        sealed
    }
}

/// Adds a sealed snapshot to the store.
///
/// # Errors
/// If the commit failed.
pub(super) fn add(store: &mut Store, sealed: &SealedSnapshot) -> Result<(), StoreError> {
    let began = Instant::now();
    store.add_snapshot(sealed)?;
    let (seq, took_ms) = (sealed.seq(), began.elapsed().as_millis());
    tracing::info!(seq, took_ms, "snapshot stored");
    Ok(())
}
