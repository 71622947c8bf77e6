//! Decides which runs are preempted for a blocked request, and on which hosts it would then run.
//!
//! ```text
//! candidates (which runs may be preempted: rule, protection), candidate_list (the same by host and in victim order)
//!   -> index (those for one request)
//!   -> offer (the cost of a host: counting takes candidates until the request fits and drops those that are not needed),
//!      cheapest_host, lower_bound (hosts that need not be tried), gang (the same for several hosts at once)
//!   -> the cheapest offer, and which of its victims are frozen instead of stopped
//! ```
//!
//! All of them query one [`WhatIf`]: the pool as it would be without some runs; `run_effect` says whether one more run
//! would help. `ends` finds the runs that a request waits for if it preempts none, and `preemption_risk` the runs that
//! could be preempted at all.

mod as_backfill;
pub(crate) mod cache;
pub(crate) mod candidate_list;
pub(crate) mod candidates;
mod cheapest_host;
mod counting;
pub(crate) mod ends;
pub(crate) mod entitlement;
mod gang;
mod held_runs;
mod index;
mod lower_bound;
mod offer;
pub(crate) mod possible_hosts;
mod possible_victims;
pub(crate) mod preemption_risk;
pub(crate) mod protection;
pub(crate) mod rule;
mod run_effect;
pub(crate) mod share;
mod stability;
mod what_if;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId};
use sluice_common::time::Time;

use crate::model::pool::host_table::HostNumber;
use crate::model::request::Run;
use crate::model::reservations::Reservations;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::as_backfill::outcome_as_backfill;
use crate::preemption::cache::{CandidateCache, HeadCache};
use crate::preemption::candidate_list::{Candidate, Candidates};
use crate::preemption::cheapest_host::cheapest_host;
use crate::preemption::index::CandidateIndex;
use crate::preemption::offer::Offer;
use crate::preemption::possible_hosts::hosts_that_could;
use crate::preemption::rule::PreemptionRule;
use crate::preemption::stability::own_victims_would_reclaim;
use crate::preemption::what_if::{HeadNomination, WhatIf};

/// The runs that a request would preempt, and where it would then run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) hosts: Vec<NodeName>,
    /// Platform by which the hosts were found.
    pub(crate) platform: Option<PlatformName>,
    /// Runs to stop.
    pub(crate) victims: BTreeSet<AttemptId>,
    /// Victims that are frozen instead of stopped.
    pub(crate) frozen: BTreeSet<AttemptId>,
    /// Victims that are stopped by priority.
    pub(crate) evicted: BTreeSet<AttemptId>,
    /// Runs that are stopping already and whose resources the plan counts on.
    pub(crate) releasing: BTreeSet<AttemptId>,
}

/// Result of looking for victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PreemptionOutcome {
    /// Stopping these victims lets the request start.
    Preempt(Plan),
    /// The resources are being released anyhow; nothing needs to be stopped.
    AwaitRelease(Plan),
    /// No run is stopped for it.
    Impossible(PreemptionFailure),
}

/// Why no run is stopped for a request, and what that says of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreemptionFailure {
    pub(crate) why: NoPreemption,
    /// Whether the same certainly holds for requests that ask for more of the same resources: if all candidates were gone,
    /// no host would have room. If one had, a larger request could still have a plan: it is short of other resources, for
    /// which other runs may be taken.
    pub(crate) holds_for_larger: bool,
}

impl PreemptionFailure {
    fn new(why: NoPreemption) -> Self {
        let holds_for_larger = match why {
            NoPreemption::NotAllowed | NoPreemption::NoCandidates => true,
            NoPreemption::NotEnough
            | NoPreemption::BeyondBudget
            | NoPreemption::WouldBeReclaimed => false,
        };
        Self {
            why,
            holds_for_larger,
        }
    }

    fn and(self, holds_for_larger: bool) -> Self {
        Self {
            holds_for_larger: self.holds_for_larger && holds_for_larger,
            ..self
        }
    }
}

impl PreemptionOutcome {
    fn impossible(why: NoPreemption) -> Self {
        Self::Impossible(PreemptionFailure::new(why))
    }

