//! Who gives way to a request that is blocked: how many of those that could, and on which hosts the request would run
//! instead. Who could is said in `candidates.rs`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};
use sluice_common::time::Time;

use super::candidates::{Candidate, Ground, candidates};
use super::fit::Before;
use super::nomination::Kept;
use super::request::Run;
use super::scene::Scene;
use crate::state::HostUnits;

/// Whom a request would take, and where it would run then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) hosts: Vec<NodeName>,
    /// Runs to be stopped.
    pub(crate) victims: BTreeSet<AttemptId>,
    /// Runs that are being stopped already and whose units it counts on.
    pub(crate) leaving: BTreeSet<AttemptId>,
}

/// What can be done by stopping others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// This.
    Take(Plan),
    /// What it needs is coming free by itself: nobody need be stopped.
    Coming,
    /// Nothing.
    Nothing(Hindrance),
}

/// Why nobody is stopped for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It cannot be made to give way and is not inside its reserved share: it waits for that, not for others.
    NotAllowed,
    /// There is no run that it may take.
    Nobody,
    /// All the runs that it may take do not make room for it.
    NoCure,
    /// Once it ran, what it took could be taken back at once.
    TakenBack,
}

/// How good a set of victims is: the least is best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Price {
    /// `None`: only the waiter's own subject gives way.
    highest_priority: Option<u64>,
    work: u128,
    count: usize,
}

/// What stopping others could do for a request that is blocked in a pool: first without what the head is promised, then,
/// for a request that can be made to give way, with it.
pub(crate) fn outlook(before: Before<'_>, now: Time) -> Outlook {
    if !before.request.preemptible && !before.is_inside_share() {
        return Outlook::Nothing(Hindrance::NotAllowed);
    }
    let candidates = candidates(before, now);
    if candidates.is_empty() && before.pool.leaving.is_empty() {
        // As most requests of a long queue: there is nobody whose end could help.
        return Outlook::Nothing(Hindrance::Nobody);
    }
    let field = Field::of(&candidates);
    let promises = before.promises();
    let found = with_kept(before, promises.all(), &field);
    let again = promises.soft.is_some() && before.request.preemptible;
    match found {
        Outlook::Nothing(_) if again => with_kept(before, &promises.firm, &field),
        Outlook::Take(_) | Outlook::Coming | Outlook::Nothing(_) => found,
    }
}

/// The same, with `kept` kept for others.
fn with_kept<'a>(before: Before<'a>, kept: &'a Kept, field: &Field<'a, '_>) -> Outlook {
    let mut scene = Scene::new(before, kept);
    for (id, run) in leaving(before, kept) {
        scene.take(id, run);
    }
    let mut hosts: Vec<NodeName> = Vec::new();
    let mut taken: Vec<&Candidate<'_>> = Vec::new();
    while hosts.len() < before.request.hosts as usize {
        let Some(next) = cheapest_host(before, &scene, field, &hosts) else {
            return Outlook::Nothing(if field.all.is_empty() {
                Hindrance::Nobody
            } else {
                Hindrance::NoCure
            });
        };
        for candidate in &next.taken {
            scene.take(candidate.id, candidate.run);
        }
        taken.extend(next.taken);
        hosts.push(next.host);
    }
    prune(&mut scene, &hosts, &mut taken);
    if taken.is_empty() {
        return Outlook::Coming;
    }
    if hosts.len() > 1 && !is_counted_off(before, kept, &hosts, &taken) {
        return Outlook::Nothing(Hindrance::NoCure);
    }
    let victims: Vec<&AttemptId> = taken.iter().map(|candidate| candidate.id).collect();
    if !before.is_in_share() && scene.would_be_taken_back(&victims) {
        return Outlook::Nothing(Hindrance::TakenBack);
    }
    let victims = victims.into_iter().cloned().collect();
    Outlook::Take(Plan {
        leaving: needed_of_leaving(scene, leaving(before, kept), &hosts),
        victims,
        hosts,
    })
}

