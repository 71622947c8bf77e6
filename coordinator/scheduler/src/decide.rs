//! The next move of a pool: its requests are looked at in order, and the first that something can be done for decides.
//! What is done for one is done before the next is looked at, so whoever asks again sees the world that it left.
//!
//! | # | rule | where |
//! |---|---|---|
//! | 1 | feasibility: a request that no pool could ever grant is rejected when it is submitted | `placement/feasibility.rs` |
//! | 2 | queue order: inside the reserved share first, then by policy priority, then by submission | `model/queue_order.rs` |
//! | 3 | placement: the free hosts that fit best beyond what others are promised, as backfill where that is allowed | `placement/place.rs` |
//! | 4 | preemption: the cheapest set of runs whose end makes room | `preemption.rs` |
//! | 5 | nomination: the first that can neither start nor preempt is promised what comes free next | [`Scheduler::next_move`], `preemption/ends.rs` |

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
pub enum Move {
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

impl Move {
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
    pub fn spared_until(&self, name: &PoolName, now: Time) -> Option<Time> {
        let pool = self.pools.get(name)?;
        let spare = pool.terms().min_runtime;
        if spare == Span::ZERO || pool.waiting() == 0 {
            return None;
        }
        let over = now.unix_millis().checked_sub(spare.millis());
        let over = over.map_or(Bound::Unbounded, |millis| {
            Bound::Excluded(Time::from_unix_millis(millis))
        });
        let (began, _) = pool.begun.range((over, Bound::Unbounded)).next()?;
        Some(*began + spare)
    }

    /// The next move in a pool; `None` where all that waits must wait.
    pub fn next_move(&self, name: &PoolName, now: Time) -> Option<Move> {
        let pool = self.pools.get(name)?;
        self.kept_promise(pool)
            .or_else(|| self.first_in_order(name, pool, now))
    }

    /// What becomes of promises whose time has come.
    fn kept_promise(&self, pool: &Pool) -> Option<Move> {
        let firm = pool
            .firm
            .iter()
            .filter_map(|step| self.kept_firm(pool, step))
            .next();
        firm.or_else(|| {
            let step = pool.soft.as_ref()?;
            let nomination = self.nomination(step)?;
            let before = RequestInPool::of(self, pool, self.request(step)?);
            let before = before.map(|before| before.seeing(nomination.platform.as_ref()));
            let stands = before.is_some_and(|before| before.could_hold(&nomination.hosts));
            (!stands).then(|| Move::Withdraw { step: step.clone() })
        })
    }

    fn kept_firm(&self, pool: &Pool, step: &StepId) -> Option<Move> {
        let nomination = self.nomination(step)?;
        let Some(before) = RequestInPool::of(self, pool, self.request(step)?) else {
            return Some(Move::Withdraw { step: step.clone() });
        };
        let before = before.seeing(nomination.platform.as_ref());
        if !before.could_hold(&nomination.hosts) {
            return Some(Move::Withdraw { step: step.clone() });
        }
        if !nomination.awaits.is_empty() {
            return None;
        }
        let promises = before.promises();
        let allowed = before.is_allowed(&Amounts::new());
        if allowed && before.fits_on(&nomination.hosts, &promises.firm) {
            let around = promises
                .soft
                .filter(|_| before.request.preemptible)
                .filter(|(_, kept)| !before.fits_on(&nomination.hosts, kept));
            let mut backfill: BTreeSet<StepId> = around.map(|(head, _)| head).into_iter().collect();
            backfill.extend(before.passes());
            return Some(Move::Grant {
                step: step.clone(),
                pool: nomination.pool.clone(),
                hosts: nomination.hosts.clone(),
                platform: nomination.platform.clone(),
                backfill,
            });
        }
        Some(Move::Withdraw { step: step.clone() })
    }

    /// A head that waits for others to end is promised a place only when somebody behind it could start or take: until
    /// then the promise would bind nobody, and making it costs a look at what runs.
    fn first_in_order(&self, name: &PoolName, pool: &Pool, now: Time) -> Option<Move> {
        let mut head: Option<Head<'_>> = None;
        for (_, request) in queue_order::in_order(self, name, pool) {
            let pools = self.candidates(request);
            let (moved, coming) = match self.grant(request, &pools) {
                Some(grant) => (Some(grant), None),
                None => self.take(request, &pools, now),
            };
            if moved
                .as_ref()
                .is_some_and(|moved| moved.pool() != Some(name))
            {
                // It is left to the pool where it moves: others may go before it there, and its head has its promise
                // first.
                continue;
            }
            if moved.is_some() {
                let promise = head.and_then(|head| self.promise_to(head, name, pool));
                return promise.or(moved);
            }
            if head.is_none() && self.may_lead(name, pool, request) {
                let coming = coming.filter(|coming| coming.pool == *name);
                head = Some(Head { request, coming });
            }
        }
        let stale = pool.soft.as_ref();
        let stale =
            stale.filter(|step| head.as_ref().is_none_or(|head| head.request.step != **step));
        stale.map(|step| Move::Withdraw { step: step.clone() })
    }

