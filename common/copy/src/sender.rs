//! The sending end: walks a tree in the order of its names. Files are opened without following links, and only regular
//! ones are opened at all.

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Instant;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};

use crate::error::CopyError;
use crate::message::{
    CopyIssue, FilePart, FileVersion, Issue, MAX_DEPTH, Position, TreeItem, TreePath,
};
use crate::stream::CopyWriter;

/// Most names of one directory, which are kept in memory and sorted.
const MAX_NAMES: usize = 1_000_000;

/// Bits of a file's mode that are copied: who may read, write and execute.
pub(crate) const PERMISSIONS: u32 = 0o777;

/// Sends the file or directory at `root`, from where an earlier connection ended.
///
/// # Errors
/// If the stream breaks, or a file cannot be sent; the receiving end is told then.
pub fn send<W: Write>(
    root: &Path,
    after: Option<&Position>,
    out: &mut CopyWriter<W>,
) -> Result<(), CopyError> {
    let mut sender = TreeSender {
        root,
        after,
        out,
        path: TreePath::default(),
        until: None,
    };
    let sent = sender
        .tree()
        .and_then(|()| sender.out.message(&TreeItem::End));
    match sent {
        Err(error) if !matches!(error, CopyError::Lost(_)) => {
            let told = sender.out.message(&TreeItem::Failed(error.to_failure()));
            let _the_first_error_counts = told.and_then(|()| sender.out.flush());
            Err(error)
        }
        sent => sent.and_then(|()| sender.out.flush()),
    }
}

pub(crate) struct TreeSender<'a, W> {
    pub(crate) root: &'a Path,
    pub(crate) after: Option<&'a Position>,
    pub(crate) out: &'a mut CopyWriter<W>,
    /// Path of the current file.
    pub(crate) path: TreePath,
    /// Time at which the contents of a file are no longer waited for.
    pub(crate) until: Option<Instant>,
}

