//! Counts the disk usage of a file tree. Steps own the trees and change them meanwhile, so nothing is
//! trusted: each directory is opened from its parent, never through a link or on another file system, and a
//! file with several names counts once. Blocks are counted and not lengths, because a file may have either
//! without the other.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use nix::dir::{Dir, OwningIter};
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

/// Deepest directory that is entered. Each level keeps a descriptor open; normal trees are far below this.
pub const MAX_DEPTH: usize = 200;

/// Most files with several names that are remembered, so that each counts once: about 40 MB. Beyond that each
/// name counts.
const MAX_LINKED: usize = 1_000_000;

/// Result of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Blocks of all files and directories, in bytes.
    pub bytes: u64,
    /// Number of files and directories.
    pub files: u64,
    /// Whether directories deeper than [`MAX_DEPTH`] were skipped.
    pub too_deep: bool,
}

/// Counts the files of one attempt.
#[derive(Debug)]
pub struct DiskUsageCounter {
    count: DiskUsage,
    linked: HashSet<(u64, u64)>,
    until: Instant,
}

impl DiskUsageCounter {
    /// Stops at `until` with a partial count.
    pub fn until(until: Instant) -> Self {
        Self {
            count: DiskUsage::default(),
            linked: HashSet::new(),
            until,
        }
    }

    /// The count so far.
    pub fn count(&self) -> DiskUsage {
        self.count
    }

    /// Counts a tree. Unreadable files, and files that disappear meanwhile, are skipped.
    ///
    /// # Errors
    /// If `top` is no readable directory.
    pub fn add_tree(&mut self, top: &Path) -> io::Result<()> {
        let top = Dir::open(top, flags(), Mode::empty())?;
        let found = fstat(top.as_fd())?;
        self.add(&found);
        let device = found.st_dev;
        let mut open = vec![DirectoryReader::new(top)?];
        while let Some(level) = open.last_mut() {
            if Instant::now() > self.until {
                return Ok(());
            }
            let Some(entry) = level.entries.next() else {
                open.pop();
                continue;
            };
            let Ok(name) = entry.map(|entry| CString::from(entry.file_name())) else {
                continue;
            };
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if let Some(dir) = self.add_entry(level, &name, device) {
                match open.len() < MAX_DEPTH {
                    true => open.extend(DirectoryReader::new(dir)),
                    false => self.count.too_deep = true,
                }
            }
        }
        Ok(())
    }

    /// Subtracts a file that was counted and that the attempt did not write itself.
    pub fn leave_out(&mut self, path: &Path) {
        if let Ok(found) = path.symlink_metadata() {
            self.count.files = self.count.files.saturating_sub(1);
            let blocks = found.blocks().saturating_mul(512);
            self.count.bytes = self.count.bytes.saturating_sub(blocks);
        }
    }

    /// Counts a directory entry; returns it if it is a directory.
    fn add_entry(&mut self, level: &DirectoryReader, name: &CStr, device: u64) -> Option<Dir> {
        let found = fstatat(&level.dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        if found.st_dev != device {
            return None;
        }
        self.add(&found);
        if found.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return None;
        }
        let dir = Dir::openat(&level.dir, name, flags(), Mode::empty()).ok()?;
        // The name may refer to another file by now.
        let same = fstat(dir.as_fd()).is_ok_and(|it| it.st_dev == device);
        same.then_some(dir)
    }

    fn add(&mut self, found: &FileStat) {
        let is_dir = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if !is_dir && found.st_nlink > 1 && !self.is_new(found.st_dev, found.st_ino) {
            return;
        }
        self.count.files += 1;
        let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
        self.count.bytes = self.count.bytes.saturating_add(blocks.saturating_mul(512));
    }

    fn is_new(&mut self, device: u64, inode: u64) -> bool {
        self.linked.len() >= MAX_LINKED || self.linked.insert((device, inode))
    }

