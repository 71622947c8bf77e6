//! Which runs are preempted for a request that is blocked, and on which hosts it would run then.
//!
//! ```text
//! candidates (which runs may be preempted, and in which order)
//!   -> index (the same by host)
//!   -> offer (what a host costs: counting takes candidates until the request fits and drops those that are not needed),
//!      gang (the same for several hosts at once), lower_bound (hosts that need not be tried)
//!   -> the cheapest offer, and which of its victims are frozen instead of stopped
//! ```
//!
//! All of them ask one [`WhatIf`]: the pool as it would be if some runs were gone. `ends` says which runs a request waits
//! for if it preempts none, and `preemption_risk` which runs could be preempted at all.

pub(crate) mod candidates;
mod counting;
pub(crate) mod ends;
mod gang;
mod index;
mod lower_bound;
mod offer;
pub(crate) mod preemption_risk;
pub(crate) mod share;
mod what_if;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId};
use sluice_common::time::Time;

use crate::model::request::Run;
use crate::model::reservations::Reservations;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::candidates::{Candidate, candidates};
use crate::preemption::index::CandidateIndex;
use crate::preemption::lower_bound::Least;
use crate::preemption::offer::{Offer, PreemptionCost};
use crate::preemption::what_if::{Head, WhatIf};

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
pub(crate) enum PreemptionOutcome {
    /// Victims were found: with them stopped the request starts.
    Take(Plan),
    /// What it needs is coming free by itself: nobody need be stopped.
    Coming(Plan),
    /// Nobody is stopped for it, with the reason.
    Nothing(NoPreemption),
}

/// Why nobody is stopped for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPreemption {
    /// It cannot be made to give way and is not inside its reserved share: it waits for that, not for others.
    NotAllowed,
    /// There is no run that it may take.
    Nobody,
    /// All the runs that it may take do not make room for it.
    NoCure,
    /// Once it ran, what it took could be taken back at once.
    TakenBack,
}

/// What stopping others could do for a request that is blocked in a pool: first without what the head is promised, then,
/// for a request that can be made to give way, with it.
pub(crate) fn outcome(before: RequestInPool<'_>, now: Time) -> PreemptionOutcome {
    if !before.request.preemptible && !before.is_in_share() {
        return PreemptionOutcome::Nothing(NoPreemption::NotAllowed);
    }
    let candidates = candidates(before, now);
    if candidates.is_empty() && before.pool.leaving.is_empty() {
        // As most requests of a long queue: there is nobody whose end could help.
        return PreemptionOutcome::Nothing(NoPreemption::Nobody);
    }
    let mut views = before.each_view();
    let first = views.next().map(|before| by_view(before, &candidates));
    let mut outcome = first.unwrap_or(PreemptionOutcome::Nothing(NoPreemption::NoCure));
    for before in views {
        if let PreemptionOutcome::Nothing(why) = outcome {
            outcome = match by_view(before, &candidates) {
                PreemptionOutcome::Nothing(_) => PreemptionOutcome::Nothing(why),
                found @ (PreemptionOutcome::Take(_) | PreemptionOutcome::Coming(_)) => found,
            };
        }
    }
    outcome
}

/// The same on hosts of one view.
fn by_view<'a>(before: RequestInPool<'a>, candidates: &[Candidate<'a>]) -> PreemptionOutcome {
    let index = CandidateIndex::of(before, candidates);
    let promises = before.promises();
    if before.own_gpus_are_promised(&promises.firm) {
        return PreemptionOutcome::Nothing(NoPreemption::NoCure);
    }
    let found = with_kept(WhatIf::new(before, promises.all()), &index);
    let soft = promises.soft.as_ref();
    match (found, soft) {
        (PreemptionOutcome::Nothing(_), Some(_)) if promises.may_be_passed(before.request) => {
            with_kept(WhatIf::new(before, &promises.firm), &index)
        }
        (PreemptionOutcome::Nothing(why), Some((head, kept))) => {
            let head = head_of(before, head, &promises.firm);
            match head.filter(|head| could_share(before, head, candidates)) {
                Some(head) => with_kept(WhatIf::behind(before, kept, head), &index),
                None => PreemptionOutcome::Nothing(why),
            }
        }
        (found, _) => found,
    }
}

fn head_of<'a>(
    before: RequestInPool<'a>,
    step: &StepId,
    firm: &'a Reservations,
) -> Option<Head<'a>> {
    Some(Head {
        firm,
        request: before.scheduler.request(step)?,
        nomination: before.scheduler.nomination(step)?,
    })
}

