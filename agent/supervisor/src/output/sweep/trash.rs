//! Empties the trash. Its content was made by steps, so each directory is opened from its parent, no link is
//! followed, and the number of open descriptors is bounded at any depth.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::dir::{Dir, OwningIter};
use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Deepest directory that is emptied in place. A deeper one is moved up into the trash first.
const MAX_DEPTH: usize = 200;

/// Removes everything in a directory, as far as possible.
pub(super) fn empty(path: &Path) {
    let mut bin = match open(|flags| Dir::open(path, flags, Mode::empty())) {
        Ok(dir) => Trash { dir, moved: 0 },
        Err(_) => return,
    };
    // Another round removes directories that were moved up.
    loop {
        let before = bin.moved;
        let _what_cannot_go_now_is_tried_again = bin.empty();
        if bin.moved == before {
            return;
        }
    }
}

struct Trash {
    dir: Dir,
    /// Number of directories that were moved up.
    moved: u64,
}

/// A directory that is being emptied.
struct OpenDirectory {
    dir: OwnedFd,
    entries: OwningIter,
    name: CString,
}

impl OpenDirectory {
    fn new(dir: Dir, name: CString) -> io::Result<Self> {
        // The owner may have removed permissions; fails for another user's directory, for which root needs
        // none.
        let _as_far_as_it_is_ours = fchmod(dir.as_fd(), Mode::S_IRWXU);
        Ok(Self {
            dir: dir.as_fd().try_clone_to_owned()?,
            entries: dir.into_iter(),
            name,
        })
    }
}

impl Trash {
    fn empty(&mut self) -> io::Result<()> {
        let again = open(|flags| Dir::openat(&self.dir, c".", flags, Mode::empty()))?;
        let mut levels = vec![OpenDirectory::new(again, c"".into())?];
        while let Some(level) = levels.last_mut() {
            match level.entries.next() {
                Some(Ok(entry)) if !matches!(entry.file_name().to_bytes(), b"." | b"..") => {
                    let name = CString::from(entry.file_name());
                    let dir = level.dir.try_clone()?;
                    levels.extend(self.remove(&dir, &name, levels.len()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => close(&mut levels),
            }
        }
        Ok(())
    }

    /// Removes an entry unless it is a directory; a directory is returned to be entered.
    fn remove(&mut self, dir: &OwnedFd, name: &CStr, depth: usize) -> Option<OpenDirectory> {
        if unlinkat(dir, name, UnlinkatFlags::NoRemoveDir).is_ok() {
            return None;
        }
        if depth >= MAX_DEPTH {
            let up = format!("deep.{}.{}", std::process::id(), self.moved);
            let is_moved = renameat(dir, name, &self.dir, up.as_str()).is_ok();
            self.moved += u64::from(is_moved);
            return None;
        }
        let found = open(|flags| Dir::openat(dir, name, flags, Mode::empty())).ok()?;
        OpenDirectory::new(found, name.to_owned()).ok()
    }
}

/// Removes the last directory, which is empty now, unless it is the trash itself.
fn close(levels: &mut Vec<OpenDirectory>) {
    let Some(done) = levels.pop() else { return };
    if let Some(above) = levels.last() {
        let _not_empty_yet = unlinkat(&above.dir, done.name.as_c_str(), UnlinkatFlags::RemoveDir);
    }
}

fn open(opened: impl FnOnce(OFlag) -> nix::Result<Dir>) -> io::Result<Dir> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(opened(flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn whatever_a_step_left_is_removed_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, other) = (dir.path().join("bin"), dir.path().join("other"));
        fs::create_dir_all(bin.join("a/b/c")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), "kept").unwrap();
        std::os::unix::fs::symlink(&other, bin.join("a/b/link")).unwrap();
        fs::write(bin.join("a/b/file"), "x").unwrap();
        let closed = bin.join("a/closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), "x").unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
        empty(&bin);
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(other.join("kept")).unwrap(), "kept");
    }

    #[test]
    fn what_nests_deeper_than_descriptors_last_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = Dir::open(dir.path(), OFlag::O_RDONLY, Mode::empty()).unwrap();
        for _ in 0..2_000 {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            at = Dir::openat(&at, "d", OFlag::O_RDONLY, Mode::empty()).unwrap();
        }
        empty(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
