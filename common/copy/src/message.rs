//! Messages of a copy. File contents follow [`TreeItem::File`] in frames of their own ([`crate::stream`]).

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::CopyFailure;

/// Most directories between the root of a copy and a file.
pub const MAX_DEPTH: usize = 100;

/// Longest name of a file, in bytes, as Linux has it.
const MAX_NAME_BYTES: usize = 255;

/// Path below the root of a copy, as names; empty for the root itself. The order is that in which a tree is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TreePath(pub Vec<Vec<u8>>);

impl TreePath {
    /// The path below a directory of the host.
    pub fn below(&self, root: &Path) -> PathBuf {
        let names = self.0.iter().map(|name| OsStr::from_bytes(name));
        names.fold(root.to_owned(), |path, name| path.join(name))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self
            .0
            .iter()
            .map(|name| String::from_utf8_lossy(name))
            .collect();
        f.write_str(&names.join("/"))
    }
}

/// Whether a name can stand for a file in a directory, and for nothing else.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let is_special = matches!(name, b"" | b"." | b"..");
    !is_special && name.len() <= MAX_NAME_BYTES && !name.iter().any(|b| matches!(b, b'/' | 0))
}

/// First message to the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyRequest {
    /// Send a file or a directory.
    Read {
        /// Path on the host; a relative one begins at the step's directory.
        path: Vec<u8>,
        /// Position to continue after.
        after: Option<Position>,
    },
    /// Receive a file or a directory.
    Write {
        /// Place for it.
        target: CopyTarget,
        /// Id of the copy.
        transfer: CopyId,
    },
}

/// Random id of a copy, the same for all connections of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyId(pub u64);

impl CopyId {
    /// Name of a file that has not arrived as a whole.
    pub(crate) fn part_name(self) -> Vec<u8> {
        format!(".sluice-cp-{:016x}", self.0).into_bytes()
    }
}

/// Place for a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyTarget {
    /// A path as a user wrote it.
    Written {
        /// Path that the copy gets, or that of an existing directory to put it into.
        path: Vec<u8>,
        /// Name that the copy gets in an existing directory. If absent, such a directory gets the contents of the copied
        /// one.
        name: Option<Vec<u8>>,
    },
    /// The destination that an earlier connection of the same copy decided on.
    Decided(Destination),
}

impl CopyTarget {
    /// Decides by the directories that exist now.
    pub fn decide(self) -> Destination {
        let (path, name) = match self {
            Self::Decided(destination) => return destination,
            Self::Written { path, name } => (path, name),
        };
        let written = Path::new(OsStr::from_bytes(&path));
        if written.is_dir() {
            let contents = name.is_none();
            return Destination {
                name: name.unwrap_or_else(|| b".".to_vec()),
                directory_only: contents,
                parent: path,
            };
        }
        let directory_only = path.ends_with(b"/");
        let (parent, name) = match (written.parent(), written.file_name()) {
            (Some(parent), Some(name)) => (parent, name.as_bytes()),
            // `..` of a directory that is missing.
            _ => (written, &b"."[..]),
        };
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        Destination {
            parent: parent.as_os_str().as_bytes().to_vec(),
            name: name.to_vec(),
            directory_only,
        }
    }
}

/// Place of a copy: a name in an existing directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// Path of the directory.
    pub parent: Vec<u8>,
    /// Name of the copy there; `.` if the directory itself gets the contents.
    pub name: Vec<u8>,
    /// Whether only a directory can be copied there.
    pub directory_only: bool,
}

impl Destination {
    /// Path of the directory that contains the copy.
    pub fn parent(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.parent))
    }

    /// Path of the copy.
    pub fn path(&self) -> PathBuf {
        match &self.name[..] {
            b"." => self.parent().to_owned(),
            name => self.parent().join(OsStr::from_bytes(name)),
        }
    }

    /// Path at which a file of the copy is written until it is whole.
    pub fn part_path(&self, file: &TreePath, transfer: CopyId) -> PathBuf {
        let part = transfer.part_name();
        let part = OsStr::from_bytes(&part);
        match file.0.split_last() {
            None => self.parent().join(part),
            Some((_, above)) => TreePath(above.to_vec()).below(&self.path()).join(part),
        }
    }
}

/// State of a file, by which a change is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// Number of the file in its file system.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the contents, in seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds of that time.
    pub nanoseconds: u32,
}

/// Position up to which a copy has arrived: all that comes before this path in the tree's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Path of a file or a link.
    pub path: TreePath,
    /// Part of the file that has arrived; absent if it arrived as a whole.
    pub part: Option<FilePart>,
}

impl Position {
    /// Whether an earlier connection has carried the file at this path, or all of the directory.
    pub(crate) fn includes(&self, path: &TreePath, is_directory: bool) -> bool {
        match is_directory {
            true => *path < self.path && !self.path.0.starts_with(&path.0),
            false => *path < self.path || (*path == self.path && self.part.is_none()),
        }
    }

