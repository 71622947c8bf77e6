//! A lower bound of what preemption on a host costs, so that hosts that cannot be cheaper than the best known one are
//! skipped. An optimisation only; decides nothing.
//!
//! Applies to requests that lack only host resources: then all victims are on the host itself. They free at least what is
//! missing of each resource. Of GPUs the cheapest set that does so is found; of the others, no set loses less work than the
//! runs that lose least for each unit, the last one in part.

use alloc::vec;
use alloc::vec::Vec;

use sluice_common::amount::MGPU_A_GPU;

use crate::model::host::NamedHost;
use crate::model::resources::HostResources;
use crate::preemption::candidate_list::{Candidate, VictimRank};
use crate::preemption::offer::PreemptionCost;
use crate::preemption::what_if::WhatIf;

/// Most missing GPUs for which the cheapest set is found.
const MAX_GPUS: usize = 64;

/// Work that is lost, and number of runs that lose it.
type Loss = (u128, usize);

/// A run that may be stopped: the work that it loses, and what it holds of the host.
type Holding = (u128, HostResources);

/// The cost that no set of victims on a host is below, by the first of its candidates alone; nothing if there is none.
pub(crate) fn of_first(first: Option<&Candidate<'_>>) -> PreemptionCost {
    first.map_or(PreemptionCost::default(), |first| PreemptionCost {
        highest_priority: priority_of(first.rank),
        work: first.rank.work,
        count: 1,
    })
}

/// The cost that no set of victims on a host is below; nothing if the request fits there as it is. `candidates` are those on
/// the host in victim order.
pub(crate) fn on<'c, 'a: 'c>(
    base: &WhatIf<'a, '_>,
    host: NamedHost<'_>,
    candidates: impl Iterator<Item = &'c Candidate<'a>>,
) -> PreemptionCost {
    let missing = base.missing_count_on_host(host);
    let mut held = HostResources::default();
    let mut holdings: Vec<Holding> = Vec::new();
    let mut highest: Option<VictimRank> = None;
    for candidate in candidates {
        let (rank, each) = (candidate.rank, candidate.held.each);
        let is_higher = highest.is_none_or(|highest| !is_alike(highest, rank));
        // Runs of a higher priority are only needed if the others do not hold enough.
        if is_higher && held.cover(missing) {
            break;
        }
        highest = Some(rank);
        held = held.plus(each);
        holdings.push((rank.work, each));
    }
    let (work, count) = least_loss(&holdings, missing);
    PreemptionCost {
        highest_priority: highest.and_then(priority_of),
        work,
        count,
    }
}

/// Priority that counts in the cost; `None` for a run of the request's own subject.
fn priority_of(rank: VictimRank) -> Option<u64> {
    rank.foreign.then_some(rank.priority)
}

/// Whether victims differ only in what they lose.
fn is_alike(one: VictimRank, other: VictimRank) -> bool {
    (one.foreign, one.priority) == (other.foreign, other.priority)
}

/// The least that a set of runs loses which holds all that is missing.
fn least_loss(holdings: &[Holding], missing: HostResources) -> Loss {
    let of_gpus = cheapest_gpus(holdings, missing.mgpu());
    let keys = missing.iter().filter(|(_, missing)| *missing > 0);
    let of_others = keys.map(|(key, missing)| {
        let held = holdings.iter();
        let held = held.map(|(work, each)| (*work, each.get(key)));
        (least_work(held, missing), 1)
    });
    of_others.chain(of_gpus).max().unwrap_or_default()
}

/// The least that is lost by freeing whole GPUs; `None` if parts of GPUs count, or very many.
fn cheapest_gpus(holdings: &[Holding], missing: u64) -> Option<Loss> {
    let whole = |mgpu: u64| {
        let gpus = usize::try_from(mgpu / MGPU_A_GPU).ok()?;
        mgpu.is_multiple_of(MGPU_A_GPU).then_some(gpus)
    };
    let missing = whole(missing).filter(|missing| (1..=MAX_GPUS).contains(missing))?;
    // The least loss that frees so many GPUs or more.
    let mut least: Vec<Option<Loss>> = vec![None; missing + 1];
    least[0] = Some((0, 0));
    for (work, each) in holdings {
        let gpus = whole(each.mgpu())?;
        for freed in (0..missing).rev().filter(|_| gpus > 0) {
            let Some((others, count)) = least[freed] else {
                continue;
            };
            let with = (others.saturating_add(*work), count + 1);
            let known = &mut least[missing.min(freed + gpus)];
            *known = Some(known.map_or(with, |known| known.min(with)));
        }
    }
    least[missing]
}