/// Whether the victims for several hosts, which were found host by host, stand when they are counted off as one set: each
/// in the order of victims, and none from a subject that those before it brought down to its share.
fn is_counted_off(
    before: Before<'_>,
    kept: &Kept,
    hosts: &[NodeName],
    taken: &[&Candidate<'_>],
) -> bool {
    let mut scene = Scene::new(before, kept);
    for (id, run) in leaving(before, kept) {
        scene.take(id, run);
    }
    taken.iter().all(|candidate| {
        let lawful = match candidate.ground {
            Ground::Own | Ground::TakeBack => true,
            Ground::Excess => {
                let shortage = scene.shortage(hosts);
                shortage.helped_beyond_share(&scene, candidate.run)
            }
        };
        scene.take(candidate.id, candidate.run);
        lawful
    })
}

/// Those of the runs that go anyhow which the request must see gone before it starts: on its hosts, and elsewhere if what
/// they hold of the pool, or of its subject's limit, is missing.
fn needed_of_leaving<'a>(
    mut scene: Scene<'a>,
    leaving: impl Iterator<Item = (&'a AttemptId, &'a Run)>,
    hosts: &[NodeName],
) -> BTreeSet<AttemptId> {
    let mut needed = BTreeSet::new();
    for (id, run) in leaving {
        scene.spare(id);
        let here = hosts.iter().any(|host| run.holding.contains(host));
        if here || !scene.shortage(hosts).is_none() {
            scene.take(id, run);
            needed.insert(id.clone());
        }
    }
    needed
}

/// Runs of the pool that are being stopped and whose units are promised to nobody.
fn leaving<'a>(before: Before<'a>, kept: &Kept) -> impl Iterator<Item = (&'a AttemptId, &'a Run)> {
    let Before { market, pool, .. } = before;
    let ids = pool.leaving.iter();
    ids.filter(|id| !kept.awaited.contains(*id))
        .filter_map(|id| Some((id, market.run(id)?)))
}

/// Candidates in victim order: all, and by host, so that what one host offers is found without a look at what runs
/// elsewhere.
struct Field<'a, 'c> {
    all: Vec<&'c Candidate<'a>>,
    on: BTreeMap<&'a NodeName, Vec<&'c Candidate<'a>>>,
}

impl<'a, 'c> Field<'a, 'c> {
    fn of(candidates: &'c [Candidate<'a>]) -> Self {
        let mut on: BTreeMap<&'a NodeName, Vec<&'c Candidate<'a>>> = BTreeMap::new();
        for candidate in candidates {
            for node in &candidate.run.holding {
                on.entry(node).or_default().push(candidate);
            }
        }
        Self {
            all: candidates.iter().collect(),
            on,
        }
    }

    fn on(&self, node: &NodeName) -> &[&'c Candidate<'a>] {
        self.on.get(node).map_or(&[], Vec::as_slice)
    }

    /// All that candidates hold of a host.
    fn held_on(&self, node: &NodeName) -> HostUnits {
        let each = self.on(node).iter().map(|c| c.run.request.each);
        each.fold(HostUnits::default(), HostUnits::plus)
    }
}

/// A host, and whom the request would take to run on it.
struct Offer<'a, 'c> {
    host: NodeName,
    taken: Vec<&'c Candidate<'a>>,
}

/// The host on which one more part of the request could run at the least price, beside `hosts`.
fn cheapest_host<'a, 'c>(
    before: Before<'a>,
    base: &Scene<'a>,
    field: &Field<'a, 'c>,
    hosts: &[NodeName],
) -> Option<Offer<'a, 'c>> {
    let large = before.pool.open.covering(before.request.each);
    let large = large
        .filter(|(node, _)| !hosts.contains(node))
        .filter(|(node, _)| base.could_cover(node, field.held_on(node)));
    let mut best: Option<(Price, Offer<'a, 'c>)> = None;
    for (node, _) in large {
        let mut with: Vec<NodeName> = hosts.to_vec();
        with.push(node.clone());
        let mut scene = base.clone();
        let Some(mut taken) = fill(before, &mut scene, field, &with) else {
            continue;
        };
        prune(&mut scene, &with, &mut taken);
        let price = price(&taken);
        let better = best
            .as_ref()
            .is_none_or(|(known, option)| (&price, node) < (known, &option.host));
        if better {
            let host = node.clone();
            best = Some((price, Offer { host, taken }));
        }
    }
    best.map(|(_, option)| option)
}

