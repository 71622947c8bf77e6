//! The journal: records that are durable and not in the tables of the store yet.
//!
//! A commit of the tables writes many pages, which takes a millisecond. A commit of the engine is one write to this file
//! instead, whose blocks exist already. Its records go to the tables together with many others once the file is full;
//! then it is written from its beginning again. An opening store does the same with what it finds.
//!
//! ```text
//! frame:  "sluicejl"  CRC-32 of what follows  bytes of the records  number of records  number of the first
//!         then for each record: its text, the key and text of its variables, the keys of those it drops
//! ```
//! Numbers are little-endian, and each text and key follows its length. A frame begins at a sector of its own, so that
//! its write never touches an earlier one. Frames of an earlier pass have lower numbers, so they are told from new ones.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coordinator_core::LogEntry;
use redb::StorageBackend;
use redb::backends::FileBackend;

use super::encoding;
use super::error::StoreError;
use super::tables::StepVariables;

/// Name of the file in the data directory.
pub(crate) const JOURNAL_FILE: &str = "journal";

/// Size of the file: about a thousand records, which take some 10 ms to go to the tables.
const JOURNAL_BYTES: u64 = 512 << 10;

/// Unit in which disks write.
const SECTOR_BYTES: usize = 512;

const MAGIC: &[u8; 8] = b"sluicejl";

/// Bytes before the records of a frame.
const FRAME_HEAD_BYTES: usize = 32;

/// A record as it goes to the tables.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredRecord {
    pub(super) seq: u64,
    /// Checksum and JSON.
    pub(super) line: Vec<u8>,
    /// Key, and checksum and JSON, of the variables that come with it.
    pub(super) variables: Option<(String, Vec<u8>)>,
    /// Keys of the variables that are no longer needed after it.
    pub(super) dropped: Vec<String>,
}

impl StoredRecord {
    /// Encodes a record.
    pub(super) fn of(entry: &LogEntry) -> Self {
        let variables = entry.record.environment().map(|(key, values)| {
            let text = encoding::seal(&StepVariables {
                step: key.clone(),
                env: values.clone(),
            });
            (key, text)
        });
        Self {
            seq: entry.seq,
            line: encoding::seal(entry),
            variables,
            dropped: entry.record.forgotten_environments(),
        }
    }

    /// Bytes of the record in the log.
    pub(super) fn bytes(&self) -> u64 {
        self.line.len() as u64
    }

    fn write(&self, frame: &mut Vec<u8>) {
        let (key, text) = match &self.variables {
            Some((key, text)) => (key.as_bytes(), text.as_slice()),
            None => (&[][..], &[][..]),
        };
        for part in [&self.line, key, text] {
            put(frame, part);
        }
        frame.extend_from_slice(&length(self.dropped.len()));
        for key in &self.dropped {
            put(frame, key.as_bytes());
        }
    }

    fn read(seq: u64, rest: &mut &[u8]) -> Option<Self> {
        let line = take(rest)?.to_vec();
        let (key, text) = (text_of(take(rest)?)?, take(rest)?.to_vec());
        let count = number(rest)?;
        let dropped = (0..count).map(|_| text_of(take(rest)?));
        Some(Self {
            seq,
            line,
            variables: (!key.is_empty()).then_some((key, text)),
            dropped: dropped.collect::<Option<_>>()?,
        })
    }
}

fn length(count: usize) -> [u8; 4] {
    u32::try_from(count)
        .expect("a record is far below 4 GiB")
        .to_le_bytes()
}

