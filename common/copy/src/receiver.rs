//! The receiving end: makes files below a directory. Each name is one component and is opened below the directory that was
//! opened before, without following links, so nothing outside of the destination is reached.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use crate::error::CopyError;
use crate::message::{
    CopyId, CopyIssue, Destination, FilePart, FileVersion, Issue, MAX_DEPTH, Position, TreeItem,
    TreePath, is_name,
};
use crate::sender::{PERMISSIONS, file_error, kind_of};
use crate::stream::{Contents, CopyReader};

/// Bytes of a file between two reports of the position.
const REPORT_BYTES: u64 = 1024 * 1024;

/// Longest target of a link in bytes, as Linux has it.
const MAX_LINK_BYTES: usize = 4095;

/// Hears how a copy goes.
pub trait CopyListener {
    /// Everything up to this position has arrived.
    ///
    /// # Errors
    /// If nobody can be told.
    fn on_position(&mut self, position: &Position) -> io::Result<()>;

    /// Something about a file that the user should know.
    ///
    /// # Errors
    /// If nobody can be told.
    fn on_note(&mut self, note: CopyIssue) -> io::Result<()>;
}

/// Receives a tree to its end.
///
/// # Errors
/// If the stream breaks, the sending end fails or breaks the rules, or a file cannot be written. If the stream broke, the
/// part of a file that has arrived stays for the next connection; otherwise it is removed.
pub fn receive<R: Read>(
    input: &mut CopyReader<R>,
    destination: &Destination,
    transfer: CopyId,
    listener: &mut dyn CopyListener,
) -> Result<(), CopyError> {
    let parent = destination.parent();
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let opened = open(parent, flags, Mode::empty());
    let base = opened.map_err(|e| file_error("open the directory", parent, e.into()))?;
    let mut receiver = TreeReceiver {
        destination,
        part_name: transfer.part_name(),
        listener,
        base,
        directories: Vec::new(),
        path: TreePath::default(),
        has_begun: false,
    };
    loop {
        let item = input.message()?;
        if !receiver.accept(item, input)? {
            return Ok(());
        }
    }
}

struct TreeReceiver<'a> {
    destination: &'a Destination,
    /// Name of files that have not arrived as a whole.
    part_name: Vec<u8>,
    listener: &'a mut dyn CopyListener,
    /// Directory that contains the root of the copy.
    base: OwnedFd,
    /// Directories from the root of the copy to the current one.
    directories: Vec<OpenDirectory>,
    /// Path of the current file or directory.
    path: TreePath,
    /// Whether the root of the copy has come.
    has_begun: bool,
}

struct OpenDirectory {
    fd: OwnedFd,
    /// Permissions and version to set at the end, if this copy made the directory.
    made: Option<(u32, FileVersion)>,
}

