//! Finds the runs that may be preempted for a request, by which rule and in which order, and what protects the
//! others.
//!
//! | rule | runs | condition |
//! |---|---|---|
//! | own | runs of the request's own subject | the request is not preemptible and inside its reserved share |
//! | backfill | runs that went past the request, of any subject | none |
//! | priority | runs of another subject that do not fit in its share of a resource that is short (`share.rs`) | the request's policy priority is higher |
//! | reclaim | runs of another subject that holds more than its share of a resource that is short | the request is inside its reserved share |

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{OnceCell, RefCell};
use core::cmp::Reverse;

use sluice_common::amount::{ResourceKey, STEP_RUN};
use sluice_common::id::{AttemptId, Subject};
use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::time::Time;

use crate::model::account::{Account, PossibleVictim};
use crate::model::eviction::RunTimes;
use crate::model::held_run::{HeldRun, held_run, held_runs};
use crate::model::host::{HardwareFilter, Host};
use crate::model::loss_budget::{BeyondBudget, LossBudget};
use crate::model::pool::Pool;
use crate::model::pool::host_table::HostNumber;
use crate::model::request::{Run, UnsavedWork};
use crate::model::resources::{HOST_KEYS, HostResources};
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::entitlement::ResourceHolder;
use crate::preemption::share::{left_over_runs, runs_in_share};

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
    held: &'a HeldRun,
    /// Resources that the run holds on each of its hosts.
    pub(crate) each: HostResources,
    pub(crate) rule: PreemptionRule,
    /// Resources that the run holds within its subject's reserved share, if the request must borrow: the run is not
    /// preempted for these.
    pub(crate) in_share: &'a [ResourceKey],
    /// Whether the run does not fit in its subject's share of something metered. Known only if the request is inside
    /// its own share.
    pub(crate) is_left_over: bool,
    /// Part of the pool's budget that stopping it spends.
    pub(crate) loss: u64,
}

/// Runs that may be preempted for a request.
#[derive(Clone, Debug)]
pub(crate) struct Candidates<'a> {
    runs: Vec<Candidate<'a>>,
    /// Positions in `runs` in victim order, once that was asked for.
    in_order: OnceCell<Vec<usize>>,
    by_host: RunsByHost,
    /// Resources of each host that they hold, by the GPUs that count.
    held: RefCell<Vec<(HardwareFilter<'a>, HeldByHost)>>,
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

/// Hosts by number, each with the resources that runs hold together there.
pub(crate) type HeldByHost = Rc<[(HostNumber, HostResources)]>;

/// Positions of runs, sorted by the host on which they are and then in victim order.
#[derive(Clone, Debug)]
struct RunsByHost(Vec<(HostNumber, usize)>);

impl RunsByHost {
    fn new(runs: &[Candidate<'_>]) -> Self {
        let hosts = runs.iter().map(|candidate| candidate.held.hosts());
        let hosts = hosts.enumerate();
        let pairs = hosts.flat_map(|(position, hosts)| hosts.iter().map(move |it| (*it, position)));
        let mut pairs: Vec<(HostNumber, usize)> = pairs.collect();
        pairs.sort_unstable();
        for there in pairs.chunk_by_mut(|(host, _), (other, _)| host == other) {
            there.sort_unstable_by_key(|(_, position)| runs[*position].rank);
        }
        Self(pairs)
    }

    /// Positions of the runs on a host.
    fn on(&self, host: HostNumber) -> &[(HostNumber, usize)] {
        let first = self.0.partition_point(|(other, _)| *other < host);
        let rest = &self.0[first..];
        let count = rest.iter().take_while(|(other, _)| *other == host).count();
        &rest[..count]
    }

    /// Hosts with runs, each with their positions.
    fn hosts(&self) -> impl Iterator<Item = &[(HostNumber, usize)]> {
        self.0.chunk_by(|(host, _), (other, _)| host == other)
    }
}

impl<'a> Candidates<'a> {
    /// Indexes runs by host.
    fn new(runs: Vec<Candidate<'a>>, budget: Option<LossBudget>) -> Self {
        Self {
            by_host: RunsByHost::new(&runs),
            runs,
            in_order: OnceCell::new(),
            held: RefCell::default(),
            budget,
            has_returning: false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All candidates, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Candidate<'a>> {
        self.runs.iter()
    }

    /// All candidates, in victim order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Candidate<'a>> + Clone {
        let positions = self.in_order.get_or_init(|| {
            let mut positions: Vec<usize> = (0..self.runs.len()).collect();
            positions.sort_unstable_by_key(|position| self.runs[*position].rank);
            positions
        });
        positions.iter().map(|position| &self.runs[*position])
    }

    /// Those on a host, in victim order.
    pub(crate) fn on(
        &self,
        host: HostNumber,
    ) -> impl Iterator<Item = &Candidate<'a>> + Clone + use<'a, '_> {
        self.at(self.by_host.on(host))
    }

    fn at<'c>(
        &'c self,
        positions: &'c [(HostNumber, usize)],
    ) -> impl Iterator<Item = &'c Candidate<'a>> + Clone + use<'a, 'c> {
        positions.iter().map(|(_, position)| &self.runs[*position])
    }

    /// Counts the resources of each host that all of them hold, once for each kind of GPUs that requests may be granted.
    pub(crate) fn held(&self, in_pool: RequestInPool<'a>) -> HeldByHost {
        let mut known = self.held.borrow_mut();
        if let Some((_, held)) = known.iter().find(|(filter, _)| *filter == in_pool.filter) {
            return Rc::clone(held);
        }
        let held = self.by_host.hosts().filter_map(|there| {
            let (number, _) = *there.first()?;
            let (_, host) = in_pool.pool.hosts().at(number)?;
            Some((number, held_by(in_pool, host, self.at(there))))
        });
        let held: HeldByHost = held.collect();
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
    host: &Host,
    candidates: impl Iterator<Item = &'c Candidate<'a>>,
) -> HostResources {
    let held = candidates.map(|it| host.released_for(in_pool.filter, it.id, it.each));
    held.fold(HostResources::default(), HostResources::plus)
}

impl<'a> Candidate<'a> {
    pub(crate) fn run(&self) -> &'a Run {
        &self.held.run
    }

    /// The run as the rule for resources that are not metered sees it.
    pub(crate) fn as_holder(&self) -> ResourceHolder<'a> {
        ResourceHolder {
            run: self.run(),
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
    victims_of: impl Fn(&'a Subject, &'a Account) -> &'a [Option<PossibleVictim>],
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
                let runs = held_runs(in_pool.scheduler, pool, other);
                for (run, victim) in runs.zip(victims_of(subject, other)) {
                    match victim {
                        Some(victim)
                            if !in_share && victim.returns && choice == VictimChoice::Lasting =>
                        {
                            has_returning = true;
                        }
                        Some(victim) => found.extend(beyond_share.candidate(run, victim)),
                        None => {}
                    }
                }
            }
            Ok(rule @ (PreemptionRule::Own | PreemptionRule::Backfill)) => {
                let runs = held_runs(in_pool.scheduler, pool, other);
                let runs = runs.filter(|(_, held)| !is_protected(in_pool, held));
                found.extend(runs.map(|run| candidate(run, rule, other.priority(), now)));
            }
            Ok(PreemptionRule::Excess) | Err(_) => {}
        }
    }
    if let Some(backfill) = pool.backfill.get(&request.step) {
        add_backfill(&mut found, in_pool, backfill, now);
    }
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
    fn candidate(
        &self,
        (id, held): (&'a AttemptId, &'a HeldRun),
        victim: &'a PossibleVictim,
    ) -> Option<Candidate<'a>> {
        let pool = self.in_pool.pool;
        if excess_protection(pool, self.by_priority, held.times, held.work, self.now).is_some() {
            return None;
        }
        let (rule, priority) = (PreemptionRule::Excess, self.account.priority());
        let mut found = candidate((id, held), rule, priority, self.now);
        if self.bounds_loss {
            found.loss = pool.loss_of(held.work, self.now);
        }
        match self.in_share {
            true => found.is_left_over = victim.is_left_over,
            false => found.in_share = &victim.in_share,
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
    let others = backfill.iter().filter(|id| !known.contains(id));
    let others = others.filter_map(|id| Some((id, held_run(scheduler, pool, id)?)));
    let others = others.filter(|(_, (_, held))| !is_protected(in_pool, held));
    let others = others.map(|(id, (account, held))| {
        let rule = PreemptionRule::Backfill;
        candidate((id, held), rule, account.priority(), now)
    });
    let others: Vec<Candidate<'a>> = others.collect();
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
        PreemptionRule::Excess => {
            let (times, work) = (run.times(), run.unsaved_work());
            excess_protection(in_pool.pool, by_priority, times, work, now)
        }
    })
}

