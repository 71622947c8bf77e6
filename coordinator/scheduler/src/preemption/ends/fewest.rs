//! Finds the hosts on which the fewest resources have to come free before a request fits, GPUs first. The age of runs
//! does not matter: run times are heavy-tailed, so a run that has lasted long is not about to end.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::cmp::Reverse;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::time::Time;

use crate::model::request::Run;
use crate::model::reservations::Reservations;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::ends::{
    AwaitedEnds, AwaitedResources, Main, Named, awaited_resources, units_of,
};
use crate::preemption::what_if::WhatIf;

/// Number of missing GPUs on a host up to which the smallest set of runs is found exactly.
const EXACT_GPUS: usize = 64;
/// Number of hosts that are compared at most, which bounds what one decision costs in a large pool.
const LOOK: usize = 128;

/// Chooses the hosts on which a request should wait, beyond `reservations`; `None` if no schedulable host could hold
/// it even when empty, or if everywhere at least `less_than` has to come free.
pub(crate) fn await_fewest<'a>(
    in_pool: RequestInPool<'a>,
    reservations: &'a Reservations,
    less_than: Option<AwaitedResources>,
) -> Option<AwaitedEnds> {
    let search = Search::new(in_pool, None);
    if less_than.is_some_and(|most| search.at_least() >= most.main()) {
        return None;
    }
    let ends = search.ends_on_hosts(reservations, |what_if, chosen| {
        search.nearest_host(what_if, chosen)
    })?;
    less_than
        .is_none_or(|most| ends.units < most)
        .then_some(ends)
}

/// A host, and the runs that have to end before a request fits there.
pub(super) struct HostEnds<'a> {
    units: AwaitedResources,
    host: NodeName,
    runs: Vec<Named<'a>>,
}

impl HostEnds<'_> {
    /// The least is best: few resources, then few runs, then young ones.
    fn order(&self) -> (AwaitedResources, usize, Reverse<Option<Time>>, &NodeName) {
        let start_times = self.runs.iter().map(|(_, run)| run.start_time());
        (
            self.units,
            self.runs.len(),
            Reverse(start_times.min()),
            &self.host,
        )
    }
}