impl TreeReceiver<'_> {
    /// Handles one item; returns whether more follow.
    fn accept<R: Read>(
        &mut self,
        item: TreeItem,
        input: &mut CopyReader<R>,
    ) -> Result<bool, CopyError> {
        match item {
            TreeItem::Directory {
                name,
                mode,
                version,
            } => self.enter(name, mode, version)?,
            TreeItem::DirectoryEnd => self.leave()?,
            TreeItem::File {
                name,
                mode,
                version,
                from,
            } => {
                self.begin(name)?;
                self.file(mode, version, from, input)?;
                self.path.0.pop();
            }
            TreeItem::Link { name, target } => {
                self.begin(name)?;
                self.link(&target)?;
                self.path.0.pop();
            }
            TreeItem::Note(note) => self.listener.on_note(note).map_err(CopyError::Lost)?,
            TreeItem::Failed(failure) => return Err(CopyError::Remote(failure)),
            TreeItem::End if self.has_begun && self.directories.is_empty() => return Ok(false),
            TreeItem::End => return Err(broken("the end of a tree too early")),
            TreeItem::FileEnd => return Err(broken("the end of a file that has not begun")),
        }
        Ok(true)
    }

    /// Checks the name of a file or directory, and makes it the current one.
    fn begin(&mut self, name: Vec<u8>) -> Result<(), CopyError> {
        if self.directories.is_empty() {
            if self.has_begun || !name.is_empty() {
                return Err(broken("a file outside of the tree"));
            }
            self.has_begun = true;
            return Ok(());
        }
        if !is_name(&name) {
            let name = String::from_utf8_lossy(&name).escape_debug().to_string();
            return Err(broken(format!("`{name}`, which is not a file's name")));
        }
        self.path.0.push(name);
        Ok(())
    }

    /// Directory and name of the current file.
    fn place(&self) -> (&OwnedFd, &[u8]) {
        let dir = self.directories.last().map_or(&self.base, |it| &it.fd);
        let name = self.path.0.last().unwrap_or(&self.destination.name);
        (dir, name)
    }

    fn enter(&mut self, name: Vec<u8>, mode: u32, version: FileVersion) -> Result<(), CopyError> {
        self.begin(name)?;
        if self.directories.len() >= MAX_DEPTH {
            return Err(broken("more directories in each other than there may be"));
        }
        let (above, name) = self.place();
        let made = match mkdirat(above, name, Mode::S_IRWXU) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(e) => return Err(self.failed("make", e)),
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(above, name, flags, Mode::empty());
        let fd = fd.map_err(|e| self.failed("write into", e))?;
        if made {
            let open_to_owner = permissions(mode) | Mode::S_IRWXU;
            fchmod(&fd, open_to_owner).map_err(|e| self.failed("set the permissions of", e))?;
        }
        let made = made.then_some((mode, version));
        self.directories.push(OpenDirectory { fd, made });
        Ok(())
    }

    fn leave(&mut self) -> Result<(), CopyError> {
        let Some(OpenDirectory { fd, made }) = self.directories.pop() else {
            return Err(broken("the end of a directory that has not begun"));
        };
        if let Some((mode, version)) = made {
            self.set_attributes(&fd, mode, version)?;
        }
        self.path.0.pop();
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        mode: u32,
        version: FileVersion,
        from: u64,
        input: &mut CopyReader<R>,
    ) -> Result<(), CopyError> {
        if self.directories.is_empty() && self.destination.directory_only {
            let path = self.shown().display().to_string();
            let why = format!("`{path}` is not the name of a file: write the name that it gets");
            return Err(CopyError::Refused(why));
        }
        self.check_replaceable()?;
        let received = self.receive_part(mode, version, from, input);
        if received
            .as_ref()
            .is_err_and(|e| !matches!(e, CopyError::Lost(_)))
        {
            self.remove_part();
        }
        received?;
        self.tell_position(None)
    }

    fn receive_part<R: Read>(
        &mut self,
        mode: u32,
        version: FileVersion,
        from: u64,
        input: &mut CopyReader<R>,
    ) -> Result<(), CopyError> {
        let mut bytes = from;
        let mut told = from;
        // Before the part is made: whoever is interrupted removes the part that it knows of.
        self.tell_position(Some(FilePart { version, bytes }))?;
        let mut part = self.open_part(from)?;
        while bytes < version.size {
            match input.data()? {
                Contents::Bytes(data) if data.len() as u64 <= version.size - bytes => {
                    part.write_all(data)
                        .map_err(|e| file_error("write", &self.shown(), e))?;
                    bytes += data.len() as u64;
                }
                Contents::Bytes(_) => return Err(broken("more of a file than its size")),
                Contents::Message(encoded) => {
                    return Err(match Contents::parse(encoded)? {
                        TreeItem::Failed(failure) => CopyError::Remote(failure),
                        _ => broken("less of a file than its size"),
                    });
                }
            }
            if bytes - told >= REPORT_BYTES {
                told = bytes;
                self.tell_position(Some(FilePart { version, bytes }))?;
            }
        }
        match input.message()? {
            TreeItem::FileEnd => {}
            TreeItem::Failed(failure) => return Err(CopyError::Remote(failure)),
            _ => return Err(broken("a file without its end")),
        }
        self.set_attributes(&part, mode, version)?;
        self.name_part()
    }

    /// Opens the file that is renamed when it is whole. One that another program made under this name is never written to.
    fn open_part(&self, from: u64) -> Result<File, CopyError> {
        let (dir, _) = self.place();
        let part = &self.part_name[..];
        let writing = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        if from == 0 {
            self.remove_part();
            let flags = writing | OFlag::O_CREAT | OFlag::O_EXCL;
            let made = openat(dir, part, flags, Mode::S_IRUSR | Mode::S_IWUSR);
            return made.map(File::from).map_err(|e| self.failed("write", e));
        }
        let gone = || CopyError::PartGone(self.shown().display().to_string());
        let opened = openat(dir, part, writing, Mode::empty());
        let mut file = opened.map(File::from).map_err(|_| gone())?;
        let length = file.metadata().map_err(|_| gone())?.len();
        if length < from {
            return Err(gone());
        }
        let cut = file
            .set_len(from)
            .and_then(|()| file.seek(SeekFrom::Start(from)));
        cut.map_err(|e| file_error("write", &self.shown(), e))?;
        Ok(file)
    }

    fn remove_part(&self) {
        let (dir, _) = self.place();
        let _there_may_be_none = unlinkat(dir, &self.part_name[..], UnlinkatFlags::NoRemoveDir);
    }

    /// Gives a whole file its name.
    fn name_part(&self) -> Result<(), CopyError> {
        let (dir, name) = self.place();
        renameat(dir, &self.part_name[..], dir, name).map_err(|e| self.failed("replace", e))
    }

    /// Refuses to replace a directory before anything is sent in vain.
    fn check_replaceable(&self) -> Result<(), CopyError> {
        let (dir, name) = self.place();
        match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) if kind_of(&found) == SFlag::S_IFDIR => {
                Err(self.failed("replace", Errno::EISDIR))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn link(&mut self, target: &[u8]) -> Result<(), CopyError> {
        let Some(depth) = self.directories.len().checked_sub(1) else {
            return Err(broken("a link instead of a tree"));
        };
        if !stays_inside(target, depth) {
            let path = self.path.clone();
            let issue = Issue::LeadsOut;
            let told = self.listener.on_note(CopyIssue { path, issue });
            return told.map_err(CopyError::Lost);
        }
        self.check_replaceable()?;
        self.remove_part();
        let (dir, _) = self.place();
        let made = symlinkat(target, dir, &self.part_name[..]);
        made.map_err(|e| self.failed("make", e))?;
        let named = self.name_part();
        if named.is_err() {
            self.remove_part();
        }
        named?;
        self.tell_position(None)
    }

    fn set_attributes(
        &self,
        file: &impl AsFd,
        mode: u32,
        version: FileVersion,
    ) -> Result<(), CopyError> {
        fchmod(file, permissions(mode)).map_err(|e| self.failed("set the permissions of", e))?;
        let time = TimeSpec::new(version.seconds, version.nanoseconds.into());
        futimens(file, &time, &time).map_err(|e| self.failed("set the time of", e))
    }

    fn tell_position(&mut self, part: Option<FilePart>) -> Result<(), CopyError> {
        let path = self.path.clone();
        let told = self.listener.on_position(&Position { path, part });
        told.map_err(CopyError::Lost)
    }

    fn failed(&self, action: &'static str, e: Errno) -> CopyError {
        file_error(action, &self.shown(), e.into())
    }

    /// Path of the current file for messages.
    fn shown(&self) -> PathBuf {
        self.path.below(&self.destination.path())
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & PERMISSIONS)
}