    /// The same; a failure holds for larger requests only if that does too.
    fn and(self, holds_for_larger: bool) -> Self {
        match self {
            Self::Impossible(failure) => Self::Impossible(failure.and(holds_for_larger)),
            found @ (Self::Preempt(_) | Self::AwaitRelease(_)) => found,
        }
    }
}

/// Why no run is preempted for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPreemption {
    /// The request is not preemptible and not inside its reserved share: it waits for that share.
    NotAllowed,
    /// No run may be preempted for it.
    NoCandidates,
    /// Preempting all candidates would not make room for it.
    NotEnough,
    /// Preempting as many candidates as the pool's budget for lost work covers would not make room for it.
    BeyondBudget,
    /// The victims would reclaim the resources at once.
    WouldBeReclaimed,
}

/// Looks for victims for a request that is blocked in a pool. Resources of the head's nomination are left out first;
/// a preemptible request is then tried with them. `cache` is of the pool.
pub(crate) fn outcome<'a>(
    in_pool: RequestInPool<'a>,
    now: Time,
    cache: &CandidateCache<'a>,
) -> PreemptionOutcome {
    if !in_pool.request.preemptible && !in_pool.is_in_share() {
        return PreemptionOutcome::impossible(NoPreemption::NotAllowed);
    }
    let candidates = cache.candidates(in_pool, now);
    if candidates.is_empty() && in_pool.pool.releasing.is_empty() {
        // Most requests of a long queue end here: no run could help.
        return PreemptionOutcome::impossible(NoPreemption::NoCandidates);
    }
    let found = outcome_of(in_pool, &candidates, cache.heads());
    let PreemptionOutcome::Preempt(plan) = &found else {
        return found;
    };
    if !own_victims_would_reclaim(in_pool, plan) {
        return found;
    }
    // Own victims would only pass the preemption on: rather preempt the one run that is enough.
    // Also those that went past the request are own ones.
    let own = &in_pool.request.subject;
    let foreign = candidates.filtered(|it| it.run().request.subject != *own);
    one_that_is_enough(in_pool, &foreign, cache.heads()).unwrap_or(found)
}

/// Why no run is preempted for a request, if the outcome is impossible: also whether the runs that are set apart, because
/// their subjects would reclaim them at once, would have been enough.
pub(crate) fn reason<'a>(
    in_pool: RequestInPool<'a>,
    now: Time,
    cache: &CandidateCache<'a>,
    failure: PreemptionFailure,
) -> NoPreemption {
    if failure.why == NoPreemption::NotAllowed {
        return failure.why;
    }
    let Some(candidates) = cache.with_returning(in_pool, now) else {
        return failure.why;
    };
    match outcome_of(in_pool, &candidates, cache.heads()) {
        PreemptionOutcome::Impossible(failure) => failure.why,
        PreemptionOutcome::Preempt(_) | PreemptionOutcome::AwaitRelease(_) => {
            NoPreemption::WouldBeReclaimed
        }
    }
}

/// The plan that preempts one run alone, if there is one: the cheapest plan, or, if that takes several, the first of the
/// others.
fn one_that_is_enough<'a>(
    in_pool: RequestInPool<'a>,
    candidates: &Candidates<'a>,
    heads: &HeadCache<'a>,
) -> Option<PreemptionOutcome> {
    let is_one = |found: &PreemptionOutcome| matches!(found, PreemptionOutcome::Preempt(plan) if plan.victims.len() == 1);
    let cheapest = outcome_of(in_pool, candidates, heads);
    if is_one(&cheapest) || matches!(cheapest, PreemptionOutcome::AwaitRelease(_)) {
        return Some(cheapest).filter(is_one);
    }
    let runs = candidates.in_order();
    let mut alone = runs.map(|one| {
        let alone = candidates.filtered(|it| it.id == one.id);
        outcome_of(in_pool, &alone, heads)
    });
    alone.find(is_one)
}

