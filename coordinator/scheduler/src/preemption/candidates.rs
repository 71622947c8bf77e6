//! Finds the runs that may be preempted for a request, by which rule and in which order, and what protects the
//! others.
//!
//! | rule | runs | condition |
//! |---|---|---|
//! | own | runs of the request's own subject | the request is not preemptible and inside its reserved share |
//! | backfill | runs that went past the request, of any subject | none |
//! | priority | runs of another subject that do not fit in its share of a resource that is short (`share.rs`) | the request's policy priority is higher |
//! | reclaim | runs of another subject that holds more than its share of a resource that is short | the request is inside its reserved share |

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::cmp::Reverse;

use sluice_common::amount::STEP_RUN;
use sluice_common::id::{AttemptId, NodeName, Subject};
use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::time::Time;

use crate::model::account::{Account, PossibleVictim};
use crate::model::host::{HardwareFilter, Host};
use crate::model::loss_budget::{BeyondBudget, LossBudget};
use crate::model::pool::Pool;
use crate::model::request::Run;
use crate::model::resources::{HOST_KEYS, HostResources};
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::entitlement::ResourceHolder;
use crate::preemption::share::{left_over_runs, runs_in_share, runs_of};

/// Why a run is not preempted for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protected {
    /// The run is not preemptible.
    NotPreemptible,
    /// The run is stopping already.
    Releasing,
    /// The run belongs to the request's own subject.
    Own,
    /// The subject of the run holds no more than its reserved share of what is short.
    InShare,
    /// The run borrows nothing from the GPUs of its hosts of the resource that is short, which policies do not meter.
    Entitled,
    /// The run borrows from GPUs the resource that is short, and so would the request.
    BorrowsToo,
    /// The request would borrow too, and its priority is not higher than this.
    Priority(u64),
    /// The request could preempt the run only by priority, which its pool has switched off.
    PriorityOff,
    /// The request could preempt the run only by priority, and that would lose more work than the pool's budget has
    /// left.
    Budget(BeyondBudget),
    /// The run is protected by the pool's `min_runtime` until this time.
    MinRuntime(Time),
    /// The run was stopped by priority before and is protected from priority until this time.
    Evicted(Time),
    /// The run is frozen, and others are being preempted for it.
    Resuming,
}

/// Order of victims; the lowest is preempted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VictimRank {
    pub(crate) foreign: bool,
    pub(crate) priority: u64,
    pub(crate) work: u128,
    pub(crate) start_time: Reverse<Time>,
    pub(crate) place: Reverse<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) rank: VictimRank,
    pub(crate) id: &'a AttemptId,
    pub(crate) run: &'a Run,
    pub(crate) rule: PreemptionRule,
    /// Resources that the run holds within its subject's reserved share, if the request must borrow: the run is not
    /// preempted for these.
    pub(crate) in_share: Vec<&'a str>,
    /// Whether the run does not fit in its subject's share of something metered. Known only if the request is inside
    /// its own share.
    pub(crate) is_left_over: bool,
    /// Part of the pool's budget that stopping it spends.
    pub(crate) loss: u64,
}

/// Runs that may be preempted for a request.
#[derive(Clone, Debug)]
pub(crate) struct Candidates<'a> {
    /// In victim order.
    pub(crate) runs: Vec<Candidate<'a>>,
    /// Positions in `runs` of those on each host, in the same order.
    pub(crate) on: BTreeMap<&'a NodeName, Vec<usize>>,
    /// Resources of each host that they hold, by the GPUs that count.
    held: RefCell<Vec<(HardwareFilter<'a>, HeldByHost<'a>)>>,
    /// Work that may be lost by preempting them together; `None` if nothing bounds it.
    pub(crate) budget: Option<LossBudget>,
    /// Whether runs are set apart.
    pub(crate) has_returning: bool,
}

/// Candidates with or without the runs that their subjects would reclaim at once from a request that must borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VictimChoice {
    /// Without them: they are set apart.
    Lasting,
    All,
}