fn broken(what: impl Into<String>) -> CopyError {
    CopyError::Protocol(what.into())
}

/// Whether a link in a directory `depth` levels below the root of a copy leads to a place inside, whatever other links are
/// on the way: `..` may stand at its beginning alone, where it goes up from a directory that is no link.
fn stays_inside(target: &[u8], depth: usize) -> bool {
    if target.is_empty() || target.len() > MAX_LINK_BYTES || target.starts_with(b"/") {
        return false;
    }
    let names = target.split(|b| *b == b'/');
    let names: Vec<_> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    let up = names.iter().take_while(|name| **name == b"..").count();
    up <= depth && names[up..].iter().all(|name| is_name(name))
}

#[cfg(test)]
mod inside_tests {
    use super::stays_inside;

    #[test]
    fn links_may_go_up_at_their_beginning_and_not_beyond_the_root() {
        for (target, depth, inside) in [
            ("a", 0, true),
            ("./a//b/.", 0, true),
            ("..", 0, false),
            ("..", 1, true),
            ("../../a", 2, true),
            ("../../../a", 2, false),
            ("a/../../..", 9, false),
            ("a/..", 9, false),
            ("/a", 9, false),
            ("", 9, false),
            (".", 0, true),
            ("a\0b", 0, false),
        ] {
            assert_eq!(
                stays_inside(target.as_bytes(), depth),
                inside,
                "{target:?} at {depth}"
            );
        }
        assert!(!stays_inside(&[b'a'; 5000], 0));
    }
}
