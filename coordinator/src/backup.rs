//! Makes and reads backups: one file with all that a coordinator needs to go on elsewhere, which is its store and,
//! unless they are left out, its keys. `backup/control.rs` asks a running coordinator for one, `backup/restore.rs`
//! makes a data directory from one, `backup/check.rs` verifies one.
//!
//! ```text
//! H <crc32> {"format":1,"cluster":...}     header
//! K <crc32> {"path":"tls/ca.key",...}      a file beside the store
//! S <crc32> {"seq":...,"state":...}        the newest snapshot
//! R <crc32> {"seq":...,"type":...}         each record of the log, in order
//! V <crc32> {"step":...,"env":...}         the variables of each step
//! E <crc32> {"lines":...,"sha256":...}     trailer: digest of everything before it
//! ```
//! Each line is text as it is in the store, so that a person can read it if everything else fails. A file without the
//! trailer was cut off.

pub mod check;
pub mod control;
pub mod restore;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use ring::digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sluice_common::api::timestamp;
use sluice_common::hex;
use sluice_common::id::ClusterId;

use crate::clock::wall;
use crate::seal::KEY_FILE;
use crate::store::{
    ExportError, HistoryError, StoreError, StoreHistory, StorePart, StoreReader, seal_line,
    unseal_line,
};

/// Version of the file format. Other versions are rejected.
pub const FORMAT: u32 = 1;

/// Longest line: the snapshot of a cluster that remembers a hundred thousand steps is a tenth of it.
const MAX_LINE_BYTES: u64 = 4 << 30;

/// Directory of the TLS keys, below the data directory.
const KEY_DIR: &str = "tls";

/// Bytes that the name of a file may have on Linux (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// Why a backup could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The file is not a backup.
    #[error("{} is not a backup of a coordinator: its first line is not a backup's header", path.display())]
    NoBackup { path: PathBuf },
    /// Another version wrote the file.
    #[error("{} has format {found}, and this version reads format {FORMAT}: use the version that wrote it", path.display())]
    OtherFormat { path: PathBuf, found: u32 },
    /// A line is damaged.
    #[error("{} is damaged at line {line}{}: {what}", path.display(), of_record(*record))]
    Damaged {
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// Record in the damaged line, or expected there.
        record: Option<u64>,
        what: String,
    },
    /// The trailer is missing.
    #[error("{} is cut off after line {lines}: take another backup, or use an earlier one", path.display())]
    CutOff {
        path: PathBuf,
        /// Number of lines found.
        lines: u64,
    },
    /// A running coordinator refused to give a backup.
    #[error("the coordinator that runs in {} gave no backup: {why}", dir.display())]
    Refused {
        dir: PathBuf,
        /// The coordinator's message.
        why: String,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store in the data directory cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The target already has a store.
    #[error(
        "there is a store in {} already: choose another --data-dir, or move what is there aside with --force",
        dir.display()
    )]
    Occupied { dir: PathBuf },
}

fn of_record(record: Option<u64>) -> String {
    record.map_or_else(String::new, |seq| format!(", record {seq}"))
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io {
        action,
        path,
        source,
    }
}

/// Header of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the file format, [`FORMAT`].
    pub format: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// Id of the cluster.
    pub cluster: ClusterId,
    /// Time at which the backup began.
    pub made_at: Timestamp,
    /// Whether the backup contains the keys.
    pub keys: bool,
}

/// A file beside the store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFile {
    /// Path relative to the data directory: a file name, or one in `tls/`.
    pub path: String,
    /// Whether only its owner may read it.
    pub private: bool,
    /// All of it.
    pub text: String,
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyFile({})", self.path)
    }
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Trailer {
    lines: u64,
    sha256: String,
}