impl<W: Write> TreeSender<'_, W> {
    /// Sends the root. The user named it, so a link is followed.
    fn tree(&mut self) -> Result<(), CopyError> {
        let failed = |e: io::Error| file_error("read", self.root, e);
        let found = self.root.metadata().map_err(failed)?;
        if !found.is_file() && !found.is_dir() {
            let path = self.root.display();
            let why = format!("`{path}` is neither a file nor a directory, so it cannot be copied");
            return Err(CopyError::Refused(why));
        }
        let opened = open(self.root, reading(), Mode::empty());
        let opened = opened.map_err(|e| file_error("read", self.root, e.into()))?;
        match found.is_dir() {
            true => self.directory(&opened, b""),
            false => self.file(File::from(opened), b""),
        }
    }

    /// Sends a directory and its contents.
    fn directory(&mut self, dir: &OwnedFd, name: &[u8]) -> Result<(), CopyError> {
        if self.path.0.len() >= MAX_DEPTH {
            let path = self.shown();
            let why = format!(
                "`{path}` is {MAX_DEPTH} directories deep, which is the maximum: pack it into an archive, and copy that"
            );
            return Err(CopyError::Refused(why));
        }
        let item = self.directory_item(dir, name)?;
        self.out.message(&item)?;
        for name in self.names(dir)? {
            self.path.0.push(name.as_bytes().to_vec());
            self.entry(dir, &name)?;
            self.path.0.pop();
        }
        self.out.message(&TreeItem::DirectoryEnd)
    }

    pub(crate) fn directory_item(&self, dir: &OwnedFd, name: &[u8]) -> Result<TreeItem, CopyError> {
        let metadata = dir.try_clone().and_then(|dir| File::from(dir).metadata());
        let metadata = metadata.map_err(|e| self.failed("read", e))?;
        Ok(TreeItem::Directory {
            name: name.to_vec(),
            mode: metadata.permissions().mode() & PERMISSIONS,
            version: version(&metadata),
        })
    }

    /// Names in a directory, sorted.
    pub(crate) fn names(&self, dir: &OwnedFd) -> Result<Vec<CString>, CopyError> {
        let failed = |e: Errno| self.failed("list", e.into());
        let again = dir.try_clone().map_err(|e| self.failed("list", e))?;
        let mut listed = Dir::from_fd(again).map_err(failed)?;
        let mut names = Vec::new();
        for entry in listed.iter() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() >= MAX_NAMES {
                let path = self.shown();
                let why = format!(
                    "`{path}` contains more than {MAX_NAMES} files, which is the maximum: pack it into an archive, and copy that"
                );
                return Err(CopyError::Refused(why));
            }
            names.push(name.to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Sends one entry of a directory, or notes why it is skipped.
    fn entry(&mut self, dir: &OwnedFd, name: &CString) -> Result<(), CopyError> {
        let found = match fstatat(dir, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(e) => return self.skip(e),
        };
        let kind = kind_of(&found);
        if self.is_done(kind == SFlag::S_IFDIR) {
            return Ok(());
        }
        let flags = match kind {
            SFlag::S_IFDIR => reading() | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY,
            SFlag::S_IFREG => reading() | OFlag::O_NOFOLLOW,
            SFlag::S_IFLNK => return self.link(dir, name),
            _ => return self.note(Issue::Special),
        };
        match openat(dir, name.as_c_str(), flags, Mode::empty()) {
            Ok(opened) if kind == SFlag::S_IFDIR => self.directory(&opened, name.as_bytes()),
            Ok(opened) => self.file(File::from(opened), name.as_bytes()),
            Err(e) => self.skip(e),
        }
    }

    fn is_done(&self, is_directory: bool) -> bool {
        let after = self.after;
        after.is_some_and(|after| after.includes(&self.path, is_directory))
    }

    pub(crate) fn link(&mut self, dir: &OwnedFd, name: &CString) -> Result<(), CopyError> {
        match readlinkat(dir, name.as_c_str()) {
            Ok(target) => self.out.message(&TreeItem::Link {
                name: name.as_bytes().to_vec(),
                target: target.into_vec(),
            }),
            Err(e) => self.skip(e),
        }
    }

    /// Sends a file, up to the size that it has now.
    pub(crate) fn file(&mut self, mut file: File, name: &[u8]) -> Result<(), CopyError> {
        let metadata = file.metadata().map_err(|e| self.failed("read", e))?;
        if !metadata.is_file() {
            return self.note(Issue::Special);
        }
        let version = version(&metadata);
        let from = self.continues_at(version)?;
        self.out.message(&TreeItem::File {
            name: name.to_vec(),
            mode: metadata.permissions().mode() & PERMISSIONS,
            version,
            from,
        })?;
        let at = file.seek(SeekFrom::Start(from));
        at.map_err(|e| self.failed("read", e))?;
        let mut left = version.size - from;
        while left > 0 {
            if self.is_late() {
                return Err(CopyError::Interrupted);
            }
            let path = self.path.below(self.root);
            let read = |bytes: &mut [u8]| read_some(&mut file, &path, bytes);
            let count = self.out.data(left, read)?;
            if count == 0 {
                let path = self.shown();
                let why = format!(
                    "`{path}` was cut while it was copied: repeat the copy when nothing writes to it"
                );
                return Err(CopyError::Refused(why));
            }
            left = left.saturating_sub(count as u64);
        }
        self.out.message(&TreeItem::FileEnd)?;
        let now = file.metadata().map_err(|e| self.failed("read", e))?;
        let now = self::version(&now);
        if now.size > version.size {
            return self.note(Issue::Grew(version.size));
        }
        if now != version {
            return self.note(Issue::Changed);
        }
        Ok(())
    }

    /// Number of bytes of the current file that have arrived, if it is still of the same version.
    fn continues_at(&mut self, version: FileVersion) -> Result<u64, CopyError> {
        let part = self.after.filter(|after| after.path == self.path);
        let Some(part) = part.and_then(|after| after.part) else {
            return Ok(0);
        };
        let FilePart {
            version: then,
            bytes,
        } = part;
        if then == version && bytes <= version.size {
            return Ok(bytes);
        }
        if bytes > 0 {
            self.note(Issue::Restarted)?;
        }
        Ok(0)
    }

    /// Whether the time for the files is over.
    pub(crate) fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn skip(&mut self, e: Errno) -> Result<(), CopyError> {
        self.note(unreadable(e))
    }

    pub(crate) fn note(&mut self, issue: Issue) -> Result<(), CopyError> {
        let path = self.path.clone();
        self.out.message(&TreeItem::Note(CopyIssue { path, issue }))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> CopyError {
        file_error(action, &self.path.below(self.root), source)
    }

    fn shown(&self) -> String {
        self.path.below(self.root).display().to_string()
    }
}

/// Error with the name of its file.
pub(crate) fn file_error(action: &'static str, path: &Path, source: io::Error) -> CopyError {
    CopyError::File {
        path: path.display().to_string(),
        action,
        source,
    }
}

/// The issue with a file that cannot be read.
pub(crate) fn unreadable(e: Errno) -> Issue {
    match e {
        Errno::ENOENT => Issue::Removed,
        e => Issue::Unreadable(e as i32),
    }
}

/// Flags that neither wait for the other end of a pipe nor get a terminal.
pub(crate) fn reading() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY
}

fn read_some(file: &mut File, path: &Path, bytes: &mut [u8]) -> Result<usize, CopyError> {
    loop {
        match file.read(bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(|e| file_error("read", path, e)),
        }
    }
}

fn version(metadata: &Metadata) -> FileVersion {
    FileVersion {
        inode: metadata.ino(),
        size: metadata.len(),
        seconds: metadata.mtime(),
        nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    }
}

/// The kind of a file.
pub(crate) fn kind_of(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}
