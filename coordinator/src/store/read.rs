//! Reads the log beside the writer: each call sees one committed state of the store.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use coordinator_core::LogEntry;
use redb::{Database, ReadableDatabase, ReadableTable};

use super::encoding::{self, Corruption};
use super::fold::JournalRecords;
use super::tables::LOG;

/// Most bytes of one read. A record may contain a megabyte, and a page of a thousand of those must not fill the memory.
const MAX_READ_BYTES: usize = 4 * 1024 * 1024;

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub record: LogEntry,
    /// The record as it is stored.
    pub json: String,
    /// The record as callers see it, once it was asked for.
    shown: OnceLock<String>,
}

impl Event {
    pub(crate) fn new(record: LogEntry, json: String) -> Self {
        Self {
            record,
            json,
            shown: OnceLock::new(),
        }
    }

    /// Returns the record as callers see it; `make` is called once, whatever the number of callers.
    pub(crate) fn shown(&self, make: impl FnOnce(&Self) -> String) -> &str {
        self.shown.get_or_init(|| make(self))
    }
}

/// A part of the log.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    /// The records that were asked for.
    pub events: Vec<Arc<Event>>,
    /// Number of the last record that was looked at; the position before it if there was none.
    pub last: u64,
    /// Number of records that were looked at; 0 at the end of the log.
    pub looked_at: usize,
}

/// Why the log cannot be read from a position.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The position is older than the kept records.
    #[error("the log begins at record {first}")]
    Gone {
        /// First record kept.
        first: u64,
    },
    #[error("cannot read the store {}", file.display())]
    Store {
        file: PathBuf,
        source: Box<redb::Error>,
    },
    /// A record is damaged.
    #[error("the store {} is damaged: table `log`, record {seq}", file.display())]
    Damaged {
        file: PathBuf,
        seq: u64,
        source: Corruption,
    },
}

/// Reads the log; cheap to clone.
#[derive(Clone, Debug)]
pub struct StoreReader {
    db: Arc<Database>,
    file: PathBuf,
    unfolded: JournalRecords,
}

impl StoreReader {
    pub(super) fn new(db: Arc<Database>, file: PathBuf, unfolded: JournalRecords) -> Self {
        Self { db, file, unfolded }
    }

    pub(super) fn unfolded(&self) -> &JournalRecords {
        &self.unfolded
    }

    pub(super) fn db(&self) -> &Database {
        &self.db
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Looks at the records after `since`, oldest first: at most `limit`, and fewer if they are large. Those whose JSON is
    /// not `wanted` are not parsed, which takes most of the time of a read.
    ///
    /// # Errors
    /// If the log no longer reaches back to `since`, or cannot be read.
    pub fn read(
        &self,
        since: u64,
        limit: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<LogPage, ReadError> {
        let failed = |source| ReadError::Store {
            file: self.file.clone(),
            source: Box::new(source),
        };
        let (first, lines) = self.lines(since, limit).map_err(failed)?;
        if first.is_some_and(|first| since + 1 < first) {
            return Err(ReadError::Gone {
                first: first.unwrap_or(0),
            });
        }
        let mut page = LogPage {
            events: Vec::new(),
            last: lines.last().map_or(since, |(seq, _)| *seq),
            looked_at: lines.len(),
        };
        for (seq, line) in &lines {
            let damaged = |source| ReadError::Damaged {
                file: self.file.clone(),
                seq: *seq,
                source,
            };
            let json = encoding::unseal(line).map_err(damaged)?;
            // Text that is not UTF-8 is reported as damage.
            if str::from_utf8(json).map_or(true, &wanted) {
                let event = event(json).map_err(|error| damaged(Corruption::Content(error)))?;
                page.events.push(Arc::new(event));
            }
        }
        Ok(page)
    }

    fn lines(
        &self,
        since: u64,
        limit: usize,
    ) -> Result<(Option<u64>, Vec<RawRecord>), redb::Error> {
        let unfolded = self.unfolded.all();
        let txn = self.db.begin_read()?;
        let log = txn.open_table(LOG)?;
        let first = log.first()?.map(|(seq, _)| seq.value());
        let first = first.or_else(|| unfolded.first().map(|record| record.seq));
        let mut lines: Vec<RawRecord> = Vec::new();
        let mut bytes = 0;
        let folded = log.range(since.saturating_add(1)..)?;
        for entry in folded.take(limit) {
            let (seq, line) = entry?;
            bytes += line.value().len();
            if bytes > MAX_READ_BYTES && !lines.is_empty() {
                return Ok((first, lines));
            }
            lines.push((seq.value(), line.value().to_vec()));
        }
        let last = lines.last().map_or(since, |(seq, _)| *seq);
        let room = limit - lines.len();
        for record in unfolded.iter().filter(|it| it.seq > last).take(room) {
            bytes += record.line.len();
            if bytes > MAX_READ_BYTES && !lines.is_empty() {
                break;
            }
            lines.push((record.seq, record.line.clone()));
        }
        Ok((first, lines))
    }
}

fn event(json: &[u8]) -> Result<Event, serde_json::Error> {
    let record = serde_json::from_slice(json)?;
    // The checksum was right and it parsed as JSON, so it is UTF-8.
    let json = String::from_utf8_lossy(json).into_owned();
    Ok(Event::new(record, json))
}

type RawRecord = (u64, Vec<u8>);