/// Hosts by name, each with the resources that runs hold together there.
pub(crate) type HeldByHost<'a> = Rc<BTreeMap<&'a NodeName, (&'a Host, HostResources)>>;

impl<'a> Candidates<'a> {
    /// Indexes runs, which are in victim order, by host.
    pub(crate) fn new(runs: Vec<Candidate<'a>>, budget: Option<LossBudget>) -> Self {
        let mut on: BTreeMap<&'a NodeName, Vec<usize>> = BTreeMap::new();
        for (position, candidate) in runs.iter().enumerate() {
            for node in &candidate.run.holding {
                on.entry(node).or_default().push(position);
            }
        }
        Self {
            runs,
            on,
            held: RefCell::default(),
            budget,
            has_returning: false,
        }
    }

    /// Counts the resources of each host that all of them hold, once for each kind of GPUs that requests may be granted.
    pub(crate) fn held(&self, in_pool: RequestInPool<'a>) -> HeldByHost<'a> {
        let mut known = self.held.borrow_mut();
        if let Some((_, held)) = known.iter().find(|(filter, _)| *filter == in_pool.filter) {
            return Rc::clone(held);
        }
        let held = self.on.iter().filter_map(|(node, positions)| {
            let runs = positions.iter().map(|position| &self.runs[*position]);
            let host = in_pool.pool.hosts().get(node)?;
            Some((*node, (host, held_by(in_pool, node, runs))))
        });
        let held = Rc::new(held.collect());
        known.push((in_pool.filter, Rc::clone(&held)));
        held
    }

    /// The same without the runs for which `keeps` is false.
    pub(crate) fn filtered(&self, keeps: impl Fn(&Candidate<'a>) -> bool) -> Self {
        let runs = self.runs.iter().filter(|it| keeps(it));
        Self::new(runs.cloned().collect(), self.budget)
    }
}

/// Resources of a host that candidates hold together, of the GPUs that the request may be granted.
pub(crate) fn held_by<'c, 'a: 'c>(
    in_pool: RequestInPool<'a>,
    node: &NodeName,
    candidates: impl Iterator<Item = &'c Candidate<'a>>,
) -> HostResources {
    let held = candidates.map(|it| in_pool.released_for(node, it.id, it.run.each()));
    held.fold(HostResources::default(), HostResources::plus)
}

impl Candidate<'_> {
    /// The run as the rule for resources that are not metered sees it.
    pub(crate) fn as_holder(&self) -> ResourceHolder<'_> {
        ResourceHolder {
            run: self.run,
            priority: self.rank.priority,
            is_left_over: self.is_left_over,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreemptionRule {
    Own,
    Backfill,
    /// By priority or reclaim: only what is held above the reserved share.
    Excess,
}

/// A rule as it applies to one request.
#[derive(Clone, Copy, Debug)]
struct RuleFor {
    rule: PreemptionRule,
    /// Whether the request preempts other subjects by priority and not by reclaim.
    by_priority: bool,
}

/// All runs that may be preempted by some rule. `victims_of` finds the runs of a subject that holds more than its share.
pub(crate) fn candidates<'a>(
    in_pool: RequestInPool<'a>,
    now: Time,
    choice: VictimChoice,
    victims_of: impl Fn(&'a Subject, &'a Account) -> &'a [PossibleVictim],
) -> Candidates<'a> {
    let RequestInPool { pool, request, .. } = in_pool;
    let in_share = in_pool.is_in_share();
    let by_priority = in_pool.preempts_by_priority(in_share);
    let budget = pool.loss_budget(now).filter(|_| by_priority);
    let mut found: Vec<Candidate<'a>> = Vec::new();
    let mut has_returning = false;
    for (subject, other) in pool.accounts() {
        match rule(in_pool, in_share, subject, other) {
            Ok(PreemptionRule::Excess) if holds_what_may_be_short(in_pool, other) => {
                let beyond_share = BeyondShare {
                    in_pool,
                    in_share,
                    by_priority,
                    bounds_loss: budget.is_some(),
                    account: other,
                    now,
                };
                for victim in victims_of(subject, other) {
                    if !in_share && victim.returns && choice == VictimChoice::Lasting {
                        has_returning = true;
                    } else {
                        found.extend(beyond_share.candidate(victim));
                    }
                }
            }
            Ok(rule @ (PreemptionRule::Own | PreemptionRule::Backfill)) => {
                let runs = runs_of(in_pool.scheduler, other).into_iter();
                let runs = runs.filter(|(_, run)| unconditional_protection(in_pool, run).is_none());
                found.extend(runs.map(|(id, run)| candidate(id, run, rule, other.priority(), now)));
            }
            Ok(PreemptionRule::Excess) | Err(_) => {}
        }
    }
    if let Some(backfill) = pool.backfill.get(&request.step) {
        add_backfill(&mut found, in_pool, backfill, now);
    }
    found.sort_unstable_by_key(|candidate| candidate.rank);
    Candidates {
        has_returning,
        ..Candidates::new(found, budget)
    }
}

/// The view that a request has of the runs of one subject beyond its share.
struct BeyondShare<'a> {
    in_pool: RequestInPool<'a>,
    in_share: bool,
    by_priority: bool,
    bounds_loss: bool,
    account: &'a Account,
    now: Time,
}