/// The first outcome other than impossible on the platforms of the request.
fn outcome_of<'a>(
    in_pool: RequestInPool<'a>,
    candidates: &Candidates<'a>,
    heads: &HeadCache<'a>,
) -> PreemptionOutcome {
    let mut platforms_of = in_pool.each_platform();
    let first = platforms_of
        .next()
        .map(|in_pool| outcome_on_platform(in_pool, candidates, heads));
    let mut outcome = first.unwrap_or(PreemptionOutcome::impossible(NoPreemption::NotEnough));
    for in_pool in platforms_of {
        if let PreemptionOutcome::Impossible(first) = outcome {
            outcome = match outcome_on_platform(in_pool, candidates, heads) {
                PreemptionOutcome::Impossible(next) => {
                    PreemptionOutcome::Impossible(first.and(next.holds_for_larger))
                }
                found @ (PreemptionOutcome::Preempt(_) | PreemptionOutcome::AwaitRelease(_)) => {
                    found
                }
            };
        }
    }
    outcome
}

/// The same on hosts of one platform.
fn outcome_on_platform<'a>(
    in_pool: RequestInPool<'a>,
    candidates: &Candidates<'a>,
    heads: &HeadCache<'a>,
) -> PreemptionOutcome {
    let index = CandidateIndex::new(in_pool, candidates, heads);
    let reserved = in_pool.reserved_for_others();
    if in_pool.own_gpus_are_reserved(&reserved.firm) {
        return PreemptionOutcome::impossible(NoPreemption::NotEnough);
    }
    let found = outcome_beside(WhatIf::new(in_pool, reserved.all()), &index);
    let (&PreemptionOutcome::Impossible(mut failure), Some((head, reservations))) =
        (&found, &reserved.soft)
    else {
        return found;
    };
    if reserved.allows_backfill(in_pool.request) {
        let head = (*head, &*reserved.firm);
        match outcome_as_backfill(in_pool, head, candidates, heads) {
            Some(found) => return found.and(failure.holds_for_larger),
            None => failure = failure.and(false),
        }
    }
    let head = queue_head(in_pool, head, &reserved.firm);
    match head.filter(|head| shares_runs_with(in_pool, head, candidates)) {
        Some(head) => {
            let what_if = WhatIf::sharing_with_head(in_pool, reservations, head);
            outcome_beside(what_if, &index).and(failure.holds_for_larger)
        }
        None => PreemptionOutcome::Impossible(failure),
    }
}

fn queue_head<'a, 'r>(
    in_pool: RequestInPool<'a>,
    step: &StepId,
    firm: &'r Reservations,
) -> Option<HeadNomination<'a, 'r>> {
    Some(HeadNomination {
        firm,
        request: in_pool.scheduler.request(step)?,
        nomination: in_pool.scheduler.nomination(step)?,
    })
}

/// Whether the head awaits a run that is, or could be, released for the request: the head does not need all that this
/// run holds.
fn shares_runs_with(
    in_pool: RequestInPool<'_>,
    head: &HeadNomination<'_, '_>,
    candidates: &Candidates<'_>,
) -> bool {
    let releasing = in_pool.pool.releasing.iter();
    let mut ids = candidates.iter().map(|it| it.id).chain(releasing);
    ids.any(|id| head.nomination.awaits.contains(id))
}

/// The same, with what is reserved for other requests.
fn outcome_beside<'a>(
    mut what_if: WhatIf<'a, '_>,
    index: &CandidateIndex<'a, '_>,
) -> PreemptionOutcome {
    let in_pool = index.in_pool;
    let releasing = remove_releasing(&mut what_if);
    let possible = hosts_that_could(in_pool, &what_if, index);
    // Several hosts are not looked at together.
    let could_cover = in_pool.request.hosts > 1 || !possible.is_empty();
    let offer = could_cover.then(|| cheapest(&what_if, index, &possible));
    let offer = offer.flatten();
    let Some(mut offer) = offer else {
        let why = match index.candidates.is_empty() {
            true => NoPreemption::NoCandidates,
            false if index.has_budget() => NoPreemption::BeyondBudget,
            false => NoPreemption::NotEnough,
        };
        return PreemptionOutcome::Impossible(PreemptionFailure {
            why,
            holds_for_larger: why == NoPreemption::NoCandidates || !could_cover,
        });
    };
    if !offer.taken.is_empty() && offer.would_be_taken_back(&what_if, index) {
        match cheapest(&what_if, &index.of_lasting(), &possible) {
            Some(dearer) => offer = dearer,
            None => return PreemptionOutcome::impossible(NoPreemption::WouldBeReclaimed),
        }
    }
    let Offer { hosts, taken } = offer;
    for candidate in &taken {
        what_if.remove(candidate.id, candidate.run());
    }
    let victims = taken.iter().map(|candidate| candidate.id.clone()).collect();
    let frozen = freeze_where_possible(&mut what_if, &hosts, &taken);
    let stopped = taken.iter().copied().filter(|it| !frozen.contains(it.id));
    if !index.covers_loss(stopped.clone()) {
        return PreemptionOutcome::impossible(NoPreemption::BeyondBudget);
    }
    let by_priority = stopped.filter(|it| it.rule == PreemptionRule::Excess);
    let evicted = by_priority.filter(|_| in_pool.preempts_by_priority(in_pool.is_in_share()));
    let evicted = evicted.map(|it| it.id);
    let plan = Plan {
        releasing: needed_of_releasing(what_if, releasing.into_iter(), &hosts),
        victims,
        evicted: evicted.cloned().collect(),
        frozen,
        platform: in_pool.filter.platform.cloned(),
        hosts,
    };
    match taken.is_empty() {
        true => PreemptionOutcome::AwaitRelease(plan),
        false => PreemptionOutcome::Preempt(plan),
    }
}

