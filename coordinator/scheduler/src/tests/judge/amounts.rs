//! Amounts by key, as plain numbers. Of GPUs these tests count whole ones, the scheduler thousandths.

use sluice_common::amount::MGPU_A_GPU;

/// The keys of these tests; the first four are reported by hosts.
pub(in crate::tests) const KEYS: [&str; 7] = [
    "mgpu",
    "mcpu",
    "memory_mb",
    "storage_mb",
    "step_run",
    "lic",
    "slots",
];
pub(in crate::tests) const GPU: usize = 0;
pub(in crate::tests) const MCPU: usize = 1;
pub(in crate::tests) const MEM: usize = 2;
pub(in crate::tests) const STEP_RUN: usize = 4;
pub(in crate::tests) const LIC: usize = 5;
pub(in crate::tests) const SLOTS: usize = 6;

/// Amount that the scheduler counts for one of a key.
pub(in crate::tests) const fn scale(key: usize) -> u64 {
    if key == GPU { MGPU_A_GPU } else { 1 }
}

/// Number of [`KEYS`] that hosts report.
pub(super) const OF_HOSTS: usize = 4;

/// Amount of each of [`KEYS`].
pub(in crate::tests) type JudgedAmounts = [u64; 7];

pub(super) fn plus(a: JudgedAmounts, b: JudgedAmounts) -> JudgedAmounts {
    core::array::from_fn(|key| a[key] + b[key])
}

pub(super) fn less(a: JudgedAmounts, b: JudgedAmounts) -> JudgedAmounts {
    core::array::from_fn(|key| a[key].saturating_sub(b[key]))
}

impl super::JudgedRequest {
    /// "Keys count N times, `step_run` once."
    pub(super) fn total(&self) -> JudgedAmounts {
        core::array::from_fn(|key| match key {
            STEP_RUN => self.each[key],
            _ => self.each[key] * self.nodes,
        })
    }
}