impl<'a> BeyondShare<'a> {
    /// A run as a candidate; `None` if it is protected now. For a request in its share, the share of the run's subject counts
    /// as a sum; for one that must borrow it does not matter whether the run is left over.
    fn candidate(&self, victim: &'a PossibleVictim) -> Option<Candidate<'a>> {
        let pool = self.in_pool.pool;
        let run = self.in_pool.scheduler.run(&victim.attempt)?;
        if excess_protection(pool, self.by_priority, run, self.now).is_some() {
            return None;
        }
        let (rule, priority) = (PreemptionRule::Excess, self.account.priority());
        let mut found = candidate(&victim.attempt, run, rule, priority, self.now);
        if self.bounds_loss {
            found.loss = pool.loss_of(run, self.now);
        }
        match self.in_share {
            true => found.is_left_over = victim.is_left_over,
            false => found
                .in_share
                .extend(victim.in_share.iter().map(|key| key.as_str())),
        }
        Some(found)
    }
}

/// Adds backfill runs of the request: they may be preempted by this rule, whatever other rule applies.
fn add_backfill<'a>(
    found: &mut Vec<Candidate<'a>>,
    in_pool: RequestInPool<'a>,
    backfill: &'a BTreeSet<AttemptId>,
    now: Time,
) {
    let RequestInPool {
        scheduler, pool, ..
    } = in_pool;
    for candidate in found.iter_mut() {
        if candidate.rule == PreemptionRule::Excess && backfill.contains(candidate.id) {
            candidate.rule = PreemptionRule::Backfill;
            candidate.loss = 0;
        }
    }
    let known: BTreeSet<&AttemptId> = found.iter().map(|candidate| candidate.id).collect();
    let others = backfill
        .iter()
        .filter(|id| !known.contains(id))
        .filter_map(|id| Some((id, scheduler.run(id)?)))
        .filter(|(_, run)| unconditional_protection(in_pool, run).is_none());
    let others: Vec<Candidate<'a>> = others
        .map(|(id, run)| {
            let account = pool.account(&run.request.subject);
            let priority = account.map_or(0, |account| account.priority());
            candidate(id, run, PreemptionRule::Backfill, priority, now)
        })
        .collect();
    found.extend(others);
}

/// The rule by which a request may preempt runs of a subject.
fn rule(
    in_pool: RequestInPool<'_>,
    in_share: bool,
    subject: &Subject,
    other: &Account,
) -> Result<PreemptionRule, Protected> {
    if *subject == in_pool.request.subject {
        return match in_pool.request.preemptible {
            true => Err(Protected::Own),
            false => Ok(PreemptionRule::Own),
        };
    }
    let theirs = other.priority();
    if !in_share && in_pool.account.priority() <= theirs {
        return Err(Protected::Priority(theirs));
    }
    match in_pool.pool.holds_excess(other) {
        true => Ok(PreemptionRule::Excess),
        false => Err(Protected::InShare),
    }
}

/// Whether a subject holds more than its share of anything that the request could be short of; otherwise none of its
/// runs is preempted.
fn holds_what_may_be_short(in_pool: RequestInPool<'_>, other: &Account) -> bool {
    let RequestInPool { pool, request, .. } = in_pool;
    let mut excess = pool.excess(other);
    excess.any(|(key, ..)| {
        let asks = request.demand.get(key) > 0;
        asks && (key != STEP_RUN || pool.may_be_short_of_steps())
    })
}

/// Protection of a run in spite of the rule.
fn protection(
    in_pool: RequestInPool<'_>,
    RuleFor { rule, by_priority }: RuleFor,
    run: &Run,
    now: Time,
) -> Option<Protected> {
    unconditional_protection(in_pool, run).or_else(|| match rule {
        PreemptionRule::Own | PreemptionRule::Backfill => None,
        PreemptionRule::Excess => excess_protection(in_pool.pool, by_priority, run, now),
    })
}

