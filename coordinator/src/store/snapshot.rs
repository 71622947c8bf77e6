//! Snapshots: their JSON is stored in parts, each committed alone between the records of the log, so that neither the
//! memory nor a pause of the engine grows with the state. A snapshot counts once its head is stored: its checksum, and in
//! stores of earlier releases the JSON too.

use std::io::{self, Write};
use std::path::Path;

use coordinator_core::StoredState;
use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata, TableError, WriteTransaction};
use serde::{Deserialize, Serialize};
use sluice_common::time::Time;

use super::encoding;
use super::error::StoreError;
use super::tables::{SNAPSHOT, SNAPSHOT_PART};

/// Number of kept snapshots: the newest, and one for investigating a damaged store.
pub(super) const SNAPSHOTS_KEPT: usize = 2;

/// Bytes of a part. With its key it fits into a page of 1 MiB.
const PART_BYTES: usize = 1_000_000;

/// A stored state with its position in the log.
#[derive(Debug, Serialize, Deserialize)]
pub struct Snapshot<S> {
    pub(super) seq: u64,
    pub(super) at: Time,
    pub(super) state: S,
}

/// A piece of the JSON of a snapshot.
#[derive(Debug)]
pub struct SnapshotPart {
    seq: u64,
    index: u32,
    json: Vec<u8>,
}

/// A snapshot whose parts were all handed on.
#[derive(Debug)]
pub struct SealedSnapshot {
    pub(super) seq: u64,
    pub(super) head: Vec<u8>,
    /// Bytes of the head and of all parts.
    pub(super) bytes: u64,
}

impl SealedSnapshot {
    /// Number of the last record before the snapshot.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl Snapshot<StoredState> {
    /// Hands the parts of the snapshot on, in order. Takes seconds if the state is large.
    ///
    /// # Errors
    /// If `take` fails.
    pub fn seal(
        self,
        take: impl FnMut(SnapshotPart) -> io::Result<()>,
    ) -> io::Result<SealedSnapshot> {
        self.seal_in_parts(PART_BYTES, take)
    }

    /// Returns all parts, which are small, so that there are many.
    #[cfg(test)]
    pub(super) fn small_parts(self) -> (Vec<SnapshotPart>, SealedSnapshot) {
        let mut parts = Vec::new();
        let sealed = self.seal_in_parts(1_000, |part| {
            parts.push(part);
            Ok(())
        });
        (parts, sealed.unwrap())
    }

    fn seal_in_parts(
        self,
        part_bytes: usize,
        take: impl FnMut(SnapshotPart) -> io::Result<()>,
    ) -> io::Result<SealedSnapshot> {
        let mut writer = PartWriter {
            take,
            part_bytes,
            hasher: crc32fast::Hasher::new(),
            bytes: 0,
            part: SnapshotPart {
                seq: self.seq,
                index: 0,
                json: Vec::with_capacity(part_bytes),
            },
        };
        serde_json::to_writer(&mut writer, &self)?;
        writer.hand_on()?;
        let head = encoding::head(writer.hasher.finalize());
        Ok(SealedSnapshot {
            seq: self.seq,
            bytes: writer.bytes + head.len() as u64,
            head,
        })
    }
}

/// Cuts JSON into parts.
struct PartWriter<F> {
    take: F,
    part_bytes: usize,
    hasher: crc32fast::Hasher,
    bytes: u64,
    part: SnapshotPart,
}

impl<F: FnMut(SnapshotPart) -> io::Result<()>> PartWriter<F> {
    fn hand_on(&mut self) -> io::Result<()> {
        let next = SnapshotPart {
            seq: self.part.seq,
            index: self.part.index + 1,
            json: Vec::with_capacity(self.part_bytes),
        };
        let part = std::mem::replace(&mut self.part, next);
        self.hasher.update(&part.json);
        self.bytes += part.json.len() as u64;
        (self.take)(part)
    }
}

impl<F: FnMut(SnapshotPart) -> io::Result<()>> Write for PartWriter<F> {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        let room = self.part_bytes - self.part.json.len();
        let taken = json.len().min(room);
        self.part.json.extend_from_slice(&json[..taken]);
        if taken == room {
            self.hand_on()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stores a part. The first drops what is left of snapshots that never came to their end.
pub(super) fn add_part(txn: &WriteTransaction, part: &SnapshotPart) -> Result<(), redb::Error> {
    let mut parts = txn.open_table(SNAPSHOT_PART)?;
    if part.index == 0 {
        // By the gaps between the whole ones: to look at a part is to read it.
        let mut gap = 0;
        for entry in txn.open_table(SNAPSHOT)?.iter()? {
            let whole = entry?.0.value();
            parts.retain_in((gap, 0)..(whole, 0), |_, _| false)?;
            gap = whole + 1;
        }
        parts.retain_in((gap, 0).., |_, _| false)?;
    }
    parts.insert((part.seq, part.index), part.json.as_slice())?;
    Ok(())
}

/// Stores the head of a snapshot whose parts are stored, drops older snapshots than are kept, and returns the number of
/// the oldest.
pub(super) fn add_head(
    txn: &WriteTransaction,
    sealed: &SealedSnapshot,
) -> Result<u64, redb::Error> {
    let mut snapshots = txn.open_table(SNAPSHOT)?;
    let mut parts = txn.open_table(SNAPSHOT_PART)?;
    snapshots.insert(sealed.seq, sealed.head.as_slice())?;
    while snapshots.len()? > SNAPSHOTS_KEPT as u64 {
        if let Some((dropped, _)) = snapshots.pop_first()? {
            let dropped = dropped.value();
            parts.retain_in((dropped, 0)..=(dropped, u32::MAX), |_, _| false)?;
        }
    }
    Ok(snapshots.first()?.map_or(0, |(seq, _)| seq.value()))
}

/// Returns the whole text of a snapshot, whose head is stored under `seq`.
///
/// # Errors
/// If the parts cannot be read.
pub(super) fn text_of(
    txn: &ReadTransaction,
    file: &Path,
    (seq, head): (u64, &[u8]),
) -> Result<Vec<u8>, StoreError> {
    let opening = |error: redb::StorageError| StoreError::opening(file, error.into());
    let mut text = head.to_vec();
    let parts = match txn.open_table(SNAPSHOT_PART) {
        Ok(parts) => parts,
        // A store of an earlier release.
        Err(TableError::TableDoesNotExist(_)) => return Ok(text),
        Err(other) => return Err(StoreError::opening(file, other.into())),
    };
    for entry in parts.range((seq, 0)..=(seq, u32::MAX)).map_err(opening)? {
        let (_, json) = entry.map_err(opening)?;
        text.extend_from_slice(json.value());
    }
    Ok(text)
}
