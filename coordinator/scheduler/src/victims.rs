//! Who gives way to a request that is blocked: how many of those that could, and on which hosts the request would run
//! instead. Who could is said in `candidates.rs`; how they are counted off for given hosts in `victims/counting.rs`.

mod counting;
mod gang;
mod least;

use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId};
use sluice_common::time::Time;

use super::candidates::{Candidate, candidates};
use super::fit::Before;
use super::nomination::Kept;
use super::request::Run;
use super::scene::{Head, Heads, Scene};
use crate::units::HostUnits;
use counting::{fill, prune};
use least::Least;

/// Whom a request would take, and where it would run then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) hosts: Vec<NodeName>,
    /// By which platform they were found.
    pub(crate) platform: Option<PlatformName>,
    /// Runs to be stopped.
    pub(crate) victims: BTreeSet<AttemptId>,
    /// Those of them that are frozen instead.
    pub(crate) frozen: BTreeSet<AttemptId>,
    /// Runs that are being stopped already and whose units it counts on.
    pub(crate) leaving: BTreeSet<AttemptId>,
}

/// What can be done by stopping others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// This.
    Take(Plan),
    /// What it needs is coming free by itself: nobody need be stopped.
    Coming(Plan),
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
    if !before.request.preemptible && !before.is_in_share() {
        return Outlook::Nothing(Hindrance::NotAllowed);
    }
    let candidates = candidates(before, now);
    if candidates.is_empty() && before.pool.leaving.is_empty() {
        // As most requests of a long queue: there is nobody whose end could help.
        return Outlook::Nothing(Hindrance::Nobody);
    }
    let mut views = before.each_view();
    let first = views.next().map(|before| by_view(before, &candidates));
    let mut outlook = first.unwrap_or(Outlook::Nothing(Hindrance::NoCure));
    for before in views {
        if let Outlook::Nothing(why) = outlook {
            outlook = match by_view(before, &candidates) {
                Outlook::Nothing(_) => Outlook::Nothing(why),
                found @ (Outlook::Take(_) | Outlook::Coming(_)) => found,
            };
        }
    }
    outlook
}

/// The same on hosts of one view.
fn by_view<'a>(before: Before<'a>, candidates: &[Candidate<'a>]) -> Outlook {
    let field = Field::of(before, candidates);
    let promises = before.promises();
    if before.own_gpus_are_promised(&promises.firm) {
        return Outlook::Nothing(Hindrance::NoCure);
    }
    let found = with_kept(Scene::new(before, promises.all()), &field);
    let soft = promises.soft.as_ref();
    match (found, soft) {
        (Outlook::Nothing(_), Some(_)) if promises.may_be_passed(before.request) => {
            with_kept(Scene::new(before, &promises.firm), &field)
        }
        (Outlook::Nothing(why), Some((head, kept))) => {
            let head = head_of(before, head, &promises.firm);
            match head.filter(|head| could_share(before, head, candidates)) {
                Some(head) => with_kept(Scene::behind(before, kept, head), &field),
                None => Outlook::Nothing(why),
            }
        }
        (found, _) => found,
    }
}

fn head_of<'a>(before: Before<'a>, step: &StepId, firm: &'a Kept) -> Option<Head<'a>> {
    Some(Head {
        firm,
        request: before.market.request(step)?,
        nomination: before.market.nomination(step)?,
    })
}