pub(super) struct Search<'a> {
    in_pool: RequestInPool<'a>,
    /// Only runs that end by then are awaited, if set; none that should have ended by now, because nothing bounds those.
    until: Option<Time>,
    /// Runs of the pool, the youngest first; looked up if a declared resource of the pool is short.
    of_pool: OnceCell<Vec<Named<'a>>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(in_pool: RequestInPool<'a>, until: Option<Time>) -> Self {
        let of_pool = OnceCell::new();
        Self {
            in_pool,
            until,
            of_pool,
        }
    }

    /// Whether a run may be awaited.
    fn admits(&self, run: &Run) -> bool {
        let now = self.in_pool.scheduler.clock;
        let by = |until| {
            run.latest_end()
                .is_some_and(|end| now < end && end <= until)
        };
        self.until.is_none_or(by)
    }

    /// The runs to await on as many hosts as the request needs; `next` finds a host beside those that are chosen.
    pub(super) fn ends_on_hosts(
        &self,
        reservations: &'a Reservations,
        mut next: impl FnMut(&WhatIf<'a, '_>, &[NodeName]) -> Option<HostEnds<'a>>,
    ) -> Option<AwaitedEnds> {
        let Self { in_pool, .. } = *self;
        let mut what_if = WhatIf::new(in_pool, reservations);
        let (mut hosts, mut awaits) = (Vec::new(), BTreeSet::new());
        while hosts.len() < in_pool.request.hosts as usize {
            let next = next(&what_if, &hosts)?;
            for (id, run) in next.runs {
                what_if.remove(id, run);
                awaits.insert(id.clone());
            }
            hosts.push(next.host);
        }
        let units = awaited_resources(in_pool, reservations, &hosts, &awaits);
        let end = in_pool.scheduler.latest_start(&awaits);
        Some(AwaitedEnds {
            hosts,
            awaits,
            units,
            end,
        })
    }

    /// Schedulable hosts that are large enough, with the GPUs and cores that are missing there at least, the fewest
    /// first.
    pub(super) fn hosts(&self) -> impl Iterator<Item = (&'a NodeName, Main)> {
        let Self { in_pool, .. } = self;
        let hosts = in_pool.host_index().by_free.largest_first();
        let large = hosts.filter(|(node, _)| in_pool.could_hold(core::slice::from_ref(*node)));
        large.map(|(node, free)| {
            let missing = in_pool.request.each.less(free);
            (node, (missing.mgpu(), missing.mcpu()))
        })
    }

    /// A lower bound of what has to come free on as many hosts as the request needs.
    fn at_least(&self) -> Main {
        let hosts = self.hosts().take(self.in_pool.request.hosts as usize);
        hosts.fold((0, 0), |sum, (_, missing)| {
            let gpus = missing.0.saturating_add(sum.0);
            (gpus, missing.1.saturating_add(sum.1))
        })
    }

    /// The nearest host beside those that are chosen already. Hosts on which little is missing come first, so the search
    /// ends when no other host could be nearer.
    fn nearest_host(&self, base: &WhatIf<'a, '_>, chosen: &[NodeName]) -> Option<HostEnds<'a>> {
        let mut best: Option<HostEnds<'a>> = None;
        let others = self.hosts().filter(|(node, _)| !chosen.contains(node));
        for (looked_at, (node, missing)) in others.enumerate() {
            let is_done = |best: &HostEnds<'_>| missing >= best.units.main() || looked_at >= LOOK;
            if best.as_ref().is_some_and(is_done) {
                break;
            }
            let with: Vec<NodeName> = chosen.iter().chain([node]).cloned().collect();
            let Some(near) = self.near(base, node, &with) else {
                continue;
            };
            if best.as_ref().is_none_or(|best| near.order() < best.order()) {
                best = Some(near);
            }
        }
        best
    }

    /// The smallest set of runs that must end before the request fits on `hosts`, of which `node` is the last.
    pub(super) fn near(
        &self,
        base: &WhatIf<'a, '_>,
        node: &NodeName,
        hosts: &[NodeName],
    ) -> Option<HostEnds<'a>> {
        let in_pool = self.in_pool;
        let shortage = base.shortage(hosts);
        let here = self.youngest_first(&in_pool.pool.hosts().get(node)?.runs);
        let exact = smallest_set(in_pool, node, shortage.gpus_on(node), &here);
        let mut by_size = here;
        by_size.sort_by_cached_key(|it| units_of(in_pool, &shortage, [*it].into_iter()));
        let sets = [exact, Some(by_size)].into_iter().flatten();
        let near = sets.filter_map(|runs| {
            let runs = self.runs_to_end(base.clone(), hosts, runs)?;
            let units = units_of(in_pool, &shortage, runs.iter().copied());
            let host = node.clone();
            Some(HostEnds { units, host, runs })
        });
        near.min_by(|a, b| a.order().cmp(&b.order()))
    }

    /// Takes runs of `here`, then of the whole pool, until the request fits, and drops those that are not needed, the last
    /// first.
    fn runs_to_end(
        &self,
        mut what_if: WhatIf<'a, '_>,
        hosts: &[NodeName],
        here: Vec<Named<'a>>,
    ) -> Option<Vec<Named<'a>>> {
        let mut taken = Vec::new();
        let mut here = here.into_iter();
        let mut others = None;
        loop {
            let shortage = what_if.shortage(hosts);
            if shortage.is_none() {
                break;
            }
            let next = here.next().or_else(|| {
                let others = others.get_or_insert_with(|| self.runs_of_pool().iter().copied());
                others.next()
            });
            let (id, run) = next?;
            if !what_if.is_removed(id) && shortage.is_helped_by(&what_if, false, id, run) {
                what_if.remove(id, run);
                taken.push((id, run));
            }
        }
        drop_unneeded(&mut what_if, hosts, &mut taken);
        Some(taken)
    }

    fn runs_of_pool(&self) -> &[Named<'a>] {
        self.of_pool.get_or_init(|| {
            let by_start = self.in_pool.pool.by_start.values().rev().flatten();
            let runs = by_start.filter_map(|id| Some((id, self.in_pool.scheduler.run(id)?)));
            runs.filter(|(_, run)| self.admits(run)).collect()
        })
    }

    fn youngest_first(&self, ids: &'a BTreeSet<AttemptId>) -> Vec<Named<'a>> {
        let RequestInPool {
            pool, scheduler, ..
        } = self.in_pool;
        // A host may hold runs that another pool granted before the host moved here; they release nothing to this pool.
        let granted_here = |id: &AttemptId, run: &Run| {
            let account = pool.account(&run.request.subject);
            self.admits(run) && account.is_some_and(|account| account.runs.contains_key(id))
        };
        let runs = ids.iter().filter_map(|id| Some((id, scheduler.run(id)?)));
        let mut runs: Vec<Named<'a>> = runs.filter(|(id, run)| granted_here(id, run)).collect();
        runs.sort_unstable_by_key(|(id, run)| (Reverse(run.start_time()), *id));
        runs
    }
}

