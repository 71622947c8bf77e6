//! Verifies all of a backup: every checksum, the numbers of the records, and that they build a state.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::io::BufRead;
use std::path::Path;

use coordinator_core::{LogEntry, State};
use sluice_common::api::timestamp;
use sluice_common::environment::Environment;
use sluice_common::time::Time;

use super::{BackupError, BackupLine, BackupReader, FORMAT, Header, KeyFile, is_key_path, wall};
use crate::store::{CheckedStore, parse_record, parse_snapshot, parse_variables};

/// Contents of a backup or a store.
#[derive(Debug)]
pub struct Summary {
    /// Header of the backup.
    pub header: Header,
    /// Names of its key files.
    pub keys: Vec<String>,
    /// First record kept; 0 if there is none.
    pub first: u64,
    /// Last record; 0 if there is none.
    pub last: u64,
    /// Last record in its snapshot, if it has one.
    pub snapshot: Option<u64>,
    /// Time of the last record.
    pub last_at: Time,
    /// State after all records.
    pub state: State,
    /// Variables of steps, until they are put back into them.
    variables: BTreeMap<String, Environment>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            header,
            first,
            last,
            state,
            ..
        } = self;
        let snapshot = self.snapshot;
        let snapshot = snapshot.map_or("none".to_owned(), |seq| format!("of record {seq}"));
        let last_at = match last {
            0 => "never".to_owned(),
            _ => timestamp(self.last_at).to_string(),
        };
        let keys = match self.keys.is_empty() {
            true => "none in it".to_owned(),
            false => self.keys.join(", "),
        };
        let epoch = state.epoch().map_or(0, |epoch| epoch.counter);
        // The file may have been written by an attacker.
        let version = header.version.escape_debug();
        write!(
            f,
            "cluster   {}, epoch {epoch}, written by version {version}\nrecords   {first} to {last}, the last of {last_at}\n\
             snapshot  {snapshot}\nholds     {} pools, {} nodes, {} steps\nkeys      {keys}",
            header.cluster,
            state.pools().len(),
            state.nodes().len(),
            state.steps().len(),
        )
    }
}

/// Receives the lines of a backup while it is read, in order.
pub(crate) trait BackupVisitor {
    fn header(&mut self, header: &Header) -> Result<(), BackupError>;
    fn key(&mut self, key: &KeyFile) -> Result<(), BackupError>;
    fn snapshot(&mut self, seq: u64, text: &[u8]) -> Result<(), BackupError>;
    fn record(&mut self, seq: u64, text: &[u8]) -> Result<(), BackupError>;
    fn variables(&mut self, step: &str, text: &[u8]) -> Result<(), BackupError>;
}

pub(crate) struct NoVisitor;

impl BackupVisitor for NoVisitor {
    fn header(&mut self, _: &Header) -> Result<(), BackupError> {
        Ok(())
    }
    fn key(&mut self, _: &KeyFile) -> Result<(), BackupError> {
        Ok(())
    }
    fn snapshot(&mut self, _: u64, _: &[u8]) -> Result<(), BackupError> {
        Ok(())
    }
    fn record(&mut self, _: u64, _: &[u8]) -> Result<(), BackupError> {
        Ok(())
    }
    fn variables(&mut self, _: &str, _: &[u8]) -> Result<(), BackupError> {
        Ok(())
    }
}

