//! Resource usage of an attempt as measured by its host.

use serde::{Deserialize, Serialize};

use crate::id::AttemptId;
use crate::metric::MetricReading;

/// Usage of all processes of an attempt. On hosts without accounting control groups it covers only the main process and
/// its waited-for children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// CPU time, in microseconds.
    pub cpu_us: Option<u64>,
    /// Peak memory use, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Bytes read from storage.
    pub read_bytes: Option<u64>,
    /// Bytes written to storage.
    pub written_bytes: Option<u64>,
}

/// Usage of the processes of an attempt while it runs. `None` for what its host does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningUsage {
    /// CPU time so far, in microseconds.
    pub cpu_us: Option<u64>,
    /// Memory in use, in bytes, without files in the cache that the kernel can drop.
    pub memory_bytes: Option<u64>,
}

/// Recent usage of an attempt, as its host reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Id of the attempt.
    pub attempt: AttemptId,
    /// Cores used since the report before, on average, in thousandths.
    pub mcpu: Option<u64>,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Part of its GPUs that its processes keep busy, in thousandths of a percent of all of them.
    pub gpu_milli: Option<u64>,
    /// The metric that it serves itself, if it is asked for one.
    pub metric: Option<MetricReading>,
}

impl UsageReport {
    /// A report that tells nothing.
    pub const fn empty(attempt: AttemptId) -> Self {
        Self {
            attempt,
            mcpu: None,
            memory_bytes: None,
            gpu_milli: None,
            metric: None,
        }
    }
}

impl Usage {
    /// Fills unknown values from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            cpu_us: self.cpu_us.or(other.cpu_us),
            peak_memory_bytes: self.peak_memory_bytes.or(other.peak_memory_bytes),
            read_bytes: self.read_bytes.or(other.read_bytes),
            written_bytes: self.written_bytes.or(other.written_bytes),
        }
    }

    /// Combines the usage of two hosts: sums, and the higher peak. Unknown if either is unknown.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        let peaks = self.peak_memory_bytes.zip(other.peak_memory_bytes);
        Self {
            cpu_us: sum(self.cpu_us, other.cpu_us),
            peak_memory_bytes: peaks.map(|(a, b)| a.max(b)),
            read_bytes: sum(self.read_bytes, other.read_bytes),
            written_bytes: sum(self.written_bytes, other.written_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu_us: Option<u64>, peak: Option<u64>) -> Usage {
        Usage {
            cpu_us,
            peak_memory_bytes: peak,
            ..Usage::default()
        }
    }

    #[test]
    fn what_is_known_goes_before_what_is_guessed() {
        let found = usage(Some(1), None).or(usage(Some(2), Some(3)));
        assert_eq!(found, usage(Some(1), Some(3)));
    }

    #[test]
    fn two_hosts_use_the_sum_and_the_higher_peak() {
        let found = usage(Some(1), Some(7)).and(usage(Some(2), Some(5)));
        assert_eq!(found, usage(Some(3), Some(7)));
        assert_eq!(
            usage(Some(1), None).and(usage(None, Some(5))),
            usage(None, None)
        );
    }
}
