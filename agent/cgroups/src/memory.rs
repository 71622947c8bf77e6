//! Memory: how much a group may hold, how much it has held, and whether the kernel has killed in it for want of memory. Of
//! version 2 alone: version 1 limits none (see [`crate::legacy`]).

use std::path::Path;

use sluice_common::supervision::OutOfMemory;

use crate::file::{self, GroupError};
use crate::setting::{Bounds, Setting};

const MAX: &str = "memory.max";

pub(crate) fn settings(bounds: &Bounds) -> Vec<Setting> {
    // One that loses a process to the limit loses all of them: half a step is of no use to anybody.
    let whole = Setting::new("memory.oom.group", 1).that_may_lack();
    let Some(bytes) = bounds.limits.memory_bytes else {
        return vec![whole];
    };
    // A kernel that swaps nothing has no such file.
    let swap = Setting::new("memory.swap.max", 0).that_may_lack();
    vec![whole, swap, Setting::new(MAX, bytes)]
}

/// How much a group may hold. Where that is not limited, the file says `max` or is not there.
pub(crate) fn max(group: &Path) -> Option<u64> {
    file::number(&group.join(MAX))
}

pub(crate) fn set_max(group: &Path, bytes: u64) -> Result<(), GroupError> {
    file::write(&group.join(MAX), &bytes.to_string())
}

/// The most that a group has held at a time.
pub(crate) fn peak(group: &Path) -> Option<u64> {
    file::number(&group.join("memory.peak"))
}

/// Whether the kernel has killed in a group of version 2, or below it, for want of memory.
pub fn out_of_memory(group: &Path) -> Option<OutOfMemory> {
    let kills = file::keyed(&group.join("memory.events"), "oom_kill")?;
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
