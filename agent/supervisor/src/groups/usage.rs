//! What the kernel has counted in an attempt's groups, and whether it killed there for want of memory.

use std::fs;
use std::path::Path;

use sluice_common::supervision::OutOfMemory;
use sluice_common::usage::Usage;

use super::file;

const NANOS_A_MICRO: u64 = 1_000;

/// Of a group of version 2. Processor time is counted in every one, the rest where its controller is on.
pub(super) fn unified(group: &Path) -> Usage {
    let io = fs::read_to_string(group.join("io.stat")).ok();
    Usage {
        cpu_us: file::keyed(&group.join("cpu.stat"), "usage_usec"),
        peak_memory_bytes: number(&group.join("memory.peak")),
        read_bytes: io.as_deref().map(|text| summed(text, "rbytes=")),
        written_bytes: io.as_deref().map(|text| summed(text, "wbytes=")),
    }
}

/// Of a group of version 1 that counts processor time.
pub(super) fn legacy(group: &Path) -> Usage {
    Usage {
        cpu_us: number(&group.join("cpuacct.usage")).map(|nanos| nanos / NANOS_A_MICRO),
        ..Usage::default()
    }
}

/// Whether the kernel has killed in a group of version 2, or below it, for want of memory.
pub(super) fn out_of_memory(group: &Path) -> Option<OutOfMemory> {
    let kills = file::keyed(&group.join("memory.events"), "oom_kill")?;
    (kills > 0).then(|| OutOfMemory {
        // A group without a limit says `max`, which is no number.
        limit_bytes: number(&group.join("memory.max")),
        peak_bytes: number(&group.join("memory.peak")),
    })
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Over all devices: lines such as `8:0 rbytes=90112 wbytes=0 rios=3`.
fn summed(text: &str, key: &str) -> u64 {
    let words = text.split_whitespace();
    let values = words.filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
    values.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn all_that_is_counted_is_read() {
        let full = group(&[
            (
                "cpu.stat",
                "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n",
            ),
            ("memory.peak", "4096\n"),
            (
                "io.stat",
                "8:0 rbytes=90112 wbytes=0 rios=3 wios=0 dbytes=0 dios=0\n8:16 rbytes=8 wbytes=512\n",
            ),
        ]);
        let wanted = Usage {
            cpu_us: Some(1500),
            peak_memory_bytes: Some(4096),
            read_bytes: Some(90_120),
            written_bytes: Some(512),
        };
        assert_eq!(unified(full.path()), wanted);
        assert_eq!(unified(Path::new("/no/such")), Usage::default());
        let old = group(&[("cpuacct.usage", "1500999\n")]);
        assert_eq!(legacy(old.path()).cpu_us, Some(1500));
    }

    #[test]
    fn a_kill_for_want_of_memory_is_told_with_its_numbers() {
        let events = |kills: u32| format!("low 0\nhigh 0\nmax 9\noom 1\noom_kill {kills}\n");
        let with = |kills, max| {
            let dir = group(&[
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
