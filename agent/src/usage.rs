//! Turns what attempts used so far into what they used lately.

use std::collections::BTreeMap;

use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;
use sluice_common::usage::{RunningUsage, UsageReport};

/// Remembers the CPU time of each attempt at the last measurement.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    last: BTreeMap<AttemptId, (BootMillis, u64)>,
}

impl UsageMeter {
    /// Reports what was used since the last measurement. The first one of an attempt tells no cores.
    pub(crate) fn read(
        &mut self,
        found: Vec<(AttemptId, RunningUsage)>,
        now: BootMillis,
    ) -> Vec<UsageReport> {
        let last = std::mem::take(&mut self.last);
        let reports = found.into_iter().map(|(attempt, usage)| {
            let before = last.get(&attempt);
            let mcpu = before.zip(usage.cpu_us).and_then(|((at, before), used)| {
                let millis = now.0.saturating_sub(at.0);
                used.saturating_sub(*before).checked_div(millis)
            });
            if let Some(used) = usage.cpu_us {
                self.last.insert(attempt.clone(), (now, used));
            }
            UsageReport {
                mcpu,
                memory_bytes: usage.memory_bytes,
                ..UsageReport::empty(attempt)
            }
        });
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_those_since_the_last_measurement() {
        let mut meter = UsageMeter::default();
        let mut read = |at, attempt: &str, cpu_us, memory_bytes| {
            let usage = RunningUsage {
                cpu_us,
                memory_bytes,
            };
            let found = vec![(attempt.parse().unwrap(), usage)];
            let report = meter.read(found, BootMillis(at)).remove(0);
            (report.mcpu, report.memory_bytes)
        };
        assert_eq!(read(1000, "a.1", Some(500), Some(7)), (None, Some(7)));
        assert_eq!(
            read(11_000, "a.1", Some(15_000_500), None),
            (Some(1500), None)
        );
        assert_eq!(
            read(11_000, "a.1", Some(15_000_500), None),
            (None, None),
            "no time passed"
        );
        assert_eq!(
            read(12_000, "a.1", Some(3), None),
            (Some(0), None),
            "it cannot go back"
        );
        assert_eq!(read(13_000, "b.1", Some(9), None), (None, None));
        assert_eq!(
            read(14_000, "a.1", Some(9), None),
            (None, None),
            "it was gone meanwhile"
        );
        assert_eq!(
            read(15_000, "a.1", None, None),
            (None, None),
            "nobody counts"
        );
    }
}
