//! The values to write into the files of an attempt's groups, over all controllers. Pure, so that tests need
//! no kernel with these controllers.

use crate::setting::{GroupLimits, Setting};
use crate::{Controller, cpu, memory, pids};

/// Settings for a group of version 2 in which these controllers are on.
pub fn unified(bounds: &GroupLimits, is_on: impl Fn(Controller) -> bool) -> Vec<Setting> {
    let mut settings = Vec::new();
    if is_on(Controller::Cpu) {
        settings.extend(cpu::unified(bounds));
    }
    if is_on(Controller::Memory) {
        settings.extend(memory::settings(bounds));
    }
    if is_on(Controller::Pids) {
        settings.push(pids::setting(bounds));
    }
    settings
}

/// Settings for a group of version 1 in the hierarchy of one controller.
pub fn legacy(bounds: &GroupLimits, controller: Controller) -> Vec<Setting> {
    match controller {
        Controller::Cpu => cpu::legacy(bounds),
        Controller::Pids => vec![pids::setting(bounds)],
        Controller::CpuAccounting
        | Controller::Freezer
        | Controller::Memory
        | Controller::Cpuset
        | Controller::Devices => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::processors::CpuMode;
    use sluice_common::supervision::ResourceLimits;

    fn bounds(mcpu: Option<u64>, memory_bytes: Option<u64>) -> GroupLimits {
        GroupLimits {
            limits: ResourceLimits {
                mcpu,
                memory_bytes,
                storage_bytes: None,
            },
            cpu_mode: CpuMode::Limit,
            pids_max: 77,
        }
    }

    fn lines(settings: &[Setting]) -> Vec<String> {
        let line = |s: &Setting| format!("{} {}", s.file, s.value);
        settings.iter().map(line).collect()
    }

    #[test]
    fn every_limit_is_written_in_version_2() {
        let found = unified(&bounds(Some(1_500), Some(1 << 30)), |_| true);
        let wanted = [
            "cpu.weight 150",
            "cpu.max 150000 100000",
            "memory.oom.group 1",
            "memory.swap.max 0",
            "memory.max 1073741824",
            "pids.max 77",
        ];
        assert_eq!(lines(&found), wanted);
        let lacking = found.iter().filter(|s| s.is_optional).map(|s| s.file);
        assert_eq!(
            lacking.collect::<Vec<_>>(),
            ["memory.oom.group", "memory.swap.max"]
        );
    }

    #[test]
    fn what_is_not_limited_or_has_no_controller_is_not_written() {
        let free = bounds(None, None);
        assert_eq!(
            lines(&unified(&free, |_| true)),
            ["memory.oom.group 1", "pids.max 77"]
        );
        assert_eq!(unified(&bounds(Some(1), Some(1)), |_| false), []);
        assert_eq!(legacy(&free, Controller::Cpu), []);
    }

    #[test]
    fn version_1_limits_processors_and_processes() {
        let bounds = bounds(Some(250), Some(1));
        let found = lines(&legacy(&bounds, Controller::Cpu));
        assert_eq!(
            found,
            [
                "cpu.shares 256",
                "cpu.cfs_period_us 100000",
                "cpu.cfs_quota_us 25000"
            ]
        );
        assert_eq!(lines(&legacy(&bounds, Controller::Pids)), ["pids.max 77"]);
        assert_eq!(legacy(&bounds, Controller::Freezer), []);
    }

    #[test]
    fn what_is_weighed_or_pinned_has_no_limit_of_its_time() {
        for cpu_mode in [CpuMode::Weight, CpuMode::Pinned] {
            let bounds = GroupLimits {
                cpu_mode,
                ..bounds(Some(4_000), None)
            };
            let newer = lines(&unified(&bounds, |c| c == Controller::Cpu));
            assert_eq!(newer, ["cpu.weight 400"]);
            let older = lines(&legacy(&bounds, Controller::Cpu));
            assert_eq!(older, ["cpu.shares 4096"]);
        }
    }
}