fn put(frame: &mut Vec<u8>, part: &[u8]) {
    frame.extend_from_slice(&length(part.len()));
    frame.extend_from_slice(part);
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = number(rest)?;
    let (part, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(part)
}

fn text_of(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// The records of one commit.
struct JournalFrame {
    records: Vec<StoredRecord>,
    sectors: usize,
}

impl JournalFrame {
    /// Encodes a frame, filled up to whole sectors.
    fn encode(records: &[Arc<StoredRecord>]) -> Vec<u8> {
        let mut frame = vec![0; FRAME_HEAD_BYTES];
        records.iter().for_each(|record| record.write(&mut frame));
        let first = records.first().map_or(0, |record| record.seq);
        let body = (frame.len() - FRAME_HEAD_BYTES) as u64;
        frame[..8].copy_from_slice(MAGIC);
        frame[12..20].copy_from_slice(&body.to_le_bytes());
        frame[20..24].copy_from_slice(&length(records.len()));
        frame[24..32].copy_from_slice(&first.to_le_bytes());
        let checksum = crc32fast::hash(&frame[12..]);
        frame[8..12].copy_from_slice(&checksum.to_le_bytes());
        frame.resize(frame.len().next_multiple_of(SECTOR_BYTES), 0);
        frame
    }

    /// Reads the frame at the beginning of these bytes; `None` if there is no whole one.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (checksum, checked) = rest.split_first_chunk::<4>()?;
        let (body, rest) = checked.split_first_chunk::<8>()?;
        let body = usize::try_from(u64::from_le_bytes(*body)).ok()?;
        let checked = checked.get(..(FRAME_HEAD_BYTES - 12).checked_add(body)?)?;
        if magic != MAGIC || crc32fast::hash(checked) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = rest.get(..12_usize.checked_add(body)?)?;
        let count = number(&mut rest)?;
        let (first, mut rest) = rest.split_first_chunk::<8>()?;
        let numbers = u64::from_le_bytes(*first)..;
        let records = numbers.take(count);
        let records: Option<Vec<_>> = records
            .map(|seq| StoredRecord::read(seq, &mut rest))
            .collect();
        Some(Self {
            records: records.filter(|records| !records.is_empty())?,
            sectors: (FRAME_HEAD_BYTES + body).div_ceil(SECTOR_BYTES),
        })
    }

    fn last(&self) -> u64 {
        self.records.last().map_or(0, |record| record.seq)
    }
}

/// Returns the records in a journal that follow record `last` of the tables.
///
/// # Errors
/// The number of a record that is missing although a later one is there. Of the frame that was written when the machine
/// died no later one is there: nobody was told of it, and it counts as never written.
pub(super) fn records_after(last: u64, journal: &[u8]) -> Result<Vec<Arc<StoredRecord>>, u64> {
    let mut found = Vec::new();
    let mut next = last + 1;
    let mut at = 0;
    while let Some(frame) = journal.get(at..).and_then(JournalFrame::read) {
        at += frame.sectors * SECTOR_BYTES;
        for record in frame.records {
            match record.seq {
                seq if seq > next => return Err(next),
                seq if seq < next => {}
                _ => {
                    next += 1;
                    found.push(Arc::new(record));
                }
            }
        }
    }
    match last_in(journal.get(at..).unwrap_or_default()) {
        Some(later) if later >= next => Err(next),
        Some(_) | None => Ok(found),
    }
}

/// Returns the highest number of a record in a journal, wherever it is.
pub(super) fn last_in(journal: &[u8]) -> Option<u64> {
    let sectors = (0..journal.len()).step_by(SECTOR_BYTES);
    let frames = sectors.filter_map(|at| JournalFrame::read(&journal[at..]));
    frames.map(|frame| frame.last()).max()
}

/// Returns the content of the journal in `dir`; empty if there is none.
pub(super) fn read(dir: &Path) -> Result<Vec<u8>, StoreError> {
    let path = dir.join(JOURNAL_FILE);
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found.map_err(|source| StoreError::io("read", &path, source)),
    }
}

/// The open journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: Box<dyn StorageBackend>,
    /// Length of the file.
    room: u64,
    /// Position of the next frame.
    at: u64,
}

impl Journal {
    /// Opens the journal beside `store`, and makes it with all of its blocks if there is none. Its records must be in the
    /// tables: it is written from its beginning.
    pub(super) fn open(store: &Path) -> Result<Self, StoreError> {
        let path = store.with_file_name(JOURNAL_FILE);
        let making = |source| StoreError::io("make", &path, source);
        let file = FileBackend::new(make(&path, store).map_err(making)?);
        let file = file.map_err(|error| StoreError::opening(&path, error.into()))?;
        Self::on(path.clone(), file).map_err(making)
    }

    /// Uses a file of the right length.
    pub(super) fn on(path: PathBuf, file: impl StorageBackend) -> io::Result<Self> {
        Ok(Self {
            path,
            room: file.len()?,
            file: Box::new(file),
            at: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes records durable, or returns false if there is not enough room for them.
    pub(super) fn append(&mut self, records: &[Arc<StoredRecord>]) -> io::Result<bool> {
        let bytes: u64 = records.iter().map(|record| record.bytes()).sum();
        if self.at + bytes > self.room {
            return Ok(false);
        }
        let frame = JournalFrame::encode(records);
        let end = self.at + frame.len() as u64;
        if end > self.room {
            return Ok(false);
        }
        self.file.write(self.at, &frame)?;
        self.file.sync_data()?;
        self.at = end;
        Ok(true)
    }

    /// Begins again. All records must be in the tables.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
    }
}

/// Opens the file, and fills it with zeros if it is new: a write into existing blocks needs no change of the file system.
fn make(path: &Path, store: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    let length = file.metadata()?.len();
    if length < JOURNAL_BYTES {
        let lacking = usize::try_from(JOURNAL_BYTES - length).unwrap_or_default();
        file.write_all_at(&vec![0; lacking], length)?;
        if nix::unistd::geteuid().is_root() {
            let owner = fs::metadata(store)?;
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.sync_all()?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
    }
    Ok(file)
}
