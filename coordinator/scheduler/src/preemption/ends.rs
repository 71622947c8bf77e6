//! Finds where the head of a pool waits if preemption does not help: the hosts on which the fewest runs must end
//! before it fits. The oldest runs are awaited first, because they are likely to end first. Whether they are
//! preemptible does not matter.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::time::Time;

use crate::model::request::Run;
use crate::model::reservations::Reservations;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::what_if::WhatIf;

/// Hosts, and the runs whose end there lets a request start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AwaitedEnds {
    pub(crate) hosts: Vec<NodeName>,
    pub(crate) awaits: BTreeSet<AttemptId>,
}

type RunByAge<'a> = (Time, &'a AttemptId, &'a Run);

/// Chooses the hosts on which a request should wait, beyond `reservations`; `None` if no schedulable host could hold
/// it even when empty.
pub(crate) fn await_ends(
    in_pool: RequestInPool<'_>,
    reservations: &Reservations,
) -> Option<AwaitedEnds> {
    let mut what_if = WhatIf::new(in_pool, reservations);
    let mut hosts: Vec<NodeName> = Vec::new();
    let mut awaits: BTreeSet<AttemptId> = BTreeSet::new();
    while hosts.len() < in_pool.request.hosts as usize {
        let (host, runs) = nearest_host(in_pool, &what_if, &hosts)?;
        for (_, id, run) in &runs {
            what_if.remove(id, run);
        }
        awaits.extend(runs.into_iter().map(|(_, id, _)| id.clone()));
        hosts.push(host);
    }
    Some(AwaitedEnds { hosts, awaits })
}

fn nearest_host<'a>(
    in_pool: RequestInPool<'a>,
    base: &WhatIf<'a>,
    hosts: &[NodeName],
) -> Option<(NodeName, Vec<RunByAge<'a>>)> {
    let large = in_pool.covering(&in_pool.host_index().by_usable);
    let large = large.filter(|(node, _)| !hosts.contains(node));
    let options = large.filter_map(|(node, _)| {
        let with: Vec<NodeName> = hosts.iter().chain([node]).cloned().collect();
        let runs = runs_to_end(in_pool, base.clone(), node, &with)?;
        Some((runs.len(), node.clone(), runs))
    });
    let best = options.min_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    best.map(|(_, node, runs)| (node, runs))
}

/// The runs that must end before the request fits on `hosts`, of which `node` is the last.
fn runs_to_end<'a>(
    in_pool: RequestInPool<'a>,
    mut what_if: WhatIf<'a>,
    node: &NodeName,
    hosts: &[NodeName],
) -> Option<Vec<RunByAge<'a>>> {
    let mut taken = Vec::new();
    let host = in_pool.pool.hosts().get(node)?;
    let here = oldest_first(in_pool, host.runs.iter());
    let others = in_pool.pool.by_start.iter();
    let others = others.flat_map(|(start_time, ids)| ids.iter().map(move |id| (*start_time, id)));
    let others =
        others.filter_map(|(start_time, id)| Some((start_time, id, in_pool.scheduler.run(id)?)));
    let mut sources = here.into_iter().chain(others);
    loop {
        let shortage = what_if.shortage(hosts);
        if shortage.is_none() {
            break;
        }
        let next = sources.next()?;
        if !what_if.is_removed(next.1) && shortage.is_helped_by(&what_if, false, next.1, next.2) {
            what_if.remove(next.1, next.2);
            taken.push(next);
        }
    }
    drop_unneeded(&mut what_if, hosts, &mut taken);
    Some(taken)
}

fn oldest_first<'a>(
    in_pool: RequestInPool<'a>,
    ids: impl Iterator<Item = &'a AttemptId>,
) -> Vec<RunByAge<'a>> {
    // A host may hold runs that another pool granted before the host moved here; they release nothing to this pool.
    let granted_here = |id: &&AttemptId, run: &Run| {
        let account = in_pool.pool.account(&run.request.subject);
        account.is_some_and(|account| account.runs.contains(*id))
    };
    let runs = ids.filter_map(|id| {
        let run = in_pool
            .scheduler
            .run(id)
            .filter(|run| granted_here(&id, run))?;
        Some((run.start_time(), id, run))
    });
    let mut runs: Vec<RunByAge<'a>> = runs.collect();
    runs.sort_unstable_by_key(|(start_time, id, _)| (*start_time, *id));
    runs
}

/// Drops runs that need not be awaited, the youngest first.
fn drop_unneeded<'a>(what_if: &mut WhatIf<'a>, hosts: &[NodeName], taken: &mut Vec<RunByAge<'a>>) {
    let mut needed = Vec::new();
    while let Some(run) = taken.pop() {
        what_if.restore(run.1);
        if !what_if.shortage(hosts).is_none() {
            what_if.remove(run.1, run.2);
            needed.push(run);
        }
    }
    needed.reverse();
    *taken = needed;
}