/// Whether the head awaits any run that goes or could go for the request: the rest of what that holds, which the head does
/// not need, is nobody's.
fn could_share(before: Before<'_>, head: &Head<'_>, candidates: &[Candidate<'_>]) -> bool {
    let leaving = before.pool.leaving.iter();
    let mut ids = candidates.iter().map(|it| it.id).chain(leaving);
    ids.any(|id| head.nomination.awaits.contains(id))
}

/// The same, in a scene with what is kept for others.
fn with_kept<'a>(mut scene: Scene<'a>, field: &Field<'a, '_>) -> Outlook {
    let before = field.before;
    let leaving: Vec<_> = leaving(before, &scene).collect();
    for (id, run) in leaving.iter().copied() {
        scene.take(id, run);
    }
    let Some(mut offer) = cheapest(&scene, field) else {
        return Outlook::Nothing(if field.all.is_empty() {
            Hindrance::Nobody
        } else {
            Hindrance::NoCure
        });
    };
    if !offer.taken.is_empty()
        && !before.is_in_share()
        && offer.would_be_taken_back(scene.clone(), field)
    {
        match cheapest(&scene, &field.of_what_lasts()) {
            Some(dearer) => offer = dearer,
            None => return Outlook::Nothing(Hindrance::TakenBack),
        }
    }
    let Offer { hosts, taken } = offer;
    for candidate in &taken {
        scene.take(candidate.id, candidate.run);
    }
    let victims = taken.iter().map(|candidate| candidate.id.clone()).collect();
    let frozen = freeze_what_may_be(&mut scene, &hosts, &taken);
    let plan = Plan {
        leaving: needed_of_leaving(scene, leaving.into_iter(), &hosts),
        victims,
        frozen,
        platform: before.view.cloned(),
        hosts,
    };
    match taken.is_empty() {
        true => Outlook::Coming(plan),
        false => Outlook::Take(plan),
    }
}

fn cheapest<'a, 'c>(scene: &Scene<'a>, field: &Field<'a, 'c>) -> Option<Offer<'a, 'c>> {
    match field.before.request.hosts {
        0 | 1 => cheapest_host(field.before, scene, field),
        _ => gang::cheapest_hosts(field.before, scene, field),
    }
}

/// The victims that need not be stopped: those that may be frozen and whose memory is not what the request is short of.
fn freeze_what_may_be<'a>(
    scene: &mut Scene<'a>,
    hosts: &[NodeName],
    taken: &[&Candidate<'a>],
) -> BTreeSet<AttemptId> {
    let mut frozen = BTreeSet::new();
    for candidate in taken.iter().filter(|it| it.run.may_be_frozen()) {
        scene.spare(candidate.id);
        scene.freeze(candidate.id, candidate.run);
        if scene.shortage(hosts).is_none() {
            frozen.insert(candidate.id.clone());
        } else {
            scene.spare(candidate.id);
            scene.take(candidate.id, candidate.run);
        }
    }
    frozen
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
fn leaving<'a>(
    before: Before<'a>,
    scene: &Scene<'a>,
) -> impl Iterator<Item = (&'a AttemptId, &'a Run)> {
    let Before { market, pool, .. } = before;
    let ids = pool.leaving.iter();
    ids.filter(|id| !scene.is_awaited_by_others(id))
        .filter_map(|id| Some((id, market.run(id)?)))
}

/// Candidates in victim order: all, and by host, so that what one host offers is found without a look at what runs
/// elsewhere.
#[derive(Clone)]
struct Field<'a, 'c> {
    before: Before<'a>,
    /// Whether only sets count that would not be taken back at once.
    lasting: bool,
    all: Rc<[&'c Candidate<'a>]>,
    on: Rc<BTreeMap<&'a NodeName, There<'a, 'c>>>,
    heads: Heads<'a>,
}

/// Candidates on one host.
#[derive(Default)]
struct There<'a, 'c> {
    candidates: Vec<&'c Candidate<'a>>,
    /// All that they hold of it.
    held: HostUnits,
}