/// Protection of a run, by the time, from requests that could preempt it for what its subject holds beyond its share.
fn excess_protection(
    pool: &Pool,
    by_priority: bool,
    times: RunTimes,
    work: UnsavedWork,
    now: Time,
) -> Option<Protected> {
    let started = protected_until(pool, times.start, now).map(Protected::MinRuntime);
    let from_priority = || protected_from_priority(pool, times, work, now);
    started.or_else(|| by_priority.then(from_priority).flatten())
}

/// Protection of a run from requests that could preempt it only by priority.
fn protected_from_priority(
    pool: &Pool,
    times: RunTimes,
    work: UnsavedWork,
    now: Time,
) -> Option<Protected> {
    if pool.terms().priority_preemption == PriorityPreemption::Off {
        return Some(Protected::PriorityOff);
    }
    let evicted = times.protected_until;
    let evicted = evicted.filter(|until| now < *until).map(Protected::Evicted);
    let budget = || pool.beyond_budget(work, now).map(Protected::Budget);
    evicted.or_else(budget)
}

/// Until when `min_runtime` protects a run with a start time; `None` if it does not.
pub(crate) fn protected_until(pool: &Pool, start: Time, now: Time) -> Option<Time> {
    let until = start + pool.terms().min_runtime;
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
    !in_pool.is_in_share()
        && runs_in_share(in_pool.scheduler, in_pool.pool, account, key).contains(id)
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

/// Whether a run is protected from all requests.
pub(crate) fn is_protected(in_pool: RequestInPool<'_>, held: &HeldRun) -> bool {
    let is_open = held.is_preemptible && !held.is_releasing && !held.is_frozen;
    !is_open && unconditional_protection(in_pool, &held.run).is_some()
}

/// A run as a candidate.
fn candidate<'a>(
    (id, held): (&'a AttemptId, &'a HeldRun),
    rule: PreemptionRule,
    priority: u64,
    now: Time,
) -> Candidate<'a> {
    let rank = VictimRank {
        foreign: rule != PreemptionRule::Own,
        priority,
        work: held.ranked_work(now),
        start_time: Reverse(held.times.start),
        place: Reverse(held.place),
    };
    Candidate {
        rank,
        id,
        held,
        each: held.each,
        rule,
        in_share: &[],
        is_left_over: false,
        loss: 0,
    }
}
