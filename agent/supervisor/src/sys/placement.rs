//! A hint to the file system about where it puts the directories of attempts. `table::restore` uses it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;

/// `FS_TOPDIR_FL` of Linux: directories made here are not related to each other.
const TOP_DIRECTORY: libc::c_int = 0x0002_0000;

/// Asks the file system to spread the directories that are made in `dir` over the disk.
///
/// Ext4 keeps them together otherwise. Without a journal it leaves a freed inode alone for minutes, and passes over each
/// of these for every new file nearby, which costs more than all else of a short step. File systems other than ext2 to
/// ext4 ignore the hint or refuse it.
///
/// # Errors
/// If the directory cannot be opened, or the file system refuses.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub fn spread_directories(dir: &Path) -> io::Result<()> {
    let dir = File::open(dir)?;
    let mut flags: libc::c_int = 0;
    // SAFETY: despite its number, the call writes one `int`, which is valid for the call.
    let read = unsafe { libc::ioctl(dir.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) };
    Errno::result(read)?;
    if flags & TOP_DIRECTORY != 0 {
        return Ok(());
    }
    flags |= TOP_DIRECTORY;
    // SAFETY: as above, but the call reads it.
    let written = unsafe { libc::ioctl(dir.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) };
    Ok(Errno::result(written).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_may_refuse_and_a_second_time_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let first = spread_directories(dir.path()).map_err(|e| e.kind());
        let second = spread_directories(dir.path()).map_err(|e| e.kind());
        assert_eq!(first, second);
        let missing = spread_directories(&dir.path().join("none"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
