//! Stores chosen files of a directory as one stream of a copy, at the end of a step. Files that do not fit are left out with
//! a note, so the stream is whole whatever fails but the disk itself.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::sys::statvfs::fstatvfs;
use sluice_common::keep::{KEEP_NOTES_BYTES, KeepPattern, KeptPart, kept_part};

use crate::error::CopyError;
use crate::message::{CopyIssue, Issue, MAX_DEPTH, TreeItem, TreePath};
use crate::sender::{TreeSender, file_error, kind_of, reading, unreadable};
use crate::stream::{CopyWriter, MAX_PAYLOAD_BYTES};

/// Most notes in a stream; more say nothing new.
const MAX_NOTES: usize = 1_000;

/// Room for the messages around a file: a name, and a target of a link.
const MESSAGE_ROOM: u64 = 8 * 1024;

/// Bounds of what is kept.
#[derive(Clone, Copy, Debug)]
pub struct KeepLimits {
    /// Most bytes of the stream, without its notes.
    pub bytes: u64,
    /// Bytes that stay free in the file system of the stream.
    pub min_free: u64,
    /// Longest time for all files.
    pub time: Duration,
}

impl KeepLimits {
    /// Most bytes of a stream with its notes.
    pub fn stream_bytes(&self) -> u64 {
        self.bytes.saturating_add(KEEP_NOTES_BYTES)
    }
}

/// Result of keeping files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepReport {
    /// Number of files and links in the stream.
    pub files: u64,
    /// Size of their contents, in bytes.
    pub bytes: u64,
    /// Files that were left out and why, at most 1,000.
    pub left_out: Vec<CopyIssue>,
}

/// Writes the files below `root` that match a pattern to an empty file, as the stream that [`crate::send`] would send of a
/// directory with these files alone.
///
/// # Errors
/// If the stream cannot be written, or `root` cannot be read.
pub fn keep(
    root: &Path,
    patterns: &[KeepPattern],
    limits: KeepLimits,
    stream: &File,
) -> Result<KeepReport, CopyError> {
    let mut out = CopyWriter::new(stream);
    let mut writer = KeepWriter {
        sender: TreeSender {
            root,
            after: None,
            out: &mut out,
            path: TreePath::default(),
            until: Some(Instant::now() + limits.time),
        },
        stream,
        patterns,
        limits,
        unsent: Vec::new(),
        is_full: false,
        report: KeepReport::default(),
    };
    let opened = open(root, reading() | OFlag::O_DIRECTORY, Mode::empty());
    let opened = opened.map_err(|e| file_error("read", root, e.into()))?;
    let item = writer.sender.directory_item(&opened, b"")?;
    writer.sender.out.message(&item)?;
    let is_whole = kept_part(patterns, &[]) == KeptPart::Whole;
    writer.contents(&opened, is_whole)?;
    writer.sender.out.message(&TreeItem::DirectoryEnd)?;
    writer.sender.out.message(&TreeItem::End)?;
    Ok(writer.report)
}

struct KeepWriter<'a> {
    sender: TreeSender<'a, &'a File>,
    stream: &'a File,
    patterns: &'a [KeepPattern],
    limits: KeepLimits,
    /// The innermost directories, of which nothing was kept so far.
    unsent: Vec<TreeItem>,
    /// Whether nothing more is kept.
    is_full: bool,
    report: KeepReport,
}

