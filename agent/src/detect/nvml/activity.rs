//! Reads how busy the processes of each attempt keep a whole GPU. An attempt's processes are found by their control group,
//! whose name the supervisor gives.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;
use serde::{Deserialize, Serialize};
use sluice_common::attempt_dir::GROUP_PREFIX;
use sluice_common::id::AttemptId;

/// Most that can be true of any GPU.
const MAX_PERCENT: u32 = 100;

/// Most bytes of the list of a process's groups: a few lines with a path each.
const MAX_GROUPS_BYTES: u64 = 64 * 1024;

/// Use of a whole GPU between the last two scans, in percent of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuActivity {
    /// Of all processes; `None` if the driver does not tell.
    pub(crate) whole: Option<u32>,
    /// Of the processes of each attempt that uses it; `None` if the driver does not tell by process, or a process cannot
    /// be looked at.
    pub(crate) by_attempt: Option<BTreeMap<AttemptId, u32>>,
}

/// The newest sample of each GPU that was read.
#[derive(Default)]
pub(super) struct ActivityReader {
    read_until: BTreeMap<String, u64>,
}

impl ActivityReader {
    /// Reads the use of a whole GPU since the last scan.
    pub(super) fn of(&mut self, device: &Device<'_>, uuid: &str) -> GpuActivity {
        let until = self.read_until.entry(uuid.to_owned()).or_default();
        let samples = match device.process_utilization_stats(*until) {
            Ok(samples) => Some(samples),
            // No process has used the GPU since.
            Err(NvmlError::NotFound) => Some(Vec::new()),
            Err(_) => None,
        };
        let newest = samples.iter().flatten().map(|sample| sample.timestamp);
        *until = newest.max().unwrap_or(*until);
        let whole = device.utilization_rates().ok().map(|rates| rates.gpu);
        GpuActivity {
            whole: whole.filter(|percent| *percent <= MAX_PERCENT),
            by_attempt: samples.and_then(|samples| by_attempt(&samples, attempt_of)),
        }
    }

    /// Forgets GPUs that the driver lists no more.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.read_until.retain(|uuid, _| is_there(uuid));
    }
}

/// Adds the use of each attempt's processes; each process counts with the mean of its samples. `None` if a process cannot
/// be looked at.
fn by_attempt(
    samples: &[ProcessUtilizationSample],
    attempt_of: impl Fn(u32) -> Option<Option<AttemptId>>,
) -> Option<BTreeMap<AttemptId, u32>> {
    let mut processes = BTreeMap::<u32, (u32, u32)>::new();
    for sample in samples {
        let (sum, count) = processes.entry(sample.pid).or_default();
        *sum = sum.saturating_add(sample.sm_util.min(MAX_PERCENT));
        *count = count.saturating_add(1);
    }
    let mut attempts = BTreeMap::<AttemptId, u32>::new();
    for (pid, (sum, count)) in processes {
        let mean = sum / count.max(1);
        if mean == 0 {
            continue;
        }
        if let Some(attempt) = attempt_of(pid)? {
            let busy = attempts.entry(attempt).or_default();
            *busy = busy.saturating_add(mean).min(MAX_PERCENT);
        }
    }
    Some(attempts)
}

/// The attempt to which a process belongs, if to any; `None` if its groups cannot be read.
fn attempt_of(pid: u32) -> Option<Option<AttemptId>> {
    let file = fs::File::open(format!("/proc/{pid}/cgroup")).ok()?;
    let mut groups = String::new();
    file.take(MAX_GROUPS_BYTES)
        .read_to_string(&mut groups)
        .ok()?;
    Some(attempt_in(&groups))
}

/// The attempt in the groups of a process, which are lines such as `0::/sluice/attempt-train.1`.
pub(crate) fn attempt_in(groups: &str) -> Option<AttemptId> {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut names = paths.flat_map(|path| path.split('/'));
    names.find_map(|name| name.strip_prefix(GROUP_PREFIX)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(id: &str) -> AttemptId {
        id.parse().unwrap()
    }

    fn sample(pid: u32, sm_util: u32) -> ProcessUtilizationSample {
        ProcessUtilizationSample {
            pid,
            timestamp: 1,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        }
    }

    #[test]
    fn the_attempt_of_a_process_is_that_of_its_group() {
        for (groups, expected) in [
            ("0::/system.slice/sluice/attempt-train.3\n", Some("train.3")),
            (
                "4:cpu,cpuacct:/x\n0::/sluice/attempt-a-1.2/libpod-7/container\n",
                Some("a-1.2"),
            ),
            ("0::/user.slice/my-attempt-a.1\n", None),
            ("0::/attempt-nonsense\n", None),
            ("", None),
        ] {
            assert_eq!(attempt_in(groups), expected.map(attempt), "{groups}");
        }
    }

    #[test]
    fn the_use_of_an_attempt_is_that_of_its_processes() {
        let samples = [
            sample(1, 40),
            sample(1, 20),
            sample(2, 25),
            sample(3, 99),
            sample(4, 90),
            sample(5, 200),
            sample(6, 0),
        ];
        let of = |pid| match pid {
            1 | 2 => Some(Some(attempt("a.1"))),
            3 => Some(None),
            4 | 5 => Some(Some(attempt("b.1"))),
            _ => None,
        };
        let expected = [(attempt("a.1"), 55), (attempt("b.1"), 100)];
        assert_eq!(by_attempt(&samples, of), Some(expected.into()));
        let unreadable = by_attempt(&[sample(7, 1)], of);
        assert_eq!(unreadable, None, "its process cannot be looked at");
        assert_eq!(by_attempt(&[], of), Some(BTreeMap::new()));
    }
}
