//! Where the head of a pool waits when no victims help: the hosts on which the fewest runs must end before it fits.
//! Among runs the oldest are awaited first, for they have had most time; whether they may be made to give way does not
//! matter, since they are left to end by themselves.

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
pub(crate) struct Ends {
    pub(crate) hosts: Vec<NodeName>,
    pub(crate) awaits: BTreeSet<AttemptId>,
}

type Aged<'a> = (Time, &'a AttemptId, &'a Run);

/// Where a request should wait, with `kept` kept for others; `None` where no open host could hold it even when empty.
pub(crate) fn await_ends(before: RequestInPool<'_>, kept: &Reservations) -> Option<Ends> {
    let mut what_if = WhatIf::new(before, kept);
    let mut hosts: Vec<NodeName> = Vec::new();
    let mut awaits: BTreeSet<AttemptId> = BTreeSet::new();
    while hosts.len() < before.request.hosts as usize {
        let (host, runs) = nearest_host(before, &what_if, &hosts)?;
        for (_, id, run) in &runs {
            what_if.take(id, run);
        }
        awaits.extend(runs.into_iter().map(|(_, id, _)| id.clone()));
        hosts.push(host);
    }
    Some(Ends { hosts, awaits })
}

fn nearest_host<'a>(
    before: RequestInPool<'a>,
    base: &WhatIf<'a>,
    hosts: &[NodeName],
) -> Option<(NodeName, Vec<Aged<'a>>)> {
    let large = before.covering(&before.shelf().open);
    let large = large.filter(|(node, _)| !hosts.contains(node));
    let options = large.filter_map(|(node, _)| {
        let with: Vec<NodeName> = hosts.iter().chain([node]).cloned().collect();
        let runs = must_end(before, base.clone(), node, &with)?;
        Some((runs.len(), node.clone(), runs))
    });
    let best = options.min_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    best.map(|(_, node, runs)| (node, runs))
}

/// The runs that must end before the request fits on `hosts`, of which `node` is the last.
fn must_end<'a>(
    before: RequestInPool<'a>,
    mut what_if: WhatIf<'a>,
    node: &NodeName,
    hosts: &[NodeName],
) -> Option<Vec<Aged<'a>>> {
    let mut taken = Vec::new();
    let host = before.pool.hosts().get(node)?;
    let here = oldest_first(before, host.runs.iter());
    let others = before.pool.begun.iter();
    let others = others.flat_map(|(began, ids)| ids.iter().map(move |id| (*began, id)));
    let others = others.filter_map(|(began, id)| Some((began, id, before.scheduler.run(id)?)));
    let mut sources = here.into_iter().chain(others);
    loop {
        let shortage = what_if.shortage(hosts);
        if shortage.is_none() {
            break;
        }
        let next = sources.next()?;
        if !what_if.has(next.1) && shortage.helped(&what_if, false, next.1, next.2) {
            what_if.take(next.1, next.2);
            taken.push(next);
        }
    }
    spare_needless(&mut what_if, hosts, &mut taken);
    Some(taken)
}

fn oldest_first<'a>(
    before: RequestInPool<'a>,
    ids: impl Iterator<Item = &'a AttemptId>,
) -> Vec<Aged<'a>> {
    // A host may hold runs that another pool granted, from before it came here: those give this pool nothing back.
    let granted_here = |id: &&AttemptId, run: &Run| {
        let account = before.pool.account(&run.request.subject);
        account.is_some_and(|account| account.runs.contains(*id))
    };
    let runs = ids.filter_map(|id| {
        let run = before
            .scheduler
            .run(id)
            .filter(|run| granted_here(&id, run))?;
        Some((run.began(), id, run))
    });
    let mut runs: Vec<Aged<'a>> = runs.collect();
    runs.sort_unstable_by_key(|(began, id, _)| (*began, *id));
    runs
}

/// Drops, the youngest first, what need not be awaited.
fn spare_needless<'a>(what_if: &mut WhatIf<'a>, hosts: &[NodeName], taken: &mut Vec<Aged<'a>>) {
    let mut needed = Vec::new();
    while let Some(run) = taken.pop() {
        what_if.spare(run.1);
        if !what_if.shortage(hosts).is_none() {
            what_if.take(run.1, run.2);
            needed.push(run);
        }
    }
    needed.reverse();
    *taken = needed;
}
