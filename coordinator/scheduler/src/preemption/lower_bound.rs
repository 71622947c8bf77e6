//! A lower bound of what preemption on a host costs, so that hosts that cannot be cheaper than the best known one are
//! skipped. An optimisation only; decides nothing.
//!
//! Applies to requests that lack only host resources: then all victims are on the host itself. The host must free as
//! many GPUs as are missing, so no set loses less work than the runs that lose least per GPU, the last one in part.

use alloc::vec::Vec;

use sluice_common::id::NodeName;

use crate::model::resources::HostResources;
use crate::preemption::candidates::Candidate;
use crate::preemption::offer::PreemptionCost;
use crate::preemption::what_if::WhatIf;

/// No set of victims on the host costs less than this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LowerBound {
    highest_priority: Option<u64>,
    work: u128,
}

impl LowerBound {
    /// Whether everything there costs more than `cost`.
    pub(super) fn exceeds(&self, cost: &PreemptionCost) -> bool {
        (cost.highest_priority, cost.work) < (self.highest_priority, self.work)
    }
}

/// The lower bound for a host; nothing if the request fits there as it is.
pub(crate) fn on<'c, 'a: 'c>(
    base: &WhatIf<'a, '_>,
    node: &NodeName,
    candidates: impl Iterator<Item = &'c Candidate<'a>> + Clone,
) -> LowerBound {
    let missing = base.missing_count_on(node);
    if missing == HostResources::default() {
        return LowerBound::default();
    }
    let own = candidates.clone().any(|candidate| !candidate.rank.foreign);
    let priorities = candidates.clone();
    let priorities = priorities.map(|candidate| candidate.rank.priority);
    let held = candidates.map(|it| (it.rank.work, it.run.each().mgpu()));
    LowerBound {
        highest_priority: priorities.min().filter(|_| !own),
        work: least_work(held, missing.mgpu()),
    }
}

/// The least work lost by freeing `missing` GPUs, given the lost work and GPUs of each run.
fn least_work(held: impl Iterator<Item = (u128, u64)>, mut missing: u64) -> u128 {
    let mut held: Vec<(u128, u64)> = held.filter(|(_, gpus)| *gpus > 0).collect();
    held.sort_unstable_by(|(work, gpus), (others, other)| {
        let own = work.saturating_mul(u128::from(*other));
        own.cmp(&others.saturating_mul(u128::from(*gpus)))
    });
    let mut sum: u128 = 0;
    for (work, gpus) in held {
        if gpus >= missing {
            return sum.saturating_add(work.saturating_mul(u128::from(missing)) / u128::from(gpus));
        }
        missing -= gpus;
        sum = sum.saturating_add(work);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_run_counts_for_the_part_that_is_needed() {
        let held = [(100, 4), (10, 1), (80, 2), (5, 0)];
        for (missing, work) in [(0, 0), (1, 10), (3, 60), (5, 110), (6, 150), (9, 190)] {
            assert_eq!(least_work(held.into_iter(), missing), work, "{missing}");
        }
    }

    proptest! {
        #[test]
        fn no_set_loses_less(
            held in prop::collection::vec((0u128..50, 0u64..5), 0..8),
            missing in 0u64..12,
        ) {
            let least = least_work(held.iter().copied(), missing);
            for set in 0u32..1 << held.len() {
                let taken = held.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
                let (work, gpus) = taken.fold((0, 0), |(w, g), (_, it)| (w + it.0, g + it.1));
                prop_assert!(gpus < missing || least <= work);
            }
        }
    }
}