/// Reads a backup to its end. Each line goes to `visitor` once it was found valid, before the next is read.
///
/// # Errors
/// The first damage, by line and record.
pub(crate) fn read<R: BufRead>(
    input: R,
    path: &Path,
    visitor: &mut dyn BackupVisitor,
) -> Result<Summary, BackupError> {
    let mut reader = BackupReader::new(input, path);
    let header = match reader.next()? {
        Some(BackupLine::Header(header)) => header,
        Some(_) | None => {
            return Err(BackupError::NoBackup {
                path: path.to_owned(),
            });
        }
    };
    visitor.header(&header)?;
    let mut summary = Summary {
        header,
        keys: Vec::new(),
        first: 0,
        last: 0,
        snapshot: None,
        last_at: Time::default(),
        state: State::default(),
        variables: BTreeMap::new(),
    };
    while let Some(line) = reader.next()? {
        summary.take(&reader, line, visitor)?;
    }
    let mut variables = std::mem::take(&mut summary.variables);
    let environment_of = |step: &str| Ok::<_, Infallible>(variables.remove(step));
    let Ok(lacking) = summary.state.give_environments(environment_of);
    if let Some(step) = lacking {
        return Err(reader.strange(format!("the variables of step `{step}` are missing")));
    }
    match summary.snapshot {
        // The log keeps the record of the newest snapshot.
        Some(seq) if summary.last < seq => Err(reader.damaged(Some(seq), "it is missing")),
        Some(_) | None => Ok(summary),
    }
}

impl Summary {
    /// Summary of the store of a stopped coordinator that could start on it.
    pub(super) fn of_store(judged: CheckedStore) -> Self {
        let CheckedStore {
            recovered,
            snapshot,
            first,
        } = judged;
        Self {
            header: Header {
                format: FORMAT,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                cluster: recovered.cluster,
                made_at: timestamp(wall()),
                keys: false,
            },
            keys: Vec::new(),
            first,
            last: recovered.last_seq,
            snapshot,
            last_at: recovered.last_at,
            state: recovered.state,
            variables: BTreeMap::new(),
        }
    }

    fn take<R: BufRead>(
        &mut self,
        reader: &BackupReader<R>,
        line: BackupLine,
        visitor: &mut dyn BackupVisitor,
    ) -> Result<(), BackupError> {
        match line {
            BackupLine::Header(_) => Err(reader.strange("a second header")),
            BackupLine::Variables(text) => {
                let parsed = parse_variables(&text);
                let (step, env) = parsed.map_err(|damage| reader.strange(damage))?;
                visitor.variables(&step, &text)?;
                self.variables.insert(step, env);
                Ok(())
            }
            BackupLine::Key(key) => {
                if !is_key_path(&key.path) {
                    return Err(reader.strange(
                        "the name of a key leads elsewhere or is none that a file can have",
                    ));
                }
                if self.keys.contains(&key.path) {
                    return Err(reader.strange("it contains a key twice"));
                }
                visitor.key(&key)?;
                self.keys.push(key.path);
                Ok(())
            }
            BackupLine::Snapshot(text) => {
                let (seq, at, state) =
                    parse_snapshot(&text).map_err(|damage| reader.strange(damage))?;
                self.snapshot = Some(seq);
                self.last_at = at;
                self.state = state;
                visitor.snapshot(seq, &text)
            }
            BackupLine::Record(text) => self.take_record(reader, &text, visitor),
        }
    }

    fn take_record<R: BufRead>(
        &mut self,
        reader: &BackupReader<R>,
        text: &[u8],
        visitor: &mut dyn BackupVisitor,
    ) -> Result<(), BackupError> {
        let expected = (self.last > 0).then_some(self.last + 1);
        let record: LogEntry =
            parse_record(text).map_err(|damage| reader.damaged(expected, damage))?;
        let seq = record.seq;
        let known = self.snapshot.unwrap_or(0);
        // Before the snapshot the log may begin anywhere; the record right after it must be there.
        let expected = expected.unwrap_or_else(|| seq.min(known + 1));
        if seq != expected {
            return Err(reader.damaged(Some(expected), format!("record {seq} stands in its place")));
        }
        if self.first == 0 {
            self.first = seq;
        }
        self.last = seq;
        if seq > known {
            let fit = self.state.apply(&record);
            fit.map_err(|misfit| reader.damaged(Some(seq), misfit.what))?;
            self.last_at = self.last_at.max(record.at);
        }
        visitor.record(seq, text)
    }
}
