//! The next move of a pool: its requests are looked at in order, and the first that something can be done for decides.
//! What is done for one is done before the next is looked at, so whoever asks again sees the world that it left.
//!
//! | # | rule | where |
//! |---|---|---|
//! | 1 | feasibility: a request that no pool could ever grant is rejected when it is submitted | `placement/feasibility.rs` |
//! | 2 | queue order: inside the reserved share first, then by policy priority, then by submission | `model/queue_order.rs` |
//! | 3 | placement: the free hosts that fit best beyond what others are promised, as backfill where that is allowed | `placement/place.rs` |
//! | 4 | preemption: the cheapest set of runs whose end makes room | `preemption.rs` |
//! | 5 | nomination: the first that can neither start nor preempt is promised what comes free next | [`Scheduler::next_decision`], `preemption/ends.rs` |

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Bound;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, NodeName, PlatformName, PoolName, StepId};
use sluice_common::time::{Span, Time};

use crate::model::nomination::Nomination;
use crate::model::pool::Pool;
use crate::model::queue_order;
use crate::model::request::Request;
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::{self, Plan, PreemptionOutcome, ends};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A request starts.
    Grant {
        step: StepId,
        /// In which pool.
        pool: PoolName,
        /// On which hosts, by rank.
        hosts: Vec<NodeName>,
        /// By which platform, where it asks for one: its GPUs are of this.
        platform: Option<PlatformName>,
        /// The waiters around which it is granted.
        backfill: BTreeSet<StepId>,
    },
    /// A request is promised a place. Where the promise is firm, `victims` are to be stopped for it.
    Nominate {
        step: StepId,
        /// What it is promised.
        nomination: Nomination,
        /// Runs to be stopped: among those that it awaits.
        victims: BTreeSet<AttemptId>,
        /// Those of them that are frozen instead.
        frozen: BTreeSet<AttemptId>,
    },
    /// A promise can no longer be kept, or is another's now.
    Withdraw { step: StepId },
}

impl Decision {
    /// The pool whose units it gives or promises.
    fn pool(&self) -> Option<&PoolName> {
        match self {
            Self::Grant { pool, .. } => Some(pool),
            Self::Nominate { nomination, .. } => Some(&nomination.pool),
            Self::Withdraw { .. } => None,
        }
    }
}

impl Scheduler {
    /// Everything that waits for a pool, in order.
    pub fn in_order(&self, name: &PoolName) -> Vec<&StepId> {
        let Some(pool) = self.pools.get(name) else {
            return Vec::new();
        };
        let waiting = pool.accounts().values().flat_map(|account| {
            let steps = account.queue.steps().filter_map(|step| self.request(step));
            steps.map(move |request| {
                (
                    queue_order::rank(self, pool, account, request),
                    &request.step,
                )
            })
        });
        let mut order: Vec<_> = waiting.collect();
        order.sort_unstable();
        order.into_iter().map(|(_, step)| step).collect()
    }

    /// When the next run of a pool is spared no longer, while anything waits there for which that could matter.
    pub fn protected_until(&self, name: &PoolName, now: Time) -> Option<Time> {
        let pool = self.pools.get(name)?;
        let spare = pool.terms().min_runtime;
        if spare == Span::ZERO || pool.waiting() == 0 {
            return None;
        }
        let over = now.unix_millis().checked_sub(spare.millis());
        let over = over.map_or(Bound::Unbounded, |millis| {
            Bound::Excluded(Time::from_unix_millis(millis))
        });
        let (start_time, _) = pool.by_start.range((over, Bound::Unbounded)).next()?;
        Some(*start_time + spare)
    }

    /// The next move in a pool; `None` where all that waits must wait.
    pub fn next_decision(&self, name: &PoolName, now: Time) -> Option<Decision> {
        let pool = self.pools.get(name)?;
        self.resolve_nominations(pool)
            .or_else(|| self.first_in_order(name, pool, now))
    }

