//! The space that the file system of attempts keeps free for the daemons, and the attempts to stop if less is
//! free.

use std::path::PathBuf;

use nix::sys::statvfs::statvfs;
use sluice_common::amount::format_memory;
use sluice_common::id::AttemptId;
use sluice_common::supervision::{BootMillis, StorageBound, StorageExceeded};
use tracing::{info, warn};

use super::count::DiskUsage;
use super::exceeded;

/// Default reserve: this much, or this fraction of the file system, whichever is less.
const RESERVED_BYTES: u64 = 1 << 30;
const RESERVED_FILES: u64 = 10_000;
const RESERVED_FRACTION: u64 = 20;

/// Files that come with every grant, however small: enough for a program and its packages.
const MIN_GRANTED_FILES: u64 = 50_000;

/// Monitors the free space.
#[derive(Debug)]
pub(super) struct Reserve {
    dir: PathBuf,
    min_free: Option<u64>,
    short: Option<Shortage>,
}

/// Less is free than reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Message for people, from when the shortage began.
    pub why: String,
    pub(super) since: BootMillis,
    missing: FreeSpace,
}

/// Free or missing space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FreeSpace {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

impl Reserve {
    /// For the file system of `dir`; `min_free` overrides the default reserve, in bytes.
    pub(super) fn new(dir: PathBuf, min_free: Option<u64>) -> Self {
        Self {
            dir,
            min_free,
            short: None,
        }
    }

    pub(super) fn short(&self) -> Option<&Shortage> {
        self.short.as_ref()
    }

    /// Number of files for a grant in bytes: the same fraction of the file system's files. `None` if the file
    /// system has no such number.
    pub(super) fn files_for(&self, granted: u64) -> Option<u64> {
        let disk = statvfs(&self.dir).ok().filter(|disk| disk.files() > 0)?;
        let bytes = disk.blocks().saturating_mul(disk.fragment_size());
        Some(part(granted, bytes, disk.files()).max(MIN_GRANTED_FILES))
    }

    /// Bytes that stay free, in the file system as it is now.
    pub(super) fn min_free(&self) -> u64 {
        let disk = statvfs(&self.dir);
        let bytes = disk.map(|disk| disk.blocks().saturating_mul(disk.fragment_size()));
        self.bytes_kept_free(bytes.unwrap_or(u64::MAX))
    }

    fn bytes_kept_free(&self, bytes_of_disk: u64) -> u64 {
        let usual = || RESERVED_BYTES.min(bytes_of_disk / RESERVED_FRACTION);
        self.min_free.unwrap_or_else(usual)
    }

    /// Checks the free space.
    pub(super) fn check(&mut self, now: BootMillis) {
        let Ok(disk) = statvfs(&self.dir) else {
            return;
        };
        let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
        let kept = FreeSpace {
            bytes: self.bytes_kept_free(bytes(disk.blocks())),
            // Some file systems allocate inodes on demand and report no number.
            files: match self.min_free {
                Some(0) => 0,
                Some(_) | None => RESERVED_FILES.min(disk.files() / RESERVED_FRACTION),
            },
        };
        let free = FreeSpace {
            bytes: bytes(disk.blocks_available()),
            files: disk.files_available(),
        };
        self.on_free(free, kept, now);
    }

    pub(super) fn on_free(&mut self, free: FreeSpace, kept: FreeSpace, now: BootMillis) {
        // A shortage ends only when a quarter more is free, so that it does not flap.
        let wanted = match self.short {
            None => kept,
            Some(_) => FreeSpace {
                bytes: kept.bytes.saturating_add(kept.bytes / 4),
                files: kept.files.saturating_add(kept.files / 4),
            },
        };
        let missing = FreeSpace {
            bytes: wanted.bytes.saturating_sub(free.bytes),
            files: wanted.files.saturating_sub(free.files),
        };
        match &mut self.short {
            _ if missing == FreeSpace::default() => {
                if self.short.take().is_some() {
                    info!("the disk of attempts has room again");
                }
            }
            Some(short) => short.missing = missing,
            None => {
                let why = self.told(free, kept);
                warn!("{why}");
                let since = now;
                self.short = Some(Shortage {
                    why,
                    since,
                    missing,
                });
            }
        }
    }