/// Takes candidates in their order until the request would fit on `hosts`, of which all but the last have room for it
/// already; `None` where it never does. A small run that goes first may bring its subject down to its share and so spare
/// a large one that would have been enough: then the small one is left out, and they are counted again.
fn fill<'a, 'c>(
    before: Before<'a>,
    scene: &mut Scene<'a>,
    field: &Field<'a, 'c>,
    hosts: &[NodeName],
) -> Option<Vec<&'c Candidate<'a>>> {
    let mut left_out = BTreeSet::new();
    loop {
        match count_off(before, scene, field, hosts, &left_out) {
            Counted::Enough(taken) => return Some(taken),
            Counted::Short { in_the_way } => left_out.insert(in_the_way?),
        };
    }
}

/// What came of taking candidates in their order.
enum Counted<'a, 'c> {
    Enough(Vec<&'c Candidate<'a>>),
    /// Nobody was taken after all. Where a run was spared only because another of its subject went first: that other.
    Short {
        in_the_way: Option<&'a AttemptId>,
    },
}

/// A subject is counted down by each run that is taken, so it is not pushed below its share but by the one that straddles
/// the line.
fn count_off<'a, 'c>(
    before: Before<'a>,
    scene: &mut Scene<'a>,
    field: &Field<'a, 'c>,
    hosts: &[NodeName],
    left_out: &BTreeSet<&'a AttemptId>,
) -> Counted<'a, 'c> {
    let mut taken: Vec<&'c Candidate<'a>> = Vec::new();
    let mut in_the_way = None;
    let mut shortage = scene.shortage(hosts);
    // A shortage only shrinks by what is taken, so who does not help now never does.
    let helpful = match hosts.last().filter(|_| shortage.is_of_hosts_alone()) {
        Some(last) => field.on(last),
        None => &field.all,
    };
    for candidate in helpful {
        if shortage.is_none() {
            break;
        }
        let awaited = scene.is_awaited_by_others(candidate.id);
        if awaited || scene.has(candidate.id) || left_out.contains(candidate.id) {
            continue;
        }
        let subject = &candidate.run.request.subject;
        let may = match candidate.ground {
            Ground::Own | Ground::TakeBack => {
                shortage.helped(*subject == before.request.subject, candidate.run)
            }
            Ground::Excess => shortage.helped_beyond_share(scene, candidate.run),
        };
        if may {
            scene.take(candidate.id, candidate.run);
            taken.push(*candidate);
            shortage = scene.shortage(hosts);
        } else if in_the_way.is_none() && shortage.helped(false, candidate.run) {
            let mut others = taken.iter().filter(|other| other.ground != Ground::Own);
            let first = others.find(|other| other.run.request.subject == *subject);
            in_the_way = first.map(|other| other.id);
        }
    }
    if shortage.is_none() {
        return Counted::Enough(taken);
    }
    for candidate in taken {
        scene.spare(candidate.id);
    }
    Counted::Short { in_the_way }
}

/// Spares every victim without which the request still fits, the last in victim order first.
fn prune<'a>(scene: &mut Scene<'a>, hosts: &[NodeName], taken: &mut Vec<&Candidate<'a>>) {
    taken.sort_unstable_by_key(|candidate| candidate.turn);
    let mut needed = Vec::new();
    while let Some(candidate) = taken.pop() {
        scene.spare(candidate.id);
        if !scene.shortage(hosts).is_none() {
            scene.take(candidate.id, candidate.run);
            needed.push(candidate);
        }
    }
    needed.reverse();
    *taken = needed;
}

fn price(taken: &[&Candidate<'_>]) -> Price {
    let foreign = taken.iter().filter(|candidate| candidate.turn.foreign);
    Price {
        highest_priority: foreign.map(|candidate| candidate.turn.priority).max(),
        work: taken.iter().map(|candidate| candidate.turn.work).sum(),
        count: taken.len(),
    }
}