/// The offer of the lowest cost; of the `possible` hosts if the request needs one.
fn cheapest<'a, 'c>(
    what_if: &WhatIf<'a, '_>,
    index: &CandidateIndex<'a, 'c>,
    possible: &[HostNumber],
) -> Option<Offer<'a, 'c>> {
    match index.in_pool.request.hosts {
        0 | 1 => cheapest_host(what_if, index, possible),
        _ => {
            let places = index.in_pool.each_domain().into_iter();
            let offers = places.filter_map(|place| gang::cheapest_hosts(place, what_if, index));
            let priced = offers.map(|offer| (offer.cost(), offer));
            let cheapest = priced.min_by(|(a, _), (b, _)| a.cmp(b));
            cheapest.map(|(_, offer)| offer)
        }
    }
}

/// Victims that can be frozen instead of stopped: those that support it and whose memory the request does not need.
fn freeze_where_possible<'a>(
    what_if: &mut WhatIf<'a, '_>,
    hosts: &[NodeName],
    taken: &[&Candidate<'a>],
) -> BTreeSet<AttemptId> {
    let mut frozen = BTreeSet::new();
    for candidate in taken.iter().filter(|it| it.run().may_be_frozen()) {
        what_if.restore(candidate.id);
        what_if.freeze(candidate.id, candidate.run());
        if what_if.shortage(hosts).is_none() {
            frozen.insert(candidate.id.clone());
        } else {
            what_if.restore(candidate.id);
            what_if.remove(candidate.id, candidate.run());
        }
    }
    frozen
}

/// The runs, of those that are being released anyhow, that the request must wait for: those on its hosts, and those
/// elsewhere whose part of the pool or of its subject's limit it needs.
fn needed_of_releasing<'a>(
    mut what_if: WhatIf<'a, '_>,
    releasing: impl Iterator<Item = (&'a AttemptId, &'a Run)>,
    hosts: &[NodeName],
) -> BTreeSet<AttemptId> {
    let mut needed = BTreeSet::new();
    for (id, run) in releasing {
        what_if.restore(id);
        let here = hosts.iter().any(|host| run.holding.contains(host));
        if here || !what_if.shortage(hosts).is_none() {
            what_if.remove(id, run);
            needed.insert(id.clone());
        }
    }
    needed
}

/// Supposes that all runs of the pool have gone that are being released and reserved for no request; returns them.
fn remove_releasing<'a>(what_if: &mut WhatIf<'a, '_>) -> Vec<(&'a AttemptId, &'a Run)> {
    let RequestInPool {
        scheduler, pool, ..
    } = what_if.in_pool;
    let ids = pool.releasing.iter();
    let open = ids.filter(|id| !what_if.is_reserved_for_others(id));
    let runs: Vec<_> = open
        .filter_map(|id| Some((id, scheduler.run(id)?)))
        .collect();
    for (id, run) in runs.iter().copied() {
        what_if.remove(id, run);
    }
    runs
}