/// Source of a backup: a running or a stopped store.
#[derive(Debug)]
pub(crate) enum BackupSource<'a> {
    /// A coordinator that runs: ourselves.
    Running(&'a StoreReader),
    /// A directory in which none runs.
    Resting(&'a StoreHistory),
}

impl BackupSource<'_> {
    fn cluster(&self) -> Result<ClusterId, StoreError> {
        match self {
            BackupSource::Running(reader) => reader.cluster(),
            BackupSource::Resting(past) => Ok(past.cluster().clone()),
        }
    }

    fn export(
        &self,
        take: &mut dyn FnMut(StorePart<'_>) -> io::Result<()>,
    ) -> Result<(), ExportError> {
        match self {
            BackupSource::Running(reader) => reader.export(take),
            BackupSource::Resting(past) => past.export(take),
        }
    }
}

/// Writes a backup of the data directory to `out`; `path` is where that is, for messages.
pub(crate) fn write(
    source: &BackupSource<'_>,
    data_dir: &Path,
    keys: bool,
    (out, path): (&mut dyn Write, &Path),
) -> Result<(), BackupError> {
    let mut writer = BackupWriter {
        out,
        digest: digest::Context::new(&digest::SHA256),
        lines: 0,
    };
    let failed = |error| io_error("write", path)(error);
    let header = Header {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: source.cluster()?,
        made_at: timestamp(wall()),
        keys,
    };
    writer.line(b'H', &seal_line(&header)).map_err(failed)?;
    if keys {
        for file in key_files(data_dir)? {
            writer.line(b'K', &seal_line(&file)).map_err(failed)?;
        }
    }
    let exported = source.export(&mut |piece| match piece {
        StorePart::Snapshot { text, .. } => writer.line(b'S', text),
        StorePart::Record { text, .. } => writer.line(b'R', text),
        StorePart::Variables { text, .. } => writer.line(b'V', text),
    });
    exported.map_err(|error| match error {
        ExportError::Store(error) => error.into(),
        ExportError::Sink(error) => failed(error),
    })?;
    writer.end().map_err(failed)
}

struct BackupWriter<'a> {
    out: &'a mut dyn Write,
    digest: digest::Context,
    lines: u64,
}

impl BackupWriter<'_> {
    fn line(&mut self, kind: u8, text: &[u8]) -> io::Result<()> {
        for part in [&[kind, b' '][..], text, b"\n"] {
            self.digest.update(part);
            self.out.write_all(part)?;
        }
        self.lines += 1;
        Ok(())
    }

    fn end(mut self) -> io::Result<()> {
        let end = Trailer {
            lines: self.lines,
            sha256: hex::encode(self.digest.clone().finish().as_ref()),
        };
        self.line(b'E', &seal_line(&end))?;
        self.out.flush()
    }
}

/// The keys of a data directory; those of a cluster whose certificates lie elsewhere are not among them, nor what an
/// editor has left beside them.
fn key_files(data_dir: &Path) -> Result<Vec<KeyFile>, BackupError> {
    let mut names: Vec<String> = Vec::new();
    if data_dir.join(KEY_FILE).exists() {
        names.push(KEY_FILE.to_owned());
    }
    let dir = data_dir.join(KEY_DIR);
    if dir.exists() {
        let entries = fs::read_dir(&dir).map_err(io_error("read", &dir))?;
        for entry in entries {
            let entry = entry.map_err(io_error("read", &dir))?;
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            let name = entry.file_name();
            let path = name.to_str().map(|name| format!("{KEY_DIR}/{name}"));
            names.extend(path.filter(|path| is_file && is_key_path(path)));
        }
    }
    names.sort_unstable();
    names
        .into_iter()
        .map(|path| key_file(data_dir, path))
        .collect()
}

