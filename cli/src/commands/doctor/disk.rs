//! Checks the disk of a state directory: free space, and the duration of a small durable write, which delays every
//! decision.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;

use super::check::Check;
use crate::render::amounts::bytes;

/// Free space that a day of output may use up.
const ROOM_WARN_BYTES: u64 = 2 << 30;
/// Free space below which the store cannot grow.
const ROOM_FAIL_BYTES: u64 = 128 << 20;
/// Duration above which submits are slow.
const WRITE_WARN: Duration = Duration::from_millis(50);
/// Number of timed writes; the median counts.
const WRITES: usize = 15;

pub(super) fn checks(dir: &Path) -> Vec<Check> {
    // The directory may not exist yet; it will be on the disk of its nearest ancestor.
    let there = dir.ancestors().find(|dir| dir.is_dir());
    let there = there.unwrap_or(Path::new("/"));
    let mut checks = vec![room(there)];
    checks.push(writes(there, there == dir));
    checks
}

fn room(dir: &Path) -> Check {
    let shown = dir.display();
    match statvfs(dir) {
        Ok(stat) => {
            let free = stat.blocks_available().saturating_mul(stat.fragment_size());
            judge_room(&format!("{shown}: {} free", bytes(free)), free)
        }
        Err(errno) => Check::fail(
            "disk",
            format!("{shown}: {errno}"),
            "choose another --state-dir",
        ),
    }
}

fn judge_room(found: &str, free: u64) -> Check {
    let cure = "make room, or keep the state elsewhere (`state_dir`, `data_dir`)";
    if free < ROOM_FAIL_BYTES {
        Check::fail("disk", found, cure)
    } else if free < ROOM_WARN_BYTES {
        Check::warn("disk", found, cure)
    } else {
        Check::ok("disk", found)
    }
}

fn writes(dir: &Path, exists: bool) -> Check {
    let name = "durability";
    match timed(dir) {
        Ok(median) => judge_writes(dir, median),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let found = format!("this user may not write to {}: not timed", dir.display());
            Check::ok(name, found)
        }
        Err(error) if exists => Check::fail(
            name,
            format!("{}: {error}", dir.display()),
            "mount it writable, or choose another --state-dir",
        ),
        Err(error) => Check::ok(name, format!("{}: {error}: not timed", dir.display())),
    }
}

fn judge_writes(dir: &Path, median: Duration) -> Check {
    let micros = median.as_micros();
    let found = format!("{}: a durable write takes {micros} us", dir.display());
    if median > WRITE_WARN {
        let cure = "keep the coordinator's `data_dir` on a local SSD: every decision waits for it";
        return Check::warn("durability", found, cure);
    }
    Check::ok("durability", found)
}

/// Returns the median duration of a small write with sync, in an unnamed file.
fn timed(dir: &Path) -> io::Result<Duration> {
    let mut file: File = tempfile::tempfile_in(dir)?;
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let begun = Instant::now();
        file.write_all(&[b'.'; 200])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    times.sort();
    Ok(times[WRITES / 2])
}

#[cfg(test)]
mod tests {
    use super::super::check::CheckStatus;
    use super::*;

    #[test]
    fn little_room_warns_and_no_room_fails() {
        assert_eq!(judge_room("x", 100 << 30).verdict, CheckStatus::Ok);
        assert_eq!(judge_room("x", 1 << 30).verdict, CheckStatus::Warn);
        assert_eq!(judge_room("x", 1 << 20).verdict, CheckStatus::Fail);
    }

    #[test]
    fn writes_are_timed_where_they_can_be() {
        let dir = tempfile::tempdir().unwrap();
        assert!(timed(dir.path()).unwrap() > Duration::ZERO);
        let slow = judge_writes(dir.path(), Duration::from_millis(200));
        assert_eq!(slow.verdict, CheckStatus::Warn);
        let later = checks(&dir.path().join("not/yet"));
        assert_eq!(later.len(), 2);
        assert!(later[0].found.starts_with(&*dir.path().to_string_lossy()));
        assert_eq!(writes(Path::new("/proc"), true).verdict, CheckStatus::Fail);
    }
}
