//! Backups: one file with all that a coordinator needs to go on elsewhere, its store and, unless they are left out, its
//! keys. `backup/control.rs` asks a coordinator that runs, `backup/restore.rs` makes a data directory of one,
//! `backup/check.rs` looks at all of it.
//!
//! ```text
//! H <crc32> {"format":1,"cluster":...}     what it is of
//! K <crc32> {"path":"tls/ca.key",...}      a file beside the store
//! S <crc32> {"seq":...,"state":...}        the newest snapshot
//! R <crc32> {"seq":...,"type":...}         a record of the log, and the next one, to the last
//! V <crc32> {"step":...,"env":...}         the variables of a step, and of the next
//! E <crc32> {"lines":...,"sha256":...}     of all that stands before it
//! ```
//! Lines of text, as they are in the store, so that a person can read one where everything else fails. A file without its
//! last line was cut off.

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
    ExportError, Past, PastError, Piece, StoreError, StoreReader, seal_line, unseal_line,
};

/// The form of the file. One of another form is refused, never guessed at.
pub const FORMAT: u32 = 1;

/// Longest line: the snapshot of a cluster that remembers a hundred thousand steps is a tenth of it.
const MAX_LINE_BYTES: u64 = 4 << 30;

/// The files beside the store that are keys, or come with them, and the directory that holds more of them.
const KEY_DIR: &str = "tls";

/// Bytes that the name of a file may have on Linux (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// Why there is no backup, or why it is no good.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file could not be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no backup of a coordinator: its first line is not that of one", path.display())]
    NoBackup {
        /// The file.
        path: PathBuf,
    },
    /// It was written by another version.
    #[error("{} has format {found}, and this version reads format {FORMAT}: use the version that wrote it", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// A line is not what was written.
    #[error("{} is damaged at line {line}{}: {what}", path.display(), of_record(*record))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// The record that stands there, or should.
        record: Option<u64>,
        /// In which way.
        what: String,
    },
    /// Its last line is missing.
    #[error("{} is cut off after line {lines}: take another backup, or use an earlier one", path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// How many there are.
        lines: u64,
    },
    /// The coordinator that runs does not give one.
    #[error("the coordinator that runs in {} gave no backup: {why}", dir.display())]
    Refused {
        /// The data directory.
        dir: PathBuf,
        /// In its words.
        why: String,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The data directory.
    #[error(transparent)]
    Past(#[from] PastError),
    /// There is a store already.
    #[error(
        "there is a store in {} already: choose another --data-dir, or move what is there aside with --force",
        dir.display()
    )]
    Occupied {
        /// The data directory.
        dir: PathBuf,
    },
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

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// The build that wrote it.
    pub version: String,
    /// The realm.
    pub cluster: ClusterId,
    /// When it was begun.
    pub made_at: Timestamp,
    /// Whether the keys are in it.
    pub keys: bool,
}

/// A file beside the store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFile {
    /// Where, from the data directory: a name, or one in `tls/`.
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
struct End {
    lines: u64,
    sha256: String,
}

/// Where a store is taken from.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// A coordinator that runs: ourselves.
    Running(&'a StoreReader),
    /// A directory in which none runs.
    Resting(&'a Past),
}

impl Source<'_> {
    fn cluster(&self) -> Result<ClusterId, StoreError> {
        match self {
            Source::Running(reader) => reader.cluster(),
            Source::Resting(past) => Ok(past.cluster().clone()),
        }
    }

    fn export(&self, take: &mut dyn FnMut(Piece<'_>) -> io::Result<()>) -> Result<(), ExportError> {
        match self {
            Source::Running(reader) => reader.export(take),
            Source::Resting(past) => past.export(take),
        }
    }
}

/// Writes a backup of the data directory to `out`; `path` is where that is, for messages.
pub(crate) fn write(
    source: &Source<'_>,
    data_dir: &Path,
    keys: bool,
    (out, path): (&mut dyn Write, &Path),
) -> Result<(), BackupError> {
    let mut writer = Writer {
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
        Piece::Snapshot { text, .. } => writer.line(b'S', text),
        Piece::Record { text, .. } => writer.line(b'R', text),
        Piece::Variables { text, .. } => writer.line(b'V', text),
    });
    exported.map_err(|error| match error {
        ExportError::Store(error) => error.into(),
        ExportError::Sink(error) => failed(error),
    })?;
    writer.end().map_err(failed)
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    digest: digest::Context,
    lines: u64,
}

impl Writer<'_> {
    fn line(&mut self, kind: u8, text: &[u8]) -> io::Result<()> {
        for part in [&[kind, b' '][..], text, b"\n"] {
            self.digest.update(part);
            self.out.write_all(part)?;
        }
        self.lines += 1;
        Ok(())
    }

    fn end(mut self) -> io::Result<()> {
        let end = End {
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

/// The key of warrants, or a name in `tls/` that a file can have: nothing that leads out of it, or into the place of the
/// store.
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
pub(crate) enum Line {
    Header(Header),
    Key(KeyFile),
    /// Checksum and JSON.
    Snapshot(Vec<u8>),
    /// Checksum and JSON.
    Record(Vec<u8>),
    /// Checksum and JSON.
    Variables(Vec<u8>),
}

/// Reads a backup line by line, and finds out whether it is whole.
pub(crate) struct Reader<R> {
    input: R,
    path: PathBuf,
    digest: digest::Context,
    /// The line that was read last, counted from 1.
    pub(crate) line: u64,
}

impl<R: BufRead> Reader<R> {
    pub(crate) fn new(input: R, path: &Path) -> Self {
        Self {
            input,
            path: path.to_owned(),
            digest: digest::Context::new(&digest::SHA256),
            line: 0,
        }
    }

    /// The next line; `None` behind the last, which says that the file is whole.
    pub(crate) fn next(&mut self) -> Result<Option<Line>, BackupError> {
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
            return Err(self.strange("it is no line of a backup"));
        };
        Ok(Some(match kind {
            b'H' => Line::Header(self.header(sealed)?),
            _ if self.line == 1 => {
                return Err(BackupError::NoBackup {
                    path: self.path.clone(),
                });
            }
            b'K' => Line::Key(self.parse(sealed)?),
            b'S' => Line::Snapshot(sealed.to_vec()),
            b'R' => Line::Record(sealed.to_vec()),
            b'V' => Line::Variables(sealed.to_vec()),
            b'E' => {
                let end: End = self.parse(sealed)?;
                self.check_end(&end, before)?;
                return Ok(None);
            }
            _ => return Err(self.strange("it is of no kind that this version reads")),
        }))
    }

    fn header(&self, sealed: &[u8]) -> Result<Header, BackupError> {
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let Form { format } = self.parse(sealed)?;
        match format {
            FORMAT => self.parse(sealed),
            found => Err(BackupError::OtherFormat {
                path: self.path.clone(),
                found,
            }),
        }
    }

    fn check_end(&mut self, end: &End, before: digest::Context) -> Result<(), BackupError> {
        let found = hex::encode(before.finish().as_ref());
        if end.lines + 1 != self.line || end.sha256 != found {
            return Err(self.strange("what stands before it is not what was written"));
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

/// Opens a file that is written beside its place, for its owner alone, and is there when it is whole.
pub(crate) fn beside(path: &Path) -> Result<(File, PathBuf), BackupError> {
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
