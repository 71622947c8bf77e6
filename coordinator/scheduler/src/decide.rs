//! Decides what a pool does next: goes through its requests in queue order, and the first request that can start,
//! preempt or be nominated decides. Each decision takes effect before the next one is made.
//!
//! | # | rule | where |
//! |---|---|---|
//! | 1 | feasibility: a request that no pool could ever grant is rejected when it is submitted | `placement/feasibility.rs` |
//! | 2 | queue order: inside the reserved share first, then by policy priority, then by submission | `model/queue_order.rs` |
//! | 3 | placement: the free hosts that fit best beyond what is reserved for others, as backfill if that is allowed | `placement/place.rs` |
//! | 4 | preemption: the cheapest set of runs whose end makes room | `preemption.rs` |
//! | 5 | nomination: the first request that can neither start nor preempt gets the resources that are released next | [`Scheduler::next_decision`], `preemption/ends.rs` |

mod blocked;
mod queue_scan;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId};
use sluice_common::time::Time;

use crate::model::nomination::Nomination;
use crate::model::pool::Pool;
use crate::model::queue_order::{self, QueueRank};
use crate::model::request::Request;
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::cache::PoolCaches;
use crate::preemption::possible_hosts::is_impossible_for_range;
use crate::preemption::{self, Plan, PreemptionOutcome, ends};
use blocked::{BlockedRequests, RequestGroup};
use queue_scan::{QueueScan, Queued, Range};

/// Number of classes from which on checking a group as a whole costs less than checking each of them.
const CLASSES_CHECKED_AS_ONE: usize = 4;

/// One scheduling decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start a request.
    Grant {
        step: StepId,
        pool: PoolName,
        /// Hosts by rank.
        hosts: Vec<NodeName>,
        /// Platform by which the hosts were found, if the request asks for one; its GPUs are of this platform.
        platform: Option<PlatformName>,
        /// Waiting requests that this grant goes past; they may take its resources back.
        backfill: BTreeSet<StepId>,
    },
    /// Nominate a request: keep a place for it. If the nomination is firm, `victims` are stopped for it.
    Nominate {
        step: StepId,
        nomination: Nomination,
        /// Runs to stop; a subset of those that the nomination awaits.
        victims: BTreeSet<AttemptId>,
        /// Victims that are frozen instead of stopped.
        frozen: BTreeSet<AttemptId>,
        /// Victims that are stopped by priority, which counts as an eviction.
        evicted: BTreeSet<AttemptId>,
    },
    /// End a nomination that can no longer be kept, or that another request needs.
    Withdraw { step: StepId },
}

/// Result of trying a request.
enum RequestOutcome {
    /// Decision by which it starts or preempts.
    Decide(Decision),
    /// Nomination for resources that are being released.
    AwaitRelease(Nomination),
    /// Nothing can be done; `holds_for_larger` if that is certain of requests of the same group that ask for more.
    Wait { holds_for_larger: bool },
}

impl Decision {
    /// Returns the pool whose resources are granted or reserved.
    fn pool(&self) -> Option<&PoolName> {
        match self {
            Self::Grant { pool, .. } => Some(pool),
            Self::Nominate { nomination, .. } => Some(&nomination.pool),
            Self::Withdraw { .. } => None,
        }
    }
}

impl Scheduler {
    /// Lists all requests that wait for a pool, in queue order.
    pub fn in_order(&self, name: &PoolName) -> Vec<&StepId> {
        let waiting = self.pools.get(name);
        let waiting = waiting.map(|pool| queue_order::ranked(self, pool));
        let mut order: Vec<_> = waiting.into_iter().flatten().collect();
        order.sort_unstable();
        order.into_iter().map(|(_, step)| step).collect()
    }

    /// When the protection of the next run of a pool may end: by `min_runtime`, after an eviction, or by the budget for
    /// work lost by priority. `None` if nothing waits there, or no run is protected.
    pub fn protected_until(&self, name: &PoolName, now: Time) -> Option<Time> {
        let pool = self.pools.get(name).filter(|pool| pool.waiting() > 0)?;
        let ends = pool.next_protection_end(now).into_iter();
        ends.chain(pool.next_payment(now)).min()
    }

    /// The next decision in a pool; `None` if all requests must wait.
    pub fn next_decision(&self, name: &PoolName, now: Time) -> Option<Decision> {
        self.next_decision_by(name, now, CLASSES_CHECKED_AS_ONE)
    }

