//! Amounts by key, as plain numbers. Tests state GPUs by number; the judge counts thousandths, in all and by class.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use sluice_common::id::{NodeName, PlatformName};

use crate::PlatformSet;

/// The keys that pools and policies know; the first four are reported by hosts.
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
/// Thousandths of a GPU, in stated amounts alone; they are added to the whole ones under [`GPU`].
pub(in crate::tests) const GPU_PARTS: usize = KEYS.len();

/// Number of [`KEYS`] that hosts report.
pub(super) const OF_HOSTS: usize = 4;

/// The keys that bound what a host holds: GPUs of each class, and what else it reports.
pub(super) const ON_HOSTS: [usize; 6] = [
    JudgedClass::Whole.key(),
    JudgedClass::Profile3g.key(),
    JudgedClass::Profile1g.key(),
    MCPU,
    MEM,
    3,
];

/// Amount of each of [`KEYS`], and of the GPUs of each class.
pub(in crate::tests) type JudgedAmounts = [u64; KEYS.len() + 3];

/// Class of GPUs: "whole GPUs or slices of one profile, never a mixture".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::tests) enum JudgedClass {
    #[default]
    Whole,
    Profile3g,
    Profile1g,
}

impl JudgedClass {
    pub(in crate::tests) const ALL: [Self; 3] = [Self::Whole, Self::Profile3g, Self::Profile1g];

    /// The key under which hosts count GPUs of the class.
    pub(in crate::tests) const fn key(self) -> usize {
        KEYS.len() + self as usize
    }

    /// "A whole GPU is 1000; a MIG slice counts for its part of the GPU's compute slices (`3g` of 7: 428)."
    pub(in crate::tests) const fn thousandths(self) -> u64 {
        match self {
            Self::Whole => 1000,
            Self::Profile3g => 428,
            Self::Profile1g => 142,
        }
    }

    /// The profile of its slices; `None` for whole GPUs.
    pub(in crate::tests) const fn profile(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Profile3g => Some("3g.40gb"),
            Self::Profile1g => Some("1g.10gb"),
        }
    }

    /// "A slice is of the platform of its model and profile": for each platform of the whole GPU.
    pub(in crate::tests) fn platforms(self, of_whole: &PlatformSet) -> PlatformSet {
        let Some(profile) = self.profile() else {
            return of_whole.clone();
        };
        let names = of_whole.iter().map(|whole| format!("{whole}-{profile}"));
        names.map(|name| PlatformName::new(name).unwrap()).collect()
    }

    /// Name of the nth GPU of the class on a host.
    pub(in crate::tests) fn gpu(self, node: &NodeName, n: u64) -> String {
        format!("{}{n}", self.prefix(node))
    }

    /// The part of those names that they share.
    pub(super) fn prefix(self, node: &NodeName) -> String {
        format!("{node}-{}-", self.profile().unwrap_or("whole"))
    }
}

/// Sets the GPUs of a class in amounts that have no others.
pub(in crate::tests) const fn with_gpus(
    mut amounts: JudgedAmounts,
    class: JudgedClass,
    thousandths: u64,
) -> JudgedAmounts {
    (amounts[GPU], amounts[class.key()]) = (thousandths, thousandths);
    amounts
}

/// The same amounts in the judge's units, with the stated number of GPUs of a class.
pub(in crate::tests) const fn counted(stated: JudgedAmounts, class: JudgedClass) -> JudgedAmounts {
    with_gpus(stated, class, stated[GPU] * class.thousandths())
}

/// The amounts of a pool or a policy in the judge's units.
pub(in crate::tests) fn counted_table(stated: &[(usize, u64)]) -> BTreeMap<usize, u64> {
    let mut table = BTreeMap::new();
    for (key, n) in stated {
        let (key, n) = match *key {
            GPU => (GPU, n * JudgedClass::Whole.thousandths()),
            GPU_PARTS => (GPU, *n),
            key => (key, *n),
        };
        *table.entry(key).or_default() += n;
    }
    table
}

/// The key by which pools and policies count what a host counts under another.
pub(super) const fn in_pools(key: usize) -> usize {
    if key < KEYS.len() { key } else { GPU }
}

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