/// Protection of a run, by the time, from requests that could preempt it for what its subject holds beyond its share.
fn excess_protection(pool: &Pool, by_priority: bool, run: &Run, now: Time) -> Option<Protected> {
    let started = protected_until(pool, run, now).map(Protected::MinRuntime);
    let from_priority = || protected_from_priority(pool, run, now);
    started.or_else(|| by_priority.then(from_priority).flatten())
}

/// Protection of a run from requests that could preempt it only by priority.
fn protected_from_priority(pool: &Pool, run: &Run, now: Time) -> Option<Protected> {
    if pool.terms().priority_preemption == PriorityPreemption::Off {
        return Some(Protected::PriorityOff);
    }
    let evicted = run.times().protected_until;
    let evicted = evicted.filter(|until| now < *until).map(Protected::Evicted);
    let budget = || pool.beyond_budget(run, now).map(Protected::Budget);
    evicted.or_else(budget)
}

/// Until when `min_runtime` protects a run; `None` if it does not.
pub(crate) fn protected_until(pool: &Pool, run: &Run, now: Time) -> Option<Time> {
    let until = run.start_time() + pool.terms().min_runtime;
    (now < until).then_some(until)
}

/// Protection of a run from a request that is short of a resource; `None` if it may be preempted.
pub(crate) fn protection_for_key(
    in_pool: RequestInPool<'_>,
    id: &AttemptId,
    run: &Run,
    key: &str,
    now: Time,
) -> Option<Protected> {
    if run.backfill.contains(&in_pool.request.step) {
        return unconditional_protection(in_pool, run);
    }
    let subject = &run.request.subject;
    let account = in_pool.pool.account(subject)?;
    let in_share = in_pool.is_in_share();
    let by_priority = in_pool.preempts_by_priority(in_share);
    let under = |rule| protection(in_pool, RuleFor { rule, by_priority }, run, now);
    match rule(in_pool, in_share, subject, account) {
        Ok(PreemptionRule::Excess) if HOST_KEYS.contains(&key) && !in_pool.pool.is_metered(key) => {
            let holder = ResourceHolder {
                run,
                priority: account.priority(),
                is_left_over: left_over_runs(in_pool.scheduler, in_pool.pool, account).contains(id),
            };
            unconditional_protection(in_pool, run)
                .or_else(|| in_pool.protection_of_unmetered(holder, account, key))
                .or_else(|| under(PreemptionRule::Excess))
        }
        Ok(PreemptionRule::Excess)
            if account.above_reserved(key, 0) == 0 || is_in_share(in_pool, account, id, key) =>
        {
            unconditional_protection(in_pool, run).or(Some(Protected::InShare))
        }
        Ok(rule) => under(rule),
        Err(protection_for_key) => {
            unconditional_protection(in_pool, run).or(Some(protection_for_key))
        }
    }
}

/// Whether a run is within its subject's share of a resource, for a request that must borrow.
fn is_in_share(in_pool: RequestInPool<'_>, account: &Account, id: &AttemptId, key: &str) -> bool {
    !in_pool.is_in_share() && runs_in_share(in_pool.scheduler, account, key).contains(id)
}

/// Protection of a run from all requests.
pub(crate) fn unconditional_protection(in_pool: RequestInPool<'_>, run: &Run) -> Option<Protected> {
    match (run.is_releasing(), run.request.preemptible) {
        (true, _) => Some(Protected::Releasing),
        (false, false) => Some(Protected::NotPreemptible),
        (false, true) => {
            // Victims are never revoked: what is preempted for a frozen run must not be in vain.
            let is_promised = || {
                let nomination = in_pool.scheduler.nomination(&run.request.step);
                nomination.is_some_and(|it| it.is_firm())
            };
            (run.is_frozen() && is_promised()).then_some(Protected::Resuming)
        }
    }
}

pub(crate) fn candidate<'a>(
    id: &'a AttemptId,
    run: &'a Run,
    rule: PreemptionRule,
    priority: u64,
    now: Time,
) -> Candidate<'a> {
    let rank = VictimRank {
        foreign: rule != PreemptionRule::Own,
        priority,
        work: run.work(now) << run.evictions(),
        start_time: Reverse(run.start_time()),
        place: Reverse(run.request.place),
    };
    Candidate {
        rank,
        id,
        run,
        rule,
        in_share: Vec::new(),
        is_left_over: false,
        loss: 0,
    }
}
