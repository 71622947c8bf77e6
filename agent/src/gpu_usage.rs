//! Tells how much of its GPUs each attempt keeps busy, by the last scan of the driver.

use std::collections::BTreeMap;

use sluice_common::id::AttemptId;
use sluice_common::supervision::BootMillis;

use crate::detect::GpuActivity;

/// Longest time for which a scan counts, if the driver does not answer the next ones.
const SCAN_LIMIT_MILLIS: u64 = 15_000;

/// The last scan, and its time.
#[derive(Debug, Default)]
pub(crate) struct GpuUsage {
    gpus: BTreeMap<String, GpuActivity>,
    at: BootMillis,
}

impl GpuUsage {
    pub(crate) fn new(gpus: BTreeMap<String, GpuActivity>, at: BootMillis) -> Self {
        Self { gpus, at }
    }

    /// Busy part of an attempt's GPUs, in thousandths of a percent of all of them; `None` if it has none, or the use of one
    /// is unknown. `has_groups` tells whether attempts have control groups; without, all use of a GPU counts, because
    /// no other attempt has it.
    pub(crate) fn busy_milli(
        &self,
        attempt: &AttemptId,
        gpus: &[String],
        has_groups: bool,
        now: BootMillis,
    ) -> Option<u64> {
        if now.0.saturating_sub(self.at.0) > SCAN_LIMIT_MILLIS {
            return None;
        }
        let percents = gpus.iter().map(|gpu| {
            let GpuActivity { whole, by_attempt } = self.gpus.get(gpu)?;
            match by_attempt.as_ref().filter(|_| has_groups) {
                Some(attempts) => Some(attempts.get(attempt).copied().unwrap_or(0)),
                None => *whole,
            }
        });
        let sum: u64 = percents.map(|it| it.map(u64::from)).sum::<Option<u64>>()?;
        (sum * 1000).checked_div(gpus.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_all_gpus_of_an_attempt_counts() {
        let attempt = |id: &str| -> AttemptId { id.parse().unwrap() };
        let by = |id: &str, percent| Some([(attempt(id), percent)].into());
        let gpu = |whole, by_attempt| GpuActivity { whole, by_attempt };
        let gpus = [
            ("own".to_owned(), gpu(Some(90), by("a.1", 60))),
            ("idle".to_owned(), gpu(Some(80), by("b.1", 80))),
            ("old".to_owned(), gpu(Some(30), None)),
            ("silent".to_owned(), gpu(None, None)),
        ];
        let usage = GpuUsage::new(gpus.into(), BootMillis(1000));
        let busy = |gpus: &[&str], has_groups, now| {
            let gpus: Vec<String> = gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
            usage.busy_milli(&attempt("a.1"), &gpus, has_groups, BootMillis(now))
        };
        for (gpus, has_groups, expected) in [
            (&["own"][..], true, Some(60_000)),
            (&["own"], false, Some(90_000)),
            (&["own", "idle"], true, Some(30_000)),
            (&["own", "old", "idle"], true, Some(30_000)),
            (&["own", "silent"], true, None),
            (&["MIG-1"], true, None),
            (&[], true, None),
        ] {
            assert_eq!(busy(gpus, has_groups, 2000), expected, "{gpus:?}");
        }
        assert_eq!(busy(&["own"], true, 17_000), None, "the scan is too old");
    }
}