    /// The same decision whatever `classes` are: groups with at least so many are checked as a whole.
    pub(crate) fn next_decision_by(
        &self,
        name: &PoolName,
        now: Time,
        classes: usize,
    ) -> Option<Decision> {
        let pool = self.pools.get(name)?;
        self.resolve_nominations(pool)
            .or_else(|| self.first_in_order(name, pool, now, classes))
    }

    /// Whether requests that joined a pool in which nothing could start wait too, and change nothing for the others. False
    /// if that is not known without going through the queue.
    ///
    /// A request that waits takes nothing from those that could not start before it, and gives them nothing. Only the head
    /// can be another: then its nomination ends. And if the request is not in its own place, because others of its subject
    /// have another priority, one of these has moved up and may start.
    pub fn all_wait<'s>(
        &self,
        name: &PoolName,
        steps: impl IntoIterator<Item = &'s StepId>,
        now: Time,
    ) -> bool {
        let Some(pool) = self.pools.get(name) else {
            return false;
        };
        let head = self.head_rank(pool);
        // Fair share changes the order of all with time, so another may be the head by now.
        let is_ordered = head.is_none() || pool.terms().fair_share.is_none();
        let caches = PoolCaches::default();
        let waits = |step| {
            let request = self.request(step)?;
            let in_pool = RequestInPool::new(self, pool, request)?;
            let rank = in_pool.rank();
            let follows_head = head.is_none_or(|head| head < rank);
            let follows_alike = || in_pool.account.queue.follows_alike(request);
            let is_blocked = || {
                let pools = self.pools_for(request);
                let outcome_of = self.outcome_of(request, &pools, now, &caches);
                !matches!(outcome_of, RequestOutcome::Decide(_))
            };
            let moves_nobody = rank.is_in_own_place(request);
            Some(follows_head && moves_nobody && (follows_alike() || is_blocked()))
        };
        is_ordered && steps.into_iter().all(|step| waits(step) == Some(true))
    }

    /// The rank of the request with the soft nomination of a pool, if it waits there.
    fn head_rank(&self, pool: &Pool) -> Option<QueueRank> {
        let head = self.request(pool.soft_nomination.as_ref()?)?;
        Some(RequestInPool::new(self, pool, head)?.rank())
    }

    /// Starts or withdraws a nomination that is due.
    fn resolve_nominations(&self, pool: &Pool) -> Option<Decision> {
        let firm = pool
            .firm_nominations
            .iter()
            .filter_map(|step| self.resolve_firm(pool, step))
            .next();
        firm.or_else(|| {
            let step = pool.soft_nomination.as_ref()?;
            let nomination = self.nomination(step)?;
            let in_pool = RequestInPool::new(self, pool, self.request(step)?);
            let in_pool = in_pool.map(|in_pool| in_pool.on_platform(nomination.platform.as_ref()));
            let holds = in_pool.is_some_and(|in_pool| in_pool.could_hold(&nomination.hosts));
            (!holds).then(|| Decision::Withdraw { step: step.clone() })
        })
    }

    fn resolve_firm(&self, pool: &Pool, step: &StepId) -> Option<Decision> {
        let nomination = self.nomination(step)?;
        let Some(in_pool) = RequestInPool::new(self, pool, self.request(step)?) else {
            return Some(Decision::Withdraw { step: step.clone() });
        };
        let in_pool = in_pool.on_platform(nomination.platform.as_ref());
        if !in_pool.could_hold(&nomination.hosts) {
            return Some(Decision::Withdraw { step: step.clone() });
        }
        if !nomination.awaits.is_empty() {
            return None;
        }
        let reserved = in_pool.reserved_for_others();
        let allowed = in_pool.is_allowed(&Amounts::new());
        if allowed && in_pool.fits_on(&nomination.hosts, &reserved.firm) {
            let passed = reserved
                .soft
                .as_ref()
                .filter(|_| in_pool.request.preemptible && !reserved.allows_short_run())
                .filter(|(_, reservations)| !in_pool.fits_on(&nomination.hosts, reservations));
            let mut backfill: BTreeSet<StepId> = passed
                .map(|(head, _)| (*head).clone())
                .into_iter()
                .collect();
            backfill.extend(in_pool.limited_request_ahead());
            return Some(Decision::Grant {
                step: step.clone(),
                pool: nomination.pool.clone(),
                hosts: pool.by_rank(nomination.hosts.clone()),
                platform: nomination.platform.clone(),
                backfill,
            });
        }
        Some(Decision::Withdraw { step: step.clone() })
    }

    /// Finds the first decision in queue order. A blocked head is nominated only when a request behind it could start
    /// or preempt: before that the nomination would change nothing, and finding it means going through all runs.
    ///
    /// Groups with at least so many `classes` are checked as a whole first.
    fn first_in_order(
        &self,
        name: &PoolName,
        pool: &Pool,
        now: Time,
        classes: usize,
    ) -> Option<Decision> {
        let head_rank = self.head_rank(pool);
        let groups = queue_scan::groups_of(self, pool, classes);
        let caches = PoolCaches::default();
        let mut scan = QueueScan::new(self, name, pool, &groups);
        let mut head: Option<BlockedHead<'_>> = None;
        let mut blocked = BlockedRequests::default();
        while let Some((rank, queued)) = scan.next() {
            let (request, is_blocked) = match queued {
                Queued::Request {
                    request,
                    is_blocked,
                } => (request, is_blocked),
                Queued::Range { least, range } => {
                    let ranks = (rank, head_rank);
                    let blocked = self.is_blocked(name, (least, range), ranks, now, &caches);
                    let may_be_head = |request: &Request| self.may_be_head(name, pool, request);
                    if !blocked {
                        scan.split(range);
                    } else if head.is_none() && may_be_head(least) {
                        scan.pass_over(range, may_be_head);
                    }
                    continue;
                }
            };
            let pools = self.pools_for(request);
            let group = RequestInPool::new(self, pool, request)
                .and_then(|in_pool| RequestGroup::of(in_pool, pools.len(), rank, head_rank));
            let is_implied = group
                .as_ref()
                .is_some_and(|group| blocked.imply(group, request));
            let outcome_of = match is_blocked || is_implied {
                true => RequestOutcome::Wait {
                    holds_for_larger: false,
                },
                false => self.outcome_of(request, &pools, now, &caches),
            };
            let releasing = match outcome_of {
                // Another pool decides this: others may go first there, and its head is nominated first.
                RequestOutcome::Decide(decision) if decision.pool() != Some(name) => continue,
                RequestOutcome::Decide(decision) => {
                    let nominate = head.and_then(|head| self.nominate_head(head, name, pool));
                    return nominate.or(Some(decision));
                }
                RequestOutcome::AwaitRelease(releasing) => Some(releasing),
                RequestOutcome::Wait { holds_for_larger } => {
                    if let Some(group) = group.filter(|_| holds_for_larger) {
                        blocked.insert(group, request);
                    }
                    None
                }
            };
            if head.is_none() && self.may_be_head(name, pool, request) {
                let releasing = releasing.filter(|releasing| releasing.pool == *name);
                head = Some(BlockedHead { request, releasing });
            }
        }
        let stale = pool.soft_nomination.as_ref();
        let stale =
            stale.filter(|step| head.as_ref().is_none_or(|head| head.request.step != **step));
        stale.map(|step| Decision::Withdraw { step: step.clone() })
    }

    /// Whether no request of a range, for which `least` stands, can start or preempt. `ranks` are its own and that of the
    /// head: what is kept for the head it may take no less than those behind it.
    fn is_blocked<'a>(
        &'a self,
        name: &'a PoolName,
        (least, range): (&'a Request, Range<'a>),
        (rank, head): (QueueRank, Option<QueueRank>),
        now: Time,
        caches: &PoolCaches<'a>,
    ) -> bool {
        let pools = self.pools_for(least);
        let [(only, pool)] = pools[..] else {
            return false;
        };
        let Some(in_pool) = RequestInPool::new(self, pool, least).filter(|_| only == name) else {
            return false;
        };
        let is_alike = RequestGroup::of(in_pool, pools.len(), rank, head).is_some();
        if !is_alike || in_pool.find_placement().is_some() {
            return false;
        }
        let most = || range.most(least);
        is_impossible_for_range(in_pool, most, now, &caches.of_pool(only))
    }

    fn grant(&self, request: &Request, pools: &[(&PoolName, &Pool)]) -> Option<Decision> {
        pools.iter().find_map(|(name, pool)| {
            let in_pool = RequestInPool::new(self, pool, request)?;
            let placement = in_pool.find_placement()?;
            let mut backfill = placement.passed;
            backfill.extend(in_pool.limited_request_ahead());
            Some(Decision::Grant {
                step: request.step.clone(),
                pool: (*name).clone(),
                hosts: pool.by_rank(placement.hosts),
                platform: placement.platform.cloned(),
                backfill,
            })
        })
    }

    /// Starts a request, or preempts in the first of its pools where that helps. If resources are being released anyhow,
    /// it is to wait for these.
    fn outcome_of<'a>(
        &'a self,
        request: &'a Request,
        pools: &[(&'a PoolName, &'a Pool)],
        now: Time,
        caches: &PoolCaches<'a>,
    ) -> RequestOutcome {
        if let Some(grant) = self.grant(request, pools) {
            return RequestOutcome::Decide(grant);
        }
        let mut holds_for_larger = true;
        for (name, pool) in pools {
            let Some(in_pool) = RequestInPool::new(self, pool, request) else {
                continue;
            };
            match preemption::outcome(in_pool, now, &caches.of_pool(name)) {
                PreemptionOutcome::Preempt(plan) => {
                    return RequestOutcome::Decide(nominate_by_preemption(request, name, plan));
                }
                // Waiting costs nothing: resources that are being released here are granted when they are free.
                PreemptionOutcome::AwaitRelease(plan) => {
                    return RequestOutcome::AwaitRelease(nomination(name, plan, false));
                }
                PreemptionOutcome::Impossible(failure) => {
                    holds_for_larger &= failure.holds_for_larger;
                }
            }
        }
        RequestOutcome::Wait { holds_for_larger }
    }

    /// The nomination that a head needs before a request behind it moves: of resources that are being released, or
    /// else of those that are free when other runs have ended. An existing nomination stays unless the head could
    /// start sooner elsewhere, or awaits more than it would elsewhere.
    fn nominate_head(
        &self,
        head: BlockedHead<'_>,
        name: &PoolName,
        pool: &Pool,
    ) -> Option<Decision> {
        let BlockedHead { request, releasing } = head;
        let existing = pool
            .soft_nomination
            .as_ref()
            .filter(|step| **step == request.step);
        let existing = existing.and_then(|step| self.nomination(step));
        if existing.is_some_and(|existing| self.awaits_only_releasing(existing)) {
            return None;
        }
        Some(Decision::Nominate {
            step: request.step.clone(),
            nomination: releasing.or_else(|| self.await_ends(name, pool, request, existing))?,
            victims: BTreeSet::new(),
            frozen: BTreeSet::new(),
            evicted: BTreeSet::new(),
        })
    }

    /// Whether a pool keeps resources for a blocked request. It does not for one that waits only for its own
    /// subject's limit or reserved share, is nominated elsewhere, or fits on no schedulable host.
    fn may_be_head(&self, name: &PoolName, pool: &Pool, request: &Request) -> bool {
        let elsewhere = self
            .nomination(&request.step)
            .is_some_and(|n| n.pool != *name);
        let in_pool = RequestInPool::new(self, pool, request);
        !elsewhere
            && in_pool.is_some_and(|in_pool| {
                let mut places = in_pool.each_place();
                in_pool.is_allowed(&Amounts::new()) && places.any(|place| place.has_enough_hosts())
            })
    }

    /// The nomination of a head for which no preemption helps; `None` if it has one that is as good.
    fn await_ends(
        &self,
        name: &PoolName,
        pool: &Pool,
        request: &Request,
        existing: Option<&Nomination>,
    ) -> Option<Nomination> {
        let in_pool = RequestInPool::new(self, pool, request)?;
        let (ends, platform) = ends::await_ends(in_pool, existing)?;
        Some(Nomination {
            pool: name.clone(),
            hosts: ends.hosts,
            awaits: ends.awaits,
            firm: false,
            platform: platform.cloned(),
        })
    }
}

/// A blocked request for which a pool keeps resources.
#[derive(Clone, Debug)]
struct BlockedHead<'a> {
    request: &'a Request,
    /// The nomination with which the head could start on resources that are being released.
    releasing: Option<Nomination>,
}

fn nominate_by_preemption(request: &Request, pool: &PoolName, plan: Plan) -> Decision {
    Decision::Nominate {
        step: request.step.clone(),
        victims: plan.victims.clone(),
        frozen: plan.frozen.clone(),
        evicted: plan.evicted.clone(),
        nomination: nomination(pool, plan, true),
    }
}

fn nomination(pool: &PoolName, plan: Plan, firm: bool) -> Nomination {
    let mut awaits = plan.releasing;
    awaits.extend(plan.victims);
    Nomination {
        pool: pool.clone(),
        hosts: plan.hosts,
        awaits,
        firm,
        platform: plan.platform,
    }
}