    fn grant(&self, request: &Request, pools: &[(&PoolName, &Pool)]) -> Option<Move> {
        pools.iter().find_map(|(name, pool)| {
            let before = RequestInPool::of(self, pool, request)?;
            let room = before.place()?;
            let mut backfill = room.around;
            backfill.extend(before.passes());
            Some(Move::Grant {
                step: request.step.clone(),
                pool: (*name).clone(),
                hosts: room.hosts,
                platform: room.view.cloned(),
                backfill,
            })
        })
    }

    /// Stopping others, in the first of its pools where that helps; or, where nobody need be stopped, what comes free there.
    fn take(
        &self,
        request: &Request,
        pools: &[(&PoolName, &Pool)],
        now: Time,
    ) -> (Option<Move>, Option<Nomination>) {
        for (name, pool) in pools {
            let Some(before) = RequestInPool::of(self, pool, request) else {
                continue;
            };
            match preemption::outcome(before, now) {
                PreemptionOutcome::Take(plan) => return (Some(promise(request, name, plan)), None),
                // Waiting costs nobody anything: what comes free here is looked at when it is.
                PreemptionOutcome::Coming(plan) => {
                    return (None, Some(nomination(name, plan, false)));
                }
                PreemptionOutcome::Nothing(_) => {}
            }
        }
        (None, None)
    }

    /// The promise that a head has to get before anybody behind it moves: of what comes free by itself, or else of what will
    /// be when others have ended. One that it has stands, unless it could start sooner elsewhere.
    fn promise_to(&self, head: Head<'_>, name: &PoolName, pool: &Pool) -> Option<Move> {
        let Head { request, coming } = head;
        let known = pool.soft.as_ref().filter(|step| **step == request.step);
        let known = known.and_then(|step| self.nomination(step));
        if known.is_some_and(|known| self.is_coming(known)) {
            return None;
        }
        match (coming, known) {
            (Some(coming), _) => Some(Move::Nominate {
                step: request.step.clone(),
                nomination: coming,
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
    fn may_lead(&self, name: &PoolName, pool: &Pool, request: &Request) -> bool {
        let elsewhere = self
            .nomination(&request.step)
            .is_some_and(|n| n.pool != *name);
        let before = RequestInPool::of(self, pool, request);
        !elsewhere
            && before.is_some_and(|before| {
                let mut views = before.each_view();
                before.is_allowed(&Amounts::new()) && views.any(|view| view.has_large_hosts())
            })
    }

    /// The promise that a head gets when no victims help.
    fn await_ends(&self, name: &PoolName, pool: &Pool, request: &Request) -> Option<Move> {
        let before = RequestInPool::of(self, pool, request)?;
        let kept = before.promised_in_full();
        let mut views = before.each_view();
        let (view, ends) = views.find_map(|before| {
            let ends = ends::await_ends(before, &kept)?;
            Some((before.view, ends))
        })?;
        Some(Move::Nominate {
            step: request.step.clone(),
            nomination: Nomination {
                pool: name.clone(),
                hosts: ends.hosts,
                awaits: ends.awaits,
                firm: false,
                platform: view.cloned(),
            },
            victims: BTreeSet::new(),
            frozen: BTreeSet::new(),
        })
    }
}

/// A blocked request for which a pool's units are kept.
#[derive(Clone, Debug)]
struct Head<'a> {
    request: &'a Request,
    /// Where it could start on what comes free by itself.
    coming: Option<Nomination>,
}

fn promise(request: &Request, pool: &PoolName, plan: Plan) -> Move {
    Move::Nominate {
        step: request.step.clone(),
        victims: plan.victims.clone(),
        frozen: plan.frozen.clone(),
        nomination: nomination(pool, plan, true),
    }
}

fn nomination(pool: &PoolName, plan: Plan, firm: bool) -> Nomination {
    let mut awaits = plan.leaving;
    awaits.extend(plan.victims);
    Nomination {
        pool: pool.clone(),
        hosts: plan.hosts,
        awaits,
        firm,
        platform: plan.platform,
    }
}
