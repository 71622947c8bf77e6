//! Finds where a request starts first by the time limits of the runs there: supposes that runs end in the order of their
//! latest ends, until the request fits.

use alloc::vec::Vec;
use core::ops::Bound;

use sluice_common::id::NodeName;
use sluice_common::time::Time;

use crate::model::reservations::Reservations;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::ends::AwaitedEnds;
use crate::preemption::ends::fewest::Search;
use crate::preemption::what_if::WhatIf;

/// Number of runs that are supposed to end at most, which bounds what one decision costs in a large pool.
const MAX_RUNS: usize = 512;

/// The hosts on which a request starts first, and the runs that it awaits there, all of which have a time limit. `None`
/// if it does not fit when all of these have ended, or not before `before`.
pub(crate) fn await_earliest<'a>(
    in_pool: RequestInPool<'a>,
    reservations: &'a Reservations,
    before: Option<Time>,
) -> Option<AwaitedEnds> {
    let (until, hosts) = first_fit(in_pool, reservations, before)?;
    let search = Search::new(in_pool, Some(until));
    let mut hosts = hosts.into_iter();
    search.ends_on_hosts(reservations, |what_if, chosen| {
        let node = hosts.next()?;
        let with: Vec<NodeName> = chosen.iter().chain([node]).cloned().collect();
        search.near(what_if, node, &with)
    })
}

/// The time at which enough runs have ended at the latest, and the hosts that are free then.
fn first_fit<'a>(
    in_pool: RequestInPool<'a>,
    reservations: &'a Reservations,
    before: Option<Time>,
) -> Option<(Time, Vec<&'a NodeName>)> {
    let after = Bound::Excluded(in_pool.scheduler.clock);
    let before = before.map_or(Bound::Unbounded, Bound::Excluded);
    if let (Bound::Excluded(after), Bound::Excluded(before)) = (after, before)
        && before <= after
    {
        return None;
    }
    let wanted = in_pool.request.hosts as usize;
    let mut what_if = WhatIf::new(in_pool, reservations);
    let search = Search::new(in_pool, None);
    let fits =
        |what_if: &WhatIf<'a, '_>, node| what_if.missing_on(node) == HostResources::default();
    let free = search.hosts().take_while(|(_, missing)| *missing == (0, 0));
    let free = free
        .map(|(node, _)| node)
        .filter(|node| fits(&what_if, node));
    let mut ready: Vec<&'a NodeName> = free.take(wanted).collect();
    let ends = in_pool.pool.by_end.range((after, before));
    let ends = ends.flat_map(|(end, ids)| ids.iter().map(move |id| (*end, id)));
    let runs = ends.filter_map(|(end, id)| Some((end, id, in_pool.scheduler.run(id)?)));
    for (end, id, run) in runs.take(MAX_RUNS) {
        what_if.remove(id, run);
        let freed = run.holding.iter().filter(|node| !ready.contains(node));
        let freed = freed.filter(|node| in_pool.could_hold(core::slice::from_ref(*node)));
        let more: Vec<&'a NodeName> = freed.filter(|node| fits(&what_if, node)).collect();
        ready.extend(more);
        if ready.len() >= wanted && what_if.short_in_pool().is_empty() {
            ready.truncate(wanted);
            return Some((end, ready));
        }
    }
    None
}