    /// Notes that the part of the file is lost, so that it comes from its start.
    pub fn forget_part(&mut self) {
        if let Some(part) = &mut self.part {
            part.bytes = 0;
        }
    }
}

/// Part of a file, from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// Version that the part belongs to.
    pub version: FileVersion,
    /// Number of bytes.
    pub bytes: u64,
}

/// Message of the sending end. A tree begins with a directory or a file whose name is empty: the receiving end names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeItem {
    /// A directory; its contents follow.
    Directory {
        /// Name in the directory that contains it.
        name: Vec<u8>,
        /// Permission bits of its mode.
        mode: u32,
        /// Version, of which the time counts.
        version: FileVersion,
    },
    /// The contents of the directory are complete.
    DirectoryEnd,
    /// A file; its contents follow.
    File {
        /// Name in the directory that contains it.
        name: Vec<u8>,
        /// Permission bits of its mode.
        mode: u32,
        /// Version, which tells the size.
        version: FileVersion,
        /// Number of bytes that have arrived before and are not sent again.
        from: u64,
    },
    /// The contents of the file are complete.
    FileEnd,
    /// A symbolic link.
    Link {
        /// Name in the directory that contains it.
        name: Vec<u8>,
        /// Path that it leads to.
        target: Vec<u8>,
    },
    /// Something that the user should know.
    Note(CopyIssue),
    /// The tree is complete.
    End,
    /// The sending end failed.
    Failed(CopyFailure),
}

/// Message of the helper while it receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyReport {
    /// Destination of the copy: the first message.
    Destination(Destination),
    /// Position up to which the copy has arrived.
    Position(Position),
    /// Something that the user should know.
    Note(CopyIssue),
    /// The copy has arrived; the last message.
    Complete,
    /// The receiving end failed; the last message.
    Failed(CopyFailure),
}

/// Something about one file that the user should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyIssue {
    /// Path below the root of the copy.
    pub path: TreePath,
    /// Matter of the note.
    pub issue: Issue,
}

/// Matter of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Issue {
    /// Skipped: neither a file nor a directory nor a link.
    Special,
    /// Skipped: a link that leads out of the copy.
    LeadsOut,
    /// Skipped: the system refused to read it, with this error number.
    Unreadable(i32),
    /// Skipped: it was removed meanwhile.
    Removed,
    /// The file grew while it was copied; the copy has this size.
    Grew(u64),
    /// The file was written to while it was copied.
    Changed,
    /// The file was changed while the connection was broken, so it is copied from its start again.
    Restarted,
    /// Not kept at the end of the step: with this size, it does not fit into what the host keeps of an attempt.
    TooLarge(u64),
    /// Not kept at the end of the step, nor what follows: the disk of the host is full.
    DiskFull,
    /// Not kept at the end of the step, nor what follows: the time for it was over.
    TookTooLong,
    /// Not kept at the end of the step: it is deeper than the maximum, or in too large a directory.
    TooMany,
}

impl Issue {
    /// Whether the copy lacks something that the user asked for.
    pub fn is_failure(self) -> bool {
        match self {
            Self::Unreadable(_)
            | Self::TooLarge(_)
            | Self::DiskFull
            | Self::TookTooLong
            | Self::TooMany => true,
            Self::Special
            | Self::LeadsOut
            | Self::Removed
            | Self::Grew(_)
            | Self::Changed
            | Self::Restarted => false,
        }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Special => {
                f.write_str("skipped: it is neither a file nor a directory nor a link")
            }
            Self::LeadsOut => f.write_str("skipped: the link leads out of what is copied"),
            Self::Unreadable(errno) => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(f, "skipped: it cannot be read: {error}")
            }
            Self::Removed => f.write_str("skipped: it was removed meanwhile"),
            Self::Grew(size) => {
                write!(
                    f,
                    "grew while it was copied: the copy has the first {size} bytes"
                )
            }
            Self::Changed => f.write_str(
                "was written to while it was copied: the copy may mix old and new contents",
            ),
            Self::Restarted => f.write_str(
                "was changed while the connection was broken: it is copied from its start again",
            ),
            Self::TooLarge(size) => write!(
                f,
                "was not kept: with {size} bytes, it does not fit into what its host keeps of an attempt (`keep_max`)"
            ),
            Self::DiskFull => {
                f.write_str("was not kept, nor what comes after it: the disk of the host is full")
            }
            Self::TookTooLong => {
                f.write_str("was not kept, nor what comes after it: keeping files took too long")
            }
            Self::TooMany => write!(
                f,
                "was not kept: it is more than {MAX_DEPTH} directories deep, or its directory has too many files; pack it into an archive"
            ),
        }
    }
}