    fn told(&self, free: FreeSpace, kept: FreeSpace) -> String {
        let dir = self.dir.display();
        match free.bytes < kept.bytes {
            true => format!(
                "its disk is nearly full: {} are free at {dir}, and {} are kept free (`min_free`): remove what is not \
                 needed there",
                format_memory(free.bytes),
                format_memory(kept.bytes)
            ),
            false => format!(
                "its disk is nearly full: {} more files can be made at {dir}, and {} are kept free: remove what is not \
                 needed there",
                free.files, kept.files
            ),
        }
    }
}

impl Shortage {
    /// The largest attempts of a count since the shortage began, as many as end it; empty if all of them
    /// would not.
    pub(super) fn cured_by(
        &self,
        counted: Vec<(AttemptId, DiskUsage)>,
    ) -> Vec<(AttemptId, StorageExceeded)> {
        enough(counted, self.missing)
    }
}

/// The largest counted attempts that together free what is missing; empty if all of them do not.
fn enough(
    mut counted: Vec<(AttemptId, DiskUsage)>,
    missing: FreeSpace,
) -> Vec<(AttemptId, StorageExceeded)> {
    counted.sort_by_key(|(_, count)| match missing.bytes {
        0 => std::cmp::Reverse(count.files),
        _ => std::cmp::Reverse(count.bytes),
    });
    let mut left = missing;
    let mut chosen = Vec::new();
    for (id, count) in counted {
        if left == FreeSpace::default() {
            break;
        }
        left.bytes = left.bytes.saturating_sub(count.bytes);
        left.files = left.files.saturating_sub(count.files);
        let bound = if count.too_deep {
            StorageBound::Depth
        } else {
            StorageBound::Reserve
        };
        // The directories that were not counted may be all that is missing.
        left = if count.too_deep {
            FreeSpace::default()
        } else {
            left
        };
        chosen.push((id, exceeded(count, bound)));
    }
    if left == FreeSpace::default() {
        chosen
    } else {
        Vec::new()
    }
}

/// `files * of / all`.
fn part(of: u64, all: u64, files: u64) -> u64 {
    let part = u128::from(files) * u128::from(of) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> AttemptId {
        text.parse().unwrap()
    }

    fn count(bytes: u64, files: u64) -> DiskUsage {
        DiskUsage {
            bytes,
            files,
            too_deep: false,
        }
    }

    fn chosen(counted: &[(&str, u64, u64)], bytes: u64, files: u64) -> Vec<String> {
        let counted = counted.iter().map(|(name, b, f)| (id(name), count(*b, *f)));
        let chosen = enough(counted.collect(), FreeSpace { bytes, files });
        chosen.into_iter().map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn the_largest_are_stopped_as_many_as_it_takes_and_none_in_vain() {
        let three = [("a.1", 10, 900), ("b.1", 50, 1), ("c.1", 30, 2)];
        assert_eq!(chosen(&three, 40, 0), ["b.1"]);
        assert_eq!(chosen(&three, 60, 0), ["b.1", "c.1"]);
        assert_eq!(chosen(&three, 0, 500), ["a.1"]);
        assert!(chosen(&three, 91, 0).is_empty());
        assert!(chosen(&[], 1, 0).is_empty());
    }

    #[test]
    fn files_are_granted_as_bytes_are() {
        assert_eq!(part(1 << 30, 1 << 40, 1 << 26), 1 << 16);
        assert_eq!(part(u64::MAX, 1, u64::MAX), u64::MAX);
        assert_eq!(part(5, 0, 7), 35);
    }

    #[test]
    fn a_shortage_begins_below_what_is_kept_and_ends_a_quarter_above_it() {
        let mut reserve = Reserve::new("/nowhere".into(), None);
        let kept = FreeSpace {
            bytes: 1000,
            files: 100,
        };
        let mut is_short = |bytes, files| {
            reserve.on_free(FreeSpace { bytes, files }, kept, BootMillis(1));
            reserve.short().is_some()
        };
        for (bytes, files, expected) in [
            (1000, 100, false),
            (999, 100, true),
            (1100, 200, true),
            (1250, 125, false),
            (5000, 99, true),
            (5000, 124, true),
            (5000, 125, false),
        ] {
            assert_eq!(is_short(bytes, files), expected, "{bytes} {files}");
        }
    }
}