/// The least work lost by freeing `missing` of a resource, given the lost work and the amount of each run.
fn least_work(held: impl Iterator<Item = (u128, u64)>, mut missing: u64) -> u128 {
    let mut held: Vec<(u128, u64)> = held.filter(|(_, amount)| *amount > 0).collect();
    held.sort_unstable_by(|(work, amount), (others, other)| {
        let own = work.saturating_mul(u128::from(*other));
        own.cmp(&others.saturating_mul(u128::from(*amount)))
    });
    let mut sum: u128 = 0;
    for (work, amount) in held {
        if amount >= missing {
            let part = work.saturating_mul(u128::from(missing)) / u128::from(amount);
            return sum.saturating_add(part);
        }
        missing -= amount;
        sum = sum.saturating_add(work);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_common::amount::{Amounts, MCPU, MGPU};

    fn resources(mgpu: u64, mcpu: u64) -> HostResources {
        HostResources::from_amounts(&Amounts::new().with(MGPU, mgpu).with(MCPU, mcpu))
    }

    /// The least loss by trying all sets.
    fn of_all_sets(holdings: &[Holding], missing: HostResources) -> Option<Loss> {
        let sets = (0u32..1 << holdings.len()).filter_map(|set| {
            let taken = holdings.iter().enumerate();
            let taken = taken.filter(|(n, _)| set >> n & 1 == 1);
            let freed = taken.clone().map(|(_, (_, each))| *each);
            let freed = freed.fold(HostResources::default(), HostResources::plus);
            let work = taken.map(|(_, (work, _))| work).sum();
            freed
                .cover(missing)
                .then_some((work, set.count_ones() as usize))
        });
        sets.min()
    }

    #[test]
    fn the_last_run_counts_for_the_part_that_is_needed() {
        let held = [(100, 4), (10, 1), (80, 2), (5, 0)];
        for (missing, work) in [(0, 0), (1, 10), (3, 60), (5, 110), (6, 150), (9, 190)] {
            assert_eq!(least_work(held.into_iter(), missing), work, "{missing}");
        }
    }

    #[test]
    fn a_run_with_more_gpus_than_are_missing_counts_as_a_whole() {
        let holdings = [(100, 4000), (10, 1000), (80, 2000)].map(|(w, g)| (w, resources(g, 0)));
        let least = |gpus: u64| least_loss(&holdings, resources(gpus * 1000, 0));
        assert_eq!(least(1), (10, 1));
        assert_eq!(least(2), (80, 1));
        assert_eq!(least(3), (90, 2));
        assert_eq!(least(4), (100, 1));
        assert_eq!(least(7), (190, 3));
    }

    #[test]
    fn parts_of_gpus_count_as_parts() {
        let holdings = [(100, 500), (10, 250)].map(|(w, g)| (w, resources(g, 0)));
        assert_eq!(least_loss(&holdings, resources(500, 0)), (60, 1));
    }

    proptest! {
        #[test]
        fn no_set_loses_less(
            held in prop::collection::vec((0u128..50, 0u64..10, 0u64..5), 0..8),
            (gpus, mcpu) in (0u64..12, 0u64..8),
            unit in prop_oneof![Just(1000u64), Just(500)],
        ) {
            let holdings = held.iter().map(|(work, gpus, mcpu)| (*work, resources(gpus * unit, *mcpu)));
            let holdings: Vec<Holding> = holdings.collect();
            let missing = resources(gpus * unit, mcpu);
            if let Some(least) = of_all_sets(&holdings, missing) {
                prop_assert!(least_loss(&holdings, missing) <= least);
            }
        }

        #[test]
        fn the_least_loss_of_whole_gpus_is_exact(
            held in prop::collection::vec((0u128..50, 0u64..5), 0..8),
            gpus in 1u64..12,
        ) {
            let holdings: Vec<Holding> =
                held.iter().map(|(work, gpus)| (*work, resources(gpus * 1000, 0))).collect();
            let missing = resources(gpus * 1000, 0);
            if let Some(least) = of_all_sets(&holdings, missing) {
                prop_assert_eq!(cheapest_gpus(&holdings, missing.mgpu()), Some(least));
            }
        }
    }
}