    /// What becomes of promises whose time has come.
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
                .filter(|_| in_pool.request.preemptible)
                .filter(|(_, reservations)| !in_pool.fits_on(&nomination.hosts, reservations));
            let mut backfill: BTreeSet<StepId> = passed.map(|(head, _)| head).into_iter().collect();
            backfill.extend(in_pool.limited_request_ahead());
            return Some(Decision::Grant {
                step: step.clone(),
                pool: nomination.pool.clone(),
                hosts: nomination.hosts.clone(),
                platform: nomination.platform.clone(),
                backfill,
            });
        }
        Some(Decision::Withdraw { step: step.clone() })
    }

    /// A head that waits for others to end is promised a place only when somebody behind it could start or take: until
    /// then the promise would bind nobody, and making it costs a look at what runs.
    fn first_in_order(&self, name: &PoolName, pool: &Pool, now: Time) -> Option<Decision> {
        let mut head: Option<BlockedHead<'_>> = None;
        for (_, request) in queue_order::in_order(self, name, pool) {
            let pools = self.pools_for(request);
            let (decision, releasing) = match self.grant(request, &pools) {
                Some(grant) => (Some(grant), None),
                None => self.preempt(request, &pools, now),
            };
            if decision
                .as_ref()
                .is_some_and(|decision| decision.pool() != Some(name))
            {
                // It is left to the pool where it moves: others may go before it there, and its head has its promise
                // first.
                continue;
            }
            if decision.is_some() {
                let nominate = head.and_then(|head| self.nominate_head(head, name, pool));
                return nominate.or(decision);
            }
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

    fn grant(&self, request: &Request, pools: &[(&PoolName, &Pool)]) -> Option<Decision> {
        pools.iter().find_map(|(name, pool)| {
            let in_pool = RequestInPool::new(self, pool, request)?;
            let placement = in_pool.find_placement()?;
            let mut backfill = placement.passed;
            backfill.extend(in_pool.limited_request_ahead());
            Some(Decision::Grant {
                step: request.step.clone(),
                pool: (*name).clone(),
                hosts: placement.hosts,
                platform: placement.platform.cloned(),
                backfill,
            })
        })
    }

    /// Stopping others, in the first of its pools where that helps; or, where nobody need be stopped, what comes free there.
    fn preempt(
        &self,
        request: &Request,
        pools: &[(&PoolName, &Pool)],
        now: Time,
    ) -> (Option<Decision>, Option<Nomination>) {
        for (name, pool) in pools {
            let Some(in_pool) = RequestInPool::new(self, pool, request) else {
                continue;
            };
            match preemption::outcome(in_pool, now) {
                PreemptionOutcome::Preempt(plan) => {
                    return (Some(nominate_by_preemption(request, name, plan)), None);
                }
                // Waiting costs nobody anything: what comes free here is looked at when it is.
                PreemptionOutcome::AwaitRelease(plan) => {
                    return (None, Some(nomination(name, plan, false)));
                }
                PreemptionOutcome::Impossible(_) => {}
            }
        }
        (None, None)
    }

    /// The promise that a head has to get before anybody behind it moves: of what comes free by itself, or else of what will
    /// be when others have ended. One that it has stands, unless it could start sooner elsewhere.
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
        match (releasing, existing) {
            (Some(releasing), _) => Some(Decision::Nominate {
                step: request.step.clone(),
                nomination: releasing,
                victims: BTreeSet::new(),
                frozen: BTreeSet::new(),
            }),
            (None, Some(_)) => None,
            (None, None) => self.await_ends(name, pool, request),
        }
    }

    /// Whether a blocked request is one for which a pool's units are kept: not one that waits only for its own
    /// subject's limit or reserved share, nor one that is promised a place elsewhere, nor one that no open host could
    /// hold.
    fn may_be_head(&self, name: &PoolName, pool: &Pool, request: &Request) -> bool {
        let elsewhere = self
            .nomination(&request.step)
            .is_some_and(|n| n.pool != *name);
        let in_pool = RequestInPool::new(self, pool, request);
        !elsewhere
            && in_pool.is_some_and(|in_pool| {
                let mut platforms_of = in_pool.each_platform();
                in_pool.is_allowed(&Amounts::new())
                    && platforms_of.any(|platform| platform.has_enough_hosts())
            })
    }

    /// The promise that a head gets when no victims help.
    fn await_ends(&self, name: &PoolName, pool: &Pool, request: &Request) -> Option<Decision> {
        let in_pool = RequestInPool::new(self, pool, request)?;
        let reservations = in_pool.reserved_in_full();
        let mut platforms_of = in_pool.each_platform();
        let (platform, ends) = platforms_of.find_map(|in_pool| {
            let ends = ends::await_ends(in_pool, &reservations)?;
            Some((in_pool.platform, ends))
        })?;
        Some(Decision::Nominate {
            step: request.step.clone(),
            nomination: Nomination {
                pool: name.clone(),
                hosts: ends.hosts,
                awaits: ends.awaits,
                firm: false,
                platform: platform.cloned(),
            },
            victims: BTreeSet::new(),
            frozen: BTreeSet::new(),
        })
    }
}

/// A blocked request for which a pool's units are kept.
#[derive(Clone, Debug)]
struct BlockedHead<'a> {
    request: &'a Request,
    /// Where it could start on what comes free by itself.
    releasing: Option<Nomination>,
}

fn nominate_by_preemption(request: &Request, pool: &PoolName, plan: Plan) -> Decision {
    Decision::Nominate {
        step: request.step.clone(),
        victims: plan.victims.clone(),
        frozen: plan.frozen.clone(),
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