/// Whether `path` is the key of warrants or a plain file name in `tls/`. Anything else could lead out of the directory
/// or overwrite the store.
fn is_key_path(path: &str) -> bool {
    let in_dir = path
        .strip_prefix(KEY_DIR)
        .and_then(|rest| rest.strip_prefix('/'));
    let Some(name) = in_dir else {
        return path == KEY_FILE;
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let length = 1..=LONGEST_NAME;
    length.contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

fn key_file(data_dir: &Path, path: String) -> Result<KeyFile, BackupError> {
    use std::os::unix::fs::PermissionsExt;
    let full = data_dir.join(&path);
    let text = fs::read_to_string(&full).map_err(io_error("read", &full))?;
    let mode = fs::metadata(&full)
        .map_err(io_error("read", &full))?
        .permissions()
        .mode();
    Ok(KeyFile {
        path,
        private: mode & 0o077 == 0,
        text,
    })
}

/// One line of a backup.
#[derive(Debug)]
pub(crate) enum BackupLine {
    Header(Header),
    Key(KeyFile),
    /// Line with checksum and JSON.
    Snapshot(Vec<u8>),
    /// Line with checksum and JSON.
    Record(Vec<u8>),
    /// Line with checksum and JSON.
    Variables(Vec<u8>),
}

/// Reads a backup line by line and verifies that it is complete.
pub(crate) struct BackupReader<R> {
    input: R,
    path: PathBuf,
    digest: digest::Context,
    /// Number of the last line read, starting at 1.
    pub(crate) line: u64,
}

impl<R: BufRead> BackupReader<R> {
    pub(crate) fn new(input: R, path: &Path) -> Self {
        Self {
            input,
            path: path.to_owned(),
            digest: digest::Context::new(&digest::SHA256),
            line: 0,
        }
    }

    /// Returns the next line; `None` after a valid trailer.
    pub(crate) fn next(&mut self) -> Result<Option<BackupLine>, BackupError> {
        let mut text = Vec::new();
        let mut limited = Read::take(&mut self.input, MAX_LINE_BYTES);
        let read = limited.read_until(b'\n', &mut text);
        read.map_err(io_error("read", &self.path))?;
        let before = self.digest.clone();
        self.digest.update(&text);
        if text.pop() != Some(b'\n') {
            return Err(self.cut_off(text.is_empty()));
        }
        self.line += 1;
        let Some((kind, sealed)) = split(&text) else {
            return Err(self.strange("it is not a line of a backup"));
        };
        Ok(Some(match kind {
            b'H' => BackupLine::Header(self.header(sealed)?),
            _ if self.line == 1 => {
                return Err(BackupError::NoBackup {
                    path: self.path.clone(),
                });
            }
            b'K' => BackupLine::Key(self.parse(sealed)?),
            b'S' => BackupLine::Snapshot(sealed.to_vec()),
            b'R' => BackupLine::Record(sealed.to_vec()),
            b'V' => BackupLine::Variables(sealed.to_vec()),
            b'E' => {
                let end: Trailer = self.parse(sealed)?;
                self.check_end(&end, before)?;
                return Ok(None);
            }
            _ => return Err(self.strange("it is of a kind that this version does not read")),
        }))
    }

    fn header(&self, sealed: &[u8]) -> Result<Header, BackupError> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let FormatOnly { format } = self.parse(sealed)?;
        match format {
            FORMAT => self.parse(sealed),
            found => Err(BackupError::OtherFormat {
                path: self.path.clone(),
                found,
            }),
        }
    }

    fn check_end(&mut self, end: &Trailer, before: digest::Context) -> Result<(), BackupError> {
        let found = hex::encode(before.finish().as_ref());
        if end.lines + 1 != self.line || end.sha256 != found {
            return Err(self.strange("the lines before it were changed after they were written"));
        }
        let more = self
            .input
            .fill_buf()
            .map_err(io_error("read", &self.path))?;
        match more.is_empty() {
            true => Ok(()),
            false => Err(self.strange("something follows the last line")),
        }
    }

    fn cut_off(&self, at_line: bool) -> BackupError {
        let path = self.path.clone();
        match (self.line, at_line) {
            (0, _) => BackupError::NoBackup { path },
            (lines, _) => BackupError::CutOff { path, lines },
        }
    }

    fn parse<T: DeserializeOwned>(&self, sealed: &[u8]) -> Result<T, BackupError> {
        let json = unseal_line(sealed).map_err(|damage| self.strange(damage))?;
        serde_json::from_slice(json).map_err(|error| self.strange(error))
    }

    pub(crate) fn strange(&self, what: impl ToString) -> BackupError {
        self.damaged(None, what)
    }

    pub(crate) fn damaged(&self, record: Option<u64>, what: impl ToString) -> BackupError {
        BackupError::Damaged {
            path: self.path.clone(),
            line: self.line,
            record,
            what: what.to_string(),
        }
    }
}

fn split(line: &[u8]) -> Option<(u8, &[u8])> {
    match line {
        [kind, b' ', sealed @ ..] => Some((*kind, sealed)),
        _ => None,
    }
}

/// Creates a temporary file beside `path`, readable by its owner alone, which is renamed once it is complete.
pub(crate) fn draft_beside(path: &Path) -> Result<(File, PathBuf), BackupError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let draft = path.with_file_name(name);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .map_err(io_error("write", &draft))?;
    Ok((file, draft))
}