    /// Counts deleted files on `device` that a process holds open or mapped: they use space until it closes
    /// them.
    pub fn add_unlinked(&mut self, pid: u32, device: u64) {
        for kind in ["fd", "map_files"] {
            for entry in fs::read_dir(format!("/proc/{pid}/{kind}"))
                .into_iter()
                .flatten()
                .flatten()
            {
                if Instant::now() > self.until {
                    return;
                }
                // The link of a descriptor leads to its file, even if that is deleted.
                let Ok(found) = fs::metadata(entry.path()) else {
                    continue;
                };
                let nameless = found.nlink() == 0 && found.dev() == device && found.is_file();
                if nameless && self.is_new(found.dev(), found.ino()) {
                    self.count.files += 1;
                    let bytes = found.blocks().saturating_mul(512);
                    self.count.bytes = self.count.bytes.saturating_add(bytes);
                }
            }
        }
    }
}

/// A directory that is being read.
#[derive(Debug)]
struct DirectoryReader {
    dir: OwnedFd,
    entries: OwningIter,
}

impl DirectoryReader {
    fn new(dir: Dir) -> io::Result<Self> {
        Ok(Self {
            dir: dir.as_fd().try_clone_to_owned()?,
            entries: dir.into_iter(),
        })
    }
}

fn flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use nix::fcntl::{FallocateFlags, fallocate};

    fn count(top: &Path) -> DiskUsage {
        let mut counter = DiskUsageCounter::until(Instant::now() + Duration::from_secs(60));
        counter.add_tree(top).unwrap();
        counter.count()
    }

    #[test]
    fn blocks_count_and_lengths_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let before = count(dir.path());
        let sparse = File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert!(count(dir.path()).bytes < before.bytes + (1 << 20));
        let hidden = File::create(dir.path().join("hidden")).unwrap();
        let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&hidden, keep, 0, 8 << 20).unwrap();
        assert_eq!(hidden.metadata().unwrap().len(), 0);
        let after = count(dir.path());
        assert!(after.bytes >= before.bytes + (8 << 20), "{after:?}");
        assert_eq!(after.files, before.files + 2);
    }

    #[test]
    fn a_file_of_several_names_counts_once_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("large"), vec![1; 4 << 20]).unwrap();
        fs::write(inside.join("one"), vec![1; 1 << 20]).unwrap();
        for n in 0..20 {
            fs::hard_link(inside.join("one"), inside.join(format!("again{n}"))).unwrap();
        }
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let found = count(&inside);
        assert!((1 << 20..3 << 20).contains(&found.bytes), "{found:?}");
    }

    #[test]
    fn what_nests_deeper_than_a_path_can_say_is_counted_or_told() {
        let dir = tempfile::tempdir().unwrap();
        let nest = |levels: usize, name: &str| {
            let mut at = Dir::open(dir.path(), flags(), Mode::empty()).unwrap();
            for _ in 0..levels {
                nix::sys::stat::mkdirat(&at, name, Mode::S_IRWXU).unwrap();
                at = Dir::openat(&at, name, flags(), Mode::empty()).unwrap();
            }
            fs::write(
                format!("/proc/self/fd/{}/large", at.as_fd().as_raw_fd()),
                vec![1; 4 << 20],
            )
            .unwrap();
        };
        // Longer than the longest path.
        nest(MAX_DEPTH / 2, &"x".repeat(100));
        let found = count(dir.path());
        assert!(found.bytes >= 4 << 20 && !found.too_deep, "{found:?}");
        nest(MAX_DEPTH + 2, "y");
        let found = count(dir.path());
        assert!(found.too_deep && found.bytes < 8 << 20, "{found:?}");
    }

    #[test]
    fn a_file_that_was_removed_counts_while_it_is_open_or_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone");
        fs::write(&path, vec![1; 4 << 20]).unwrap();
        let open = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let device = fs::metadata(dir.path()).unwrap().dev();
        let nameless = || {
            let mut counter = DiskUsageCounter::until(Instant::now() + Duration::from_secs(60));
            counter.add_unlinked(std::process::id(), device);
            counter.count().bytes
        };
        assert!(nameless() >= 4 << 20);
        drop(open);
        assert!(nameless() < 4 << 20);
    }
}
