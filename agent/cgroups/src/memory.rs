//! Memory of a group of version 2: limit, peak, and whether the kernel killed a process of it for lack of
//! memory. Version 1 is not used: see [`crate::legacy`].

use std::path::Path;

use sluice_common::supervision::OutOfMemory;

use crate::file::{self, GroupError};
use crate::setting::{GroupLimits, Setting};

const MAX: &str = "memory.max";

pub(crate) fn settings(bounds: &GroupLimits) -> Vec<Setting> {
    // A kill for lack of memory takes the whole step: a part of it is of no use.
    let whole = Setting::new("memory.oom.group", 1).optional();
    let Some(bytes) = bounds.limits.memory_bytes else {
        return vec![whole];
    };
    // A kernel without swap has no such file.
    let swap = Setting::new("memory.swap.max", 0).optional();
    vec![whole, swap, Setting::new(MAX, bytes)]
}

/// The limit of a group, in bytes; `None` if the file is missing or says `max`.
pub(crate) fn max(group: &Path) -> Option<u64> {
    file::number(&group.join(MAX))
}

pub(crate) fn set_max(group: &Path, bytes: u64) -> Result<(), GroupError> {
    file::write(&group.join(MAX), &bytes.to_string())
}

/// Memory in use by a group, in bytes, without files in the cache that the kernel can drop.
pub(crate) fn used(group: &Path) -> Option<u64> {
    let used = file::number(&group.join("memory.current"))?;
    let cached = file::keyed_number(&group.join("memory.stat"), "inactive_file");
    Some(used.saturating_sub(cached.unwrap_or(0)))
}

/// The highest memory use of a group so far, in bytes.
pub(crate) fn peak(group: &Path) -> Option<u64> {
    file::number(&group.join("memory.peak"))
}

/// The out-of-memory kills in a group of version 2 or below it, if there were any.
pub fn out_of_memory(group: &Path) -> Option<OutOfMemory> {
    let kills = file::keyed_number(&group.join("memory.events"), "oom_kill")?;
    (kills > 0).then(|| OutOfMemory {
        limit_bytes: max(group),
        peak_bytes: peak(group),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tree;

    #[test]
    fn a_kill_for_want_of_memory_is_told_with_its_numbers() {
        let events = |kills: u32| format!("low 0\nhigh 0\nmax 9\noom 1\noom_kill {kills}\n");
        let with = |kills, max| {
            let dir = tree(&[
                ("memory.events", &events(kills)),
                ("memory.max", max),
                ("memory.peak", "99\n"),
            ]);
            out_of_memory(dir.path())
        };
        let found = |limit_bytes| {
            Some(OutOfMemory {
                limit_bytes,
                peak_bytes: Some(99),
            })
        };
        assert_eq!(with(2, "100\n"), found(Some(100)));
        assert_eq!(with(1, "max\n"), found(None));
        assert_eq!(with(0, "100\n"), None);
        assert_eq!(out_of_memory(Path::new("/no/such")), None);
    }
}
