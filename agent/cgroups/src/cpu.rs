//! Processor time: how much a group gets of it, and how much it has used.

use std::path::Path;

use sluice_common::processors::CpuMode;

use crate::file;
use crate::setting::{Bounds, Setting};

/// Over how long the kernel counts processor time, in microseconds: its own default.
const PERIOD_US: u64 = 100_000;
/// The least quota that the kernel takes for a period.
const LEAST_QUOTA_US: u64 = 1_000;
const MCPU_A_CORE: u64 = 1_000;
/// What a group of version 2 has at first.
const DEFAULT_WEIGHT: u64 = 100;
/// What a group of version 1 has at first.
const DEFAULT_SHARES: u64 = 1_024;

const NANOS_A_MICRO: u64 = 1_000;

/// For a group of version 2.
pub(crate) fn unified(bounds: &Bounds) -> Vec<Setting> {
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

/// For a group of version 1.
pub(crate) fn legacy(bounds: &Bounds) -> Vec<Setting> {
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

/// What a group of version 2 has used, in microseconds: counted in every one, with or without the controller.
pub(crate) fn used_unified(group: &Path) -> Option<u64> {
    file::keyed(&group.join("cpu.stat"), "usage_usec")
}

/// The same of a group of version 1 that counts.
pub(crate) fn used_legacy(group: &Path) -> Option<u64> {
    file::number(&group.join("cpuacct.usage")).map(|nanos| nanos / NANOS_A_MICRO)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_share_is_too_small_or_too_large_for_the_kernel() {
        assert_eq!((weight(1), weight(u64::MAX)), (1, 10_000));
        assert_eq!((shares(1), shares(u64::MAX)), (2, 262_144));
        assert_eq!(quota_us(1), LEAST_QUOTA_US);
        assert_eq!(quota_us(u64::MAX), u64::MAX / MCPU_A_CORE);
    }
}
