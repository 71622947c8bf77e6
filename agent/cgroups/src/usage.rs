//! Resource usage of an attempt's groups, over all controllers.

use std::path::Path;

use sluice_common::usage::{RunningUsage, Usage};

use crate::{cpu, io, memory};

/// Usage of a group of version 2. Processor time is counted in every group, the rest if its controller is on.
pub fn unified(group: &Path) -> Usage {
    let (read_bytes, written_bytes) = io::used(group);
    Usage {
        cpu_us: cpu::used_unified(group),
        peak_memory_bytes: memory::peak(group),
        read_bytes,
        written_bytes,
    }
}

/// Usage of a group of version 2 at this moment.
pub fn live(group: &Path) -> RunningUsage {
    RunningUsage {
        cpu_us: cpu::used_unified(group),
        memory_bytes: memory::used(group),
    }
}

/// Usage of a group of version 1 that counts processor time.
pub fn legacy(group: &Path) -> Usage {
    Usage {
        cpu_us: cpu::used_legacy(group),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tree;

    #[test]
    fn all_that_is_counted_is_read() {
        let full = tree(&[
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
        let live = tree(&[
            ("cpu.stat", "usage_usec 1500\n"),
            ("memory.current", "5000\n"),
            (
                "memory.stat",
                "anon 3000\ninactive_file 1000\nactive_file 1000\n",
            ),
        ]);
        let used = super::live(live.path());
        assert_eq!((used.cpu_us, used.memory_bytes), (Some(1500), Some(4000)));
        assert_eq!(super::live(Path::new("/no/such")), RunningUsage::default());
        let old = tree(&[("cpuacct.usage", "1500999\n")]);
        assert_eq!(legacy(old.path()).cpu_us, Some(1500));
    }
}
