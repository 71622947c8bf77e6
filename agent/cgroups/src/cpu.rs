//! Processor time: the limits of a control group, and how much it has used.

use std::path::Path;

use sluice_common::processors::CpuMode;

use crate::file;
use crate::setting::{GroupLimits, Setting};

/// Period over which the kernel enforces the quota, in microseconds. The kernel's default.
const PERIOD_US: u64 = 100_000;
/// Smallest quota that the kernel accepts for a period, in microseconds.
const MIN_QUOTA_US: u64 = 1_000;
const MCPU_PER_CORE: u64 = 1_000;
/// Default `cpu.weight` of a group of version 2.
const DEFAULT_WEIGHT: u64 = 100;
/// Default `cpu.shares` of a group of version 1.
const DEFAULT_SHARES: u64 = 1_024;

const NANOS_PER_MICRO: u64 = 1_000;

/// Settings for a group of version 2.
pub(crate) fn unified(bounds: &GroupLimits) -> Vec<Setting> {
    let Some(mcpu) = bounds.limits.mcpu else {
        return Vec::new();
    };
    let weight = Setting::new("cpu.weight", weight(mcpu));
    let quota = quota_us(mcpu);
    match bounds.cpu_mode {
        CpuMode::Limit => vec![
            weight,
            Setting::new("cpu.max", format!("{quota} {PERIOD_US}")),
        ],
        CpuMode::Weight | CpuMode::Pinned => vec![weight],
    }
}

/// Settings for a group of version 1.
pub(crate) fn legacy(bounds: &GroupLimits) -> Vec<Setting> {
    let Some(mcpu) = bounds.limits.mcpu else {
        return Vec::new();
    };
    let shares = Setting::new("cpu.shares", shares(mcpu));
    match bounds.cpu_mode {
        CpuMode::Limit => vec![
            shares,
            Setting::new("cpu.cfs_period_us", PERIOD_US),
            Setting::new("cpu.cfs_quota_us", quota_us(mcpu)),
        ],
        CpuMode::Weight | CpuMode::Pinned => vec![shares],
    }
}

/// Processor time used by a group of version 2, in microseconds. The kernel counts it even if the controller
/// is off.
pub(crate) fn used_unified(group: &Path) -> Option<u64> {
    file::keyed_number(&group.join("cpu.stat"), "usage_usec")
}

/// Processor time used by a group of version 1 of the `cpuacct` controller, in microseconds.
pub(crate) fn used_legacy(group: &Path) -> Option<u64> {
    file::number(&group.join("cpuacct.usage")).map(|nanos| nanos / NANOS_PER_MICRO)
}

/// The `cpu.weight` of version 2. One core has the default weight of a group, so steps compete with other
/// groups of the host by their number of cores.
fn weight(mcpu: u64) -> u64 {
    (mcpu.saturating_mul(DEFAULT_WEIGHT) / MCPU_PER_CORE).clamp(1, 10_000)
}

/// The `cpu.shares` of version 1, by the same rule as [`weight`].
fn shares(mcpu: u64) -> u64 {
    (mcpu.saturating_mul(DEFAULT_SHARES) / MCPU_PER_CORE).clamp(2, 262_144)
}

fn quota_us(mcpu: u64) -> u64 {
    (mcpu.saturating_mul(PERIOD_US) / MCPU_PER_CORE).max(MIN_QUOTA_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_share_is_too_small_or_too_large_for_the_kernel() {
        assert_eq!((weight(1), weight(u64::MAX)), (1, 10_000));
        assert_eq!((shares(1), shares(u64::MAX)), (2, 262_144));
        assert_eq!(quota_us(1), MIN_QUOTA_US);
        assert_eq!(quota_us(u64::MAX), u64::MAX / MCPU_PER_CORE);
    }
}
