//! Writes the stream of a tree whose files are no files of this end: the sending end of a copy by hand.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::CopyError;
use crate::message::{FileVersion, TreeItem};
use crate::stream::CopyWriter;

/// Permissions of directories.
const DIRECTORY_MODE: u32 = 0o755;

/// A file to write.
#[derive(Clone, Copy, Debug)]
pub struct FileHeader {
    /// Size in bytes.
    pub size: u64,
    /// Permission bits of its mode.
    pub mode: u32,
}

/// Writes the files of a tree, in the order of their paths.
#[derive(Debug)]
pub struct TreeWriter<W> {
    out: CopyWriter<W>,
    /// Names of the directories that are open, from the outermost below the root.
    open: Vec<Vec<u8>>,
    /// Time of all files, in seconds since 1970.
    seconds: i64,
}

impl<W: Write> TreeWriter<W> {
    /// Begins a tree, whose files were changed at this time.
    ///
    /// # Errors
    /// If the stream breaks.
    pub fn begin(to: W, changed_at: SystemTime) -> Result<Self, CopyError> {
        let seconds = changed_at.duration_since(UNIX_EPOCH);
        let seconds = seconds.map_or(0, |since| since.as_secs().cast_signed());
        let out = CopyWriter::new(to);
        let open = Vec::new();
        let mut writer = Self { out, open, seconds };
        writer.enter(b"")?;
        Ok(writer)
    }

    /// Begins a file at this path below the root; its contents follow, and then its end.
    ///
    /// # Errors
    /// If the path is empty, or the stream breaks.
    pub fn begin_file<'a>(
        &mut self,
        path: impl Iterator<Item = &'a str>,
        file: FileHeader,
    ) -> Result<(), CopyError> {
        let mut path: Vec<&[u8]> = path.map(str::as_bytes).collect();
        let name = path.pop();
        let name = name.ok_or_else(|| CopyError::Refused("a file has no name".to_owned()))?;
        let pairs = self.open.iter().zip(&path);
        let common = pairs.take_while(|(open, wanted)| open == *wanted).count();
        while self.open.len() > common {
            self.leave()?;
        }
        for directory in &path[common..] {
            self.enter(directory)?;
            self.open.push(directory.to_vec());
        }
        self.out.message(&TreeItem::File {
            name: name.to_vec(),
            mode: file.mode,
            version: self.version(file.size),
            from: 0,
        })
    }

    /// Writes a piece of the file's contents.
    ///
    /// # Errors
    /// If the stream breaks.
    pub fn contents(&mut self, mut bytes: &[u8]) -> Result<(), CopyError> {
        while !bytes.is_empty() {
            let count = self.out.data(bytes.len() as u64, |buffer| {
                buffer.copy_from_slice(&bytes[..buffer.len()]);
                Ok(buffer.len())
            })?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Ends the file, of which as many bytes as its size were written.
    ///
    /// # Errors
    /// If the stream breaks.
    pub fn end_file(&mut self) -> Result<(), CopyError> {
        self.out.message(&TreeItem::FileEnd)
    }

    /// Ends the tree, and returns the stream.
    ///
    /// # Errors
    /// If the stream breaks.
    pub fn end(mut self) -> Result<W, CopyError> {
        while !self.open.is_empty() {
            self.leave()?;
        }
        self.out.message(&TreeItem::DirectoryEnd)?;
        self.out.message(&TreeItem::End)?;
        self.out.flush()?;
        Ok(self.out.into_inner())
    }

    fn enter(&mut self, name: &[u8]) -> Result<(), CopyError> {
        self.out.message(&TreeItem::Directory {
            name: name.to_vec(),
            mode: DIRECTORY_MODE,
            version: self.version(0),
        })
    }

    fn leave(&mut self) -> Result<(), CopyError> {
        self.open.pop();
        self.out.message(&TreeItem::DirectoryEnd)
    }

    fn version(&self, size: u64) -> FileVersion {
        FileVersion {
            inode: 0,
            size,
            seconds: self.seconds,
            nanoseconds: 0,
        }
    }
}