impl KeepWriter<'_> {
    fn contents(&mut self, dir: &OwnedFd, is_whole: bool) -> Result<(), CopyError> {
        let names = match self.sender.names(dir) {
            Ok(names) => names,
            Err(error) => return self.leave_out(issue_of(&error)),
        };
        for name in names {
            if self.is_full {
                return Ok(());
            }
            self.sender.path.0.push(name.as_bytes().to_vec());
            let kept = self.entry(dir, &name, is_whole);
            self.sender.path.0.pop();
            kept?;
        }
        Ok(())
    }

    fn entry(&mut self, dir: &OwnedFd, name: &CString, is_whole: bool) -> Result<(), CopyError> {
        let part = match is_whole {
            true => KeptPart::Whole,
            false => kept_part(self.patterns, &self.sender.path.0),
        };
        if part == KeptPart::Nothing {
            return Ok(());
        }
        if self.sender.is_late() {
            return self.end(Issue::TookTooLong);
        }
        let found = match fstatat(dir, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(e) => return self.leave_out(unreadable(e)),
        };
        let kind = kind_of(&found);
        let flags = match (kind, part) {
            (SFlag::S_IFDIR, _) => reading() | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY,
            (_, KeptPart::Below | KeptPart::Nothing) => return Ok(()),
            (SFlag::S_IFREG, KeptPart::Whole) => reading() | OFlag::O_NOFOLLOW,
            (SFlag::S_IFLNK, KeptPart::Whole) => return self.link(dir, name),
            (_, KeptPart::Whole) => return self.leave_out(Issue::Special),
        };
        match openat(dir, name.as_c_str(), flags, Mode::empty()) {
            Ok(opened) if kind == SFlag::S_IFDIR => {
                self.directory(&opened, name.as_bytes(), part == KeptPart::Whole)
            }
            Ok(opened) => self.file(File::from(opened), name.as_bytes()),
            Err(e) => self.leave_out(unreadable(e)),
        }
    }

    fn directory(&mut self, dir: &OwnedFd, name: &[u8], is_whole: bool) -> Result<(), CopyError> {
        if self.sender.path.0.len() >= MAX_DEPTH {
            return self.leave_out(Issue::TooMany);
        }
        let item = match self.sender.directory_item(dir, name) {
            Ok(item) => item,
            Err(error) => return self.leave_out(issue_of(&error)),
        };
        self.unsent.push(item);
        // An empty directory is kept too.
        if is_whole && !self.begin(0)? {
            self.unsent.pop();
            return Ok(());
        }
        self.contents(dir, is_whole)?;
        match self.unsent.pop() {
            Some(_) => Ok(()),
            None => self.sender.out.message(&TreeItem::DirectoryEnd),
        }
    }

    fn file(&mut self, file: File, name: &[u8]) -> Result<(), CopyError> {
        let size = file.metadata().map_or(0, |found| found.len());
        if !self.begin(size)? {
            return Ok(());
        }
        let start = self.position()?;
        match self.sender.file(file, name) {
            Ok(()) => {
                self.report.files += 1;
                self.report.bytes = self.report.bytes.saturating_add(size);
                Ok(())
            }
            Err(CopyError::Lost(why)) => self.end_at(start, &why),
            Err(error) => {
                self.cut(start)?;
                match error {
                    CopyError::Interrupted => self.end(Issue::TookTooLong),
                    error => self.leave_out(issue_of(&error)),
                }
            }
        }
    }

    fn link(&mut self, dir: &OwnedFd, name: &CString) -> Result<(), CopyError> {
        if self.begin(0)? {
            self.sender.link(dir, name)?;
            self.report.files += 1;
        }
        Ok(())
    }

    /// Sends the directories around the current file, if there is room for so many bytes of it; notes why not otherwise.
    fn begin(&mut self, size: u64) -> Result<bool, CopyError> {
        let frames = size / MAX_PAYLOAD_BYTES as u64 + 1;
        let directories = self.unsent.len() as u64 + 1;
        let needed = size
            .saturating_add(frames * 8)
            .saturating_add(directories * MESSAGE_ROOM);
        if self.position()?.saturating_add(needed) > self.limits.bytes {
            self.leave_out(Issue::TooLarge(size))?;
            return Ok(false);
        }
        let disk = fstatvfs(self.stream).map_err(|e| CopyError::Lost(e.into()))?;
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        if free < needed.saturating_add(self.limits.min_free) {
            self.end(Issue::DiskFull)?;
            return Ok(false);
        }
        let start = self.position()?;
        for item in &self.unsent {
            match self.sender.out.message(item) {
                Ok(()) => {}
                Err(CopyError::Lost(why)) => {
                    self.end_at(start, &why)?;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.unsent.clear();
        Ok(true)
    }

    /// Ends the stream before what could not be written to it.
    fn end_at(&mut self, start: u64, why: &io::Error) -> Result<(), CopyError> {
        self.cut(start)?;
        match why.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG) => self.end(Issue::DiskFull),
            code => self.end(unreadable(code.unwrap_or(Errno::EIO))),
        }
    }

    fn end(&mut self, issue: Issue) -> Result<(), CopyError> {
        self.is_full = true;
        self.leave_out(issue)
    }

    fn leave_out(&mut self, issue: Issue) -> Result<(), CopyError> {
        if self.report.left_out.len() >= MAX_NOTES {
            return Ok(());
        }
        let path = self.sender.path.clone();
        self.report.left_out.push(CopyIssue { path, issue });
        let most = self.limits.stream_bytes() - KEEP_NOTES_BYTES / 2;
        match self.position()? < most {
            true => self.sender.note(issue),
            false => Ok(()),
        }
    }

    fn position(&self) -> Result<u64, CopyError> {
        let mut stream = self.stream;
        stream.stream_position().map_err(CopyError::Lost)
    }

    fn cut(&self, start: u64) -> Result<(), CopyError> {
        let mut stream = self.stream;
        let cut = stream.set_len(start);
        let cut = cut.and_then(|()| stream.seek(SeekFrom::Start(start)));
        cut.map(drop).map_err(CopyError::Lost)
    }
}

fn issue_of(error: &CopyError) -> Issue {
    match error {
        CopyError::File { source, .. } => {
            let code = source.raw_os_error().unwrap_or(Errno::EIO as i32);
            unreadable(Errno::from_raw(code))
        }
        CopyError::Lost(_)
        | CopyError::Protocol(_)
        | CopyError::Interrupted
        | CopyError::Refused(_)
        | CopyError::PartGone(_)
        | CopyError::Remote(_) => Issue::TooMany,
    }
}
