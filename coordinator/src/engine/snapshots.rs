//! Snapshots are sealed on a thread of their own, one at a time, while the engine goes on.

use std::io;

use coordinator_core::State;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use crate::store::{SealedSnapshot, SnapshotPart, Store, StoreError};

/// Parts that wait for the engine; the sealing thread waits for it then.
const PARTS_AHEAD: usize = 2;

/// Writes snapshots of the engine's state to its store.
#[derive(Default)]
pub(super) struct SnapshotWriter {
    sealing: Option<SnapshotStream>,
}

/// A snapshot that is being sealed.
struct SnapshotStream {
    parts: mpsc::Receiver<SnapshotPart>,
    sealed: JoinHandle<io::Result<SealedSnapshot>>,
}

/// A piece of a snapshot, to be stored next.
pub(super) enum SnapshotOutput {
    Part(SnapshotPart),
    Whole(SealedSnapshot),
}

impl SnapshotWriter {
    /// Begins a snapshot if one is due. Everything decided must have been appended to the store.
    pub(super) fn begin_if_due(&mut self, store: &mut Store, state: &State) {
        if self.sealing.is_none() && store.snapshot_due() {
            let snapshot = store.begin_snapshot(state);
            let (sender, parts) = mpsc::channel(PARTS_AHEAD);
            let hand_on = move |part| sender.blocking_send(part).map_err(io::Error::other);
            let sealed = tokio::task::spawn_blocking(|| snapshot.seal(hand_on));
            self.sealing = Some(SnapshotStream { parts, sealed });
        }
    }

    /// Waits for the next piece of a snapshot. An error is a panic of the sealing thread.
    pub(super) async fn next(&mut self) -> Result<SnapshotOutput, JoinError> {
        let Some(sealing) = &mut self.sealing else {
            return std::future::pending().await;
        };
        if let Some(part) = sealing.parts.recv().await {
            return Ok(SnapshotOutput::Part(part));
        }
        let sealed = (&mut sealing.sealed).await;
        self.sealing = None;
        let sealed = sealed?.expect("whoever takes the parts has not gone");
        Ok(SnapshotOutput::Whole(sealed))
    }
}

/// Adds a piece of a snapshot to the store.
///
/// # Errors
/// If the commit failed.
pub(super) fn add(store: &mut Store, piece: &SnapshotOutput) -> Result<(), StoreError> {
    match piece {
        SnapshotOutput::Part(part) => store.add_part(part),
        SnapshotOutput::Whole(sealed) => {
            store.add_snapshot(sealed)?;
            tracing::info!(seq = sealed.seq(), "snapshot stored");
            Ok(())
        }
    }
}
