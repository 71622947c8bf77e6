//! What is written into the files of an attempt's groups so that its limits hold. Pure, so that it is tested without a
//! kernel that has the controllers.

use std::fs;

use sluice_cgroups::Controller;
use sluice_common::processors::CpuMode;
use sluice_common::supervision::Limits;

/// Over how long the kernel counts processor time, in microseconds: its own default.
const PERIOD_US: u64 = 100_000;
/// The least quota that the kernel takes for a period.
const LEAST_QUOTA_US: u64 = 1_000;
const MCPU_A_CORE: u64 = 1_000;
/// What a group of version 2 has at first.
const DEFAULT_WEIGHT: u64 = 100;
/// What a group of version 1 has at first.
const DEFAULT_SHARES: u64 = 1_024;

/// What an attempt may use, in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// As the agent wants it.
    pub limits: Limits,
    /// What its processor time means.
    pub cpu_mode: CpuMode,
    /// Processes and threads, as the supervisor's own config wants it.
    pub pids_max: u32,
}

/// One file and what goes into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file's name in the group.
    pub file: &'static str,
    /// What is written.
    pub value: String,
    /// Whether the limit holds without it where the kernel has no such file.
    pub may_lack: bool,
}

fn setting(file: &'static str, value: impl ToString) -> Setting {
    Setting {
        file,
        value: value.to_string(),
        may_lack: false,
    }
}

/// For a group of version 2 in which these controllers are on.
pub fn unified(bounds: &Bounds, is_on: impl Fn(Controller) -> bool) -> Vec<Setting> {
    let mut settings = Vec::new();
    if let (true, Some(mcpu)) = (is_on(Controller::Cpu), bounds.limits.mcpu) {
        settings.push(setting("cpu.weight", weight(mcpu)));
        if bounds.cpu_mode == CpuMode::Limit {
            let quota = quota_us(mcpu);
            settings.push(setting("cpu.max", format!("{quota} {PERIOD_US}")));
        }
    }
    if is_on(Controller::Memory) {
        // One that loses a process to the limit loses all of them: half a step is of no use to anybody.
        let whole = setting("memory.oom.group", 1);
        settings.push(Setting {
            may_lack: true,
            ..whole
        });
        if let Some(bytes) = bounds.limits.memory_bytes {
            // A kernel that swaps nothing has no such file.
            let swap = setting("memory.swap.max", 0);
            settings.push(Setting {
                may_lack: true,
                ..swap
            });
            settings.push(setting("memory.max", bytes));
        }
    }
    if is_on(Controller::Pids) {
        settings.push(setting("pids.max", bounds.pids_max));
    }
    settings
}

/// For a group of version 1 in the hierarchy of one controller.
pub fn legacy(bounds: &Bounds, controller: Controller) -> Vec<Setting> {
    match controller {
        Controller::Cpu => {
            let Some(mcpu) = bounds.limits.mcpu else {
                return Vec::new();
            };
            let shares = setting("cpu.shares", shares(mcpu));
            match bounds.cpu_mode {
                CpuMode::Limit => vec![
                    shares,
                    setting("cpu.cfs_period_us", PERIOD_US),
                    setting("cpu.cfs_quota_us", quota_us(mcpu)),
                ],
                CpuMode::Weight | CpuMode::Pinned => vec![shares],
            }
        }
        Controller::Pids => vec![setting("pids.max", bounds.pids_max)],
        Controller::CpuAccounting
        | Controller::Freezer
        | Controller::Memory
        | Controller::Cpuset
        | Controller::Devices => Vec::new(),
    }
}

/// Of version 2: one core is worth what a group has that nobody gave anything, so that steps are to the host's other
/// groups as cores are.
fn weight(mcpu: u64) -> u64 {
    (mcpu.saturating_mul(DEFAULT_WEIGHT) / MCPU_A_CORE).clamp(1, 10_000)
}

/// Of version 1, with its own scale.
fn shares(mcpu: u64) -> u64 {
    (mcpu.saturating_mul(DEFAULT_SHARES) / MCPU_A_CORE).clamp(2, 262_144)
}

fn quota_us(mcpu: u64) -> u64 {
    (mcpu.saturating_mul(PERIOD_US) / MCPU_A_CORE).max(LEAST_QUOTA_US)
}

/// Fifteen of a hundred of the processes that the host can have, which is systemd's default for a unit (`TasksMax=` in
/// systemd.resource-control(5)): one step may run wild without stopping the others.
pub fn default_pids_max() -> u32 {
    let limit = |name| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let most = limit("pid_max")
        .into_iter()
        .chain(limit("threads-max"))
        .min();
    share_of(most.unwrap_or(32_768))
}

fn share_of(most: u64) -> u32 {
    u32::try_from(most.saturating_mul(15) / 100).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(mcpu: Option<u64>, memory_bytes: Option<u64>) -> Bounds {
        Bounds {
            limits: Limits {
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
        let lacking = found.iter().filter(|s| s.may_lack).map(|s| s.file);
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
            let bounds = Bounds {
                cpu_mode,
                ..bounds(Some(4_000), None)
            };
            let newer = lines(&unified(&bounds, |c| c == Controller::Cpu));
            assert_eq!(newer, ["cpu.weight 400"]);
            let older = lines(&legacy(&bounds, Controller::Cpu));
            assert_eq!(older, ["cpu.shares 4096"]);
        }
    }

    #[test]
    fn no_share_is_too_small_or_too_large_for_the_kernel() {
        assert_eq!((weight(1), weight(u64::MAX)), (1, 10_000));
        assert_eq!((shares(1), shares(u64::MAX)), (2, 262_144));
        assert_eq!(quota_us(1), LEAST_QUOTA_US);
        assert_eq!(quota_us(u64::MAX), u64::MAX / MCPU_A_CORE);
        assert_eq!(share_of(32_768), 4_915);
        assert_eq!(share_of(u64::MAX), u32::MAX);
    }
}