/// Finds the runs on a host that hold the fewest GPUs of all sets that hold the missing number, and of these sets the one
/// with the fewest runs; `None` if no GPU is missing, if all runs together hold too few, or if too many are missing.
fn smallest_set<'a>(
    in_pool: RequestInPool<'a>,
    node: &NodeName,
    missing: u64,
    runs: &[Named<'a>],
) -> Option<Vec<Named<'a>>> {
    let mgpu = in_pool.request.class.mgpu();
    let missing = usize::try_from(missing.div_ceil(mgpu))
        .ok()
        .filter(|n| (1..=EXACT_GPUS).contains(n))?;
    let held = runs
        .iter()
        .map(|(id, run)| in_pool.released_for(node, id, run.each()).mgpu() / mgpu);
    let held: Vec<usize> = held
        .map(|gpus| usize::try_from(gpus).unwrap_or(usize::MAX))
        .collect();
    // For each number of GPUs the fewest runs that hold exactly that many, as indexes into `runs`.
    let most = missing.saturating_add(held.iter().copied().filter(|n| *n <= EXACT_GPUS).max()?);
    let mut sets: Vec<Option<Vec<usize>>> = Vec::from([Some(Vec::new())]);
    sets.resize(most, None);
    for (place, gpus) in held.into_iter().enumerate().filter(|(_, gpus)| *gpus > 0) {
        for sum in (0..most.saturating_sub(gpus)).rev() {
            let Some(set) = sets[sum].as_ref().filter(|_| sum < missing) else {
                continue;
            };
            let known = &sets[sum + gpus];
            if known
                .as_ref()
                .is_none_or(|known| set.len() + 1 < known.len())
            {
                let with = set.iter().copied().chain([place]).collect();
                sets[sum + gpus] = Some(with);
            }
        }
    }
    let best = sets.into_iter().skip(missing).flatten().next()?;
    Some(best.into_iter().map(|place| runs[place]).collect())
}

/// Drops runs that need not be awaited, the last first.
fn drop_unneeded<'a>(what_if: &mut WhatIf<'a, '_>, hosts: &[NodeName], taken: &mut Vec<Named<'a>>) {
    let mut needed = Vec::new();
    while let Some((id, run)) = taken.pop() {
        what_if.restore(id);
        if !what_if.shortage(hosts).is_none() {
            what_if.remove(id, run);
            needed.push((id, run));
        }
    }
    needed.reverse();
    *taken = needed;
}