impl<'a, 'c> Field<'a, 'c> {
    fn of(before: Before<'a>, candidates: &'c [Candidate<'a>]) -> Self {
        let mut on: BTreeMap<&'a NodeName, There<'a, 'c>> = BTreeMap::new();
        for candidate in candidates {
            for node in &candidate.run.holding {
                let there = on.entry(node).or_default();
                there.candidates.push(candidate);
                let back = before.given_back(node, candidate.id, candidate.run.each());
                there.held = there.held.plus(back);
            }
        }
        Self {
            before,
            lasting: false,
            all: candidates.iter().collect(),
            on: Rc::new(on),
            heads: Heads::default(),
        }
    }

    /// The same, where a set of victims that would be taken back is none.
    fn of_what_lasts(&self) -> Self {
        Self {
            lasting: true,
            ..self.clone()
        }
    }

    fn on(&self, node: &NodeName) -> &[&'c Candidate<'a>] {
        self.on.get(node).map_or(&[], |there| &there.candidates)
    }

    /// Those on any of several hosts, in victim order.
    fn on_any(&self, hosts: &[NodeName]) -> Cow<'_, [&'c Candidate<'a>]> {
        if let [host] = hosts {
            return Cow::Borrowed(self.on(host));
        }
        let there = hosts.iter().flat_map(|host| self.on(host)).copied();
        let mut there: Vec<&'c Candidate<'a>> = there.collect();
        there.sort_unstable_by_key(|candidate| candidate.turn);
        there.dedup_by_key(|candidate| candidate.id);
        Cow::Owned(there)
    }

    /// All that candidates hold of a host.
    fn held_on(&self, node: &NodeName) -> HostUnits {
        let there = self.on.get(node);
        there.map_or(HostUnits::default(), |there| there.held)
    }
}

/// Hosts, as many as the request needs or fewer, and whom it would take to run there.
#[derive(Clone, Debug)]
struct Offer<'a, 'c> {
    hosts: Vec<NodeName>,
    taken: Vec<&'c Candidate<'a>>,
}

impl<'a, 'c> Offer<'a, 'c> {
    /// What `hosts` cost, where nobody is taken but who is needed; `None` where no lawful set makes room there.
    fn on(mut scene: Scene<'a>, field: &Field<'a, 'c>, hosts: Vec<NodeName>) -> Option<Self> {
        let mut taken = fill(&mut scene, field, &hosts)?;
        prune(&mut scene, &hosts, &mut taken);
        let offer = Self { hosts, taken };
        let lasts = !field.lasting || !offer.would_be_taken_back(scene, field);
        lasts.then_some(offer)
    }

    /// Whether those who are taken would take the units back at once.
    fn would_be_taken_back(&self, mut scene: Scene<'a>, field: &Field<'a, 'c>) -> bool {
        for candidate in &self.taken {
            scene.take(candidate.id, candidate.run);
        }
        let victims: Vec<&AttemptId> = self.taken.iter().map(|it| it.id).collect();
        scene.would_be_taken_back(&victims, &field.heads)
    }

    fn price(&self) -> Price {
        let foreign = self.taken.iter().filter(|candidate| candidate.turn.foreign);
        Price {
            highest_priority: foreign.map(|candidate| candidate.turn.priority).max(),
            work: self.taken.iter().map(|candidate| candidate.turn.work).sum(),
            count: self.taken.len(),
        }
    }
}

/// The host on which the request could run at the least price.
fn cheapest_host<'a, 'c>(
    before: Before<'a>,
    base: &Scene<'a>,
    field: &Field<'a, 'c>,
) -> Option<Offer<'a, 'c>> {
    let large = before.covering(&before.shelf().open);
    let large = large.filter(|(node, _)| base.could_cover(node, field.held_on(node)));
    let of_hosts_alone = base.lacks_of_hosts_alone();
    let bounded = large.map(|(node, _)| match of_hosts_alone {
        true => (least::on(base, node, field.on(node)), node),
        false => (Least::default(), node),
    });
    let mut hosts: Vec<(Least, &NodeName)> = bounded.collect();
    hosts.sort_unstable();
    let mut best: Option<(Price, Offer<'a, 'c>)> = None;
    for (least, node) in hosts {
        if best.as_ref().is_some_and(|(price, _)| least.exceeds(price)) {
            break;
        }
        let Some(offer) = Offer::on(base.clone(), field, [node.clone()].into()) else {
            continue;
        };
        let price = offer.price();
        let known = best.as_ref();
        if known.is_none_or(|(known, best)| (&price, &offer.hosts) < (known, &best.hosts)) {
            best = Some((price, offer));
        }
    }
    best.map(|(_, offer)| offer)
}