/// Whether the head awaits any run that goes or could go for the request: the rest of what that holds, which the head does
/// not need, is nobody's.
fn could_share(before: RequestInPool<'_>, head: &Head<'_>, candidates: &[Candidate<'_>]) -> bool {
    let leaving = before.pool.leaving.iter();
    let mut ids = candidates.iter().map(|it| it.id).chain(leaving);
    ids.any(|id| head.nomination.awaits.contains(id))
}

/// The same, with what is kept for others.
fn with_kept<'a>(mut what_if: WhatIf<'a>, index: &CandidateIndex<'a, '_>) -> PreemptionOutcome {
    let before = index.before;
    let leaving: Vec<_> = leaving(before, &what_if).collect();
    for (id, run) in leaving.iter().copied() {
        what_if.take(id, run);
    }
    let Some(mut offer) = cheapest(&what_if, index) else {
        return PreemptionOutcome::Nothing(if index.all.is_empty() {
            NoPreemption::Nobody
        } else {
            NoPreemption::NoCure
        });
    };
    if !offer.taken.is_empty()
        && !before.is_in_share()
        && offer.would_be_taken_back(&what_if, index)
    {
        match cheapest(&what_if, &index.of_what_lasts()) {
            Some(dearer) => offer = dearer,
            None => return PreemptionOutcome::Nothing(NoPreemption::TakenBack),
        }
    }
    let Offer { hosts, taken } = offer;
    for candidate in &taken {
        what_if.take(candidate.id, candidate.run);
    }
    let victims = taken.iter().map(|candidate| candidate.id.clone()).collect();
    let frozen = freeze_what_may_be(&mut what_if, &hosts, &taken);
    let plan = Plan {
        leaving: needed_of_leaving(what_if, leaving.into_iter(), &hosts),
        victims,
        frozen,
        platform: before.view.cloned(),
        hosts,
    };
    match taken.is_empty() {
        true => PreemptionOutcome::Coming(plan),
        false => PreemptionOutcome::Take(plan),
    }
}

fn cheapest<'a, 'c>(what_if: &WhatIf<'a>, index: &CandidateIndex<'a, 'c>) -> Option<Offer<'a, 'c>> {
    match index.before.request.hosts {
        0 | 1 => cheapest_host(index.before, what_if, index),
        _ => gang::cheapest_hosts(index.before, what_if, index),
    }
}

/// The victims that need not be stopped: those that may be frozen and whose memory is not what the request is short of.
fn freeze_what_may_be<'a>(
    what_if: &mut WhatIf<'a>,
    hosts: &[NodeName],
    taken: &[&Candidate<'a>],
) -> BTreeSet<AttemptId> {
    let mut frozen = BTreeSet::new();
    for candidate in taken.iter().filter(|it| it.run.may_be_frozen()) {
        what_if.spare(candidate.id);
        what_if.freeze(candidate.id, candidate.run);
        if what_if.shortage(hosts).is_none() {
            frozen.insert(candidate.id.clone());
        } else {
            what_if.spare(candidate.id);
            what_if.take(candidate.id, candidate.run);
        }
    }
    frozen
}

/// Those of the runs that go anyhow which the request must see gone before it starts: on its hosts, and elsewhere if what
/// they hold of the pool, or of its subject's limit, is missing.
fn needed_of_leaving<'a>(
    mut what_if: WhatIf<'a>,
    leaving: impl Iterator<Item = (&'a AttemptId, &'a Run)>,
    hosts: &[NodeName],
) -> BTreeSet<AttemptId> {
    let mut needed = BTreeSet::new();
    for (id, run) in leaving {
        what_if.spare(id);
        let here = hosts.iter().any(|host| run.holding.contains(host));
        if here || !what_if.shortage(hosts).is_none() {
            what_if.take(id, run);
            needed.insert(id.clone());
        }
    }
    needed
}

/// Runs of the pool that are being stopped and whose units are promised to nobody.
fn leaving<'a>(
    before: RequestInPool<'a>,
    what_if: &WhatIf<'a>,
) -> impl Iterator<Item = (&'a AttemptId, &'a Run)> {
    let RequestInPool {
        scheduler, pool, ..
    } = before;
    let ids = pool.leaving.iter();
    ids.filter(|id| !what_if.is_awaited_by_others(id))
        .filter_map(|id| Some((id, scheduler.run(id)?)))
}

/// The host on which the request could run at the least price.
fn cheapest_host<'a, 'c>(
    before: RequestInPool<'a>,
    base: &WhatIf<'a>,
    index: &CandidateIndex<'a, 'c>,
) -> Option<Offer<'a, 'c>> {
    let large = before.covering(&before.shelf().open);
    let large = large.filter(|(node, _)| base.could_cover(node, index.held_on(node)));
    let of_hosts_alone = base.lacks_of_hosts_alone();
    let bounded = large.map(|(node, _)| match of_hosts_alone {
        true => (lower_bound::on(base, node, index.on(node)), node),
        false => (Least::default(), node),
    });
    let mut hosts: Vec<(Least, &NodeName)> = bounded.collect();
    hosts.sort_unstable();
    let mut best: Option<(PreemptionCost, Offer<'a, 'c>)> = None;
    for (least, node) in hosts {
        if best.as_ref().is_some_and(|(price, _)| least.exceeds(price)) {
            break;
        }
        let Some(offer) = Offer::on(base, index, [node.clone()].into()) else {
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
