//! Explains one request or run in a pool: the policy terms, queue position and preemption rules that apply to it.
//! Decides nothing and has no rule of its own.

pub(crate) mod block;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject, UserName};
use sluice_common::time::Time;

use crate::inspect::block::BlockReason;
use crate::model::host::HardwareFilter;
use crate::model::pool::Pool;
use crate::model::queue_order::{self, QueueRank};
use crate::model::request::Request;
use crate::model::reservations::Reservations;
use crate::model::resources::{HOST_KEYS, HostResources};
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::cache::CandidateCache;
use crate::preemption::protection::Protected;
use crate::preemption::rule;
use crate::preemption::{self, NoPreemption, PreemptionOutcome};

/// A request as one of its pools sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection<'a> {
    pub pool: &'a PoolName,
    /// Priority of its subject's policy.
    pub priority: u64,
    /// Whether the request fits wholly in its subject's unused reserved share.
    pub in_share: bool,
    /// The resources that it asks for.
    pub keys: Vec<ResourceUse<'a>>,
    /// The first rule that keeps it from starting.
    pub block: Option<BlockReason<'a>>,
    /// Number of requests ahead of it, and number of requests in the queue.
    pub position: (usize, usize),
    /// The request just ahead of it.
    pub behind: Option<&'a StepId>,
    /// Fair share of its subject, then of the subject of the request just ahead if that is another; empty without it.
    pub fair_share: Vec<FairShareUse<'a>>,
    /// Effect that preemption could have for it.
    pub preemption: PreemptionStatus,
    /// Runs that hold what it is short of, each with what protects it.
    pub holders: Vec<Holder<'a>>,
}

/// A subject in fair share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairShareUse<'a> {
    pub subject: &'a Subject,
    /// GPU-seconds that it borrowed, decayed.
    pub borrowed: u64,
    pub weight: u64,
    /// The request's user and all that it used, if users share fairly too.
    pub user: Option<(&'a UserName, u64)>,
}

/// One resource of a request, and what its subject and pool have of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUse<'a> {
    pub key: &'a str,
    /// Amount that the request asks for on all its hosts.
    pub asked: u64,
    /// Amount that its subject uses.
    pub used: u64,
    /// The non-preemptible part of `used`.
    pub non_preemptible: u64,
    /// Amount that is nominated to other requests of the subject, on top of `used`.
    pub promised: u64,
    /// Amount reserved for its subject; `None` if policies do not meter this resource.
    pub reserved: Option<u64>,
    /// Limit of its subject; `None` if only the pool bounds it.
    pub limit: Option<u64>,
    /// Amount free in the pool, if the pool declares it.
    pub free: Option<u64>,
    /// The schedulable host with most of it free, if hosts report it.
    pub most_free: Option<(&'a NodeName, u64)>,
}

/// Effect that preemption could have for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreemptionStatus {
    /// Preemption was decided; the victims are stopping.
    InProgress,
    /// These runs would be stopped.
    Possible(BTreeSet<AttemptId>),
    /// The resources that it needs are being released.
    AwaitingRelease,
    /// No run is stopped for it.
    Impossible(NoPreemption),
}

/// A run that holds what a request is short of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    pub attempt: &'a AttemptId,
    pub subject: &'a Subject,
    /// Protection of the run; `None` if it may be stopped.
    pub protection: Option<Protected>,
}

impl Scheduler {
    /// The pools in which a request waits, most preferred first.
    pub fn pools_of(&self, step: &StepId) -> Vec<&PoolName> {
        let request = self.request(step).into_iter();
        let pools = request.flat_map(|request| self.pools_for(request));
        pools.map(|(name, _)| name).collect()
    }

    /// Explains a request in one of its pools.
    pub fn inspect<'a>(
        &'a self,
        step: &StepId,
        name: &PoolName,
        now: Time,
    ) -> Option<Inspection<'a>> {
        let (pool_name, pool) = self.pools.get_key_value(name)?;
        let in_pool = RequestInPool::new(self, pool, self.request(step)?)?;
        let (ahead, waiting, behind) = self.position(pool, in_pool.rank())?;
        let block = self.block(step, name);
        Some(Inspection {
            pool: pool_name,
            priority: in_pool.account.priority(),
            in_share: in_pool.is_in_share(),
            keys: in_pool.terms(),
            position: (ahead, waiting),
            behind,
            fair_share: self.fair_share_uses(pool, in_pool.request, behind),
            preemption: self.preemption_status(in_pool, now),
            holders: block
                .as_ref()
                .map_or_else(Vec::new, |block| in_pool.holders(block, now)),
            block,
        })
    }

    /// The number of requests that go before the one with a rank, that of all, and the last that goes before it; `None` if
    /// none there has the rank.
    fn position<'a>(
        &'a self,
        pool: &'a Pool,
        own: QueueRank,
    ) -> Option<(usize, usize, Option<&'a StepId>)> {
        let (mut ahead, mut waiting, mut is_there) = (0, 0, false);
        let mut behind = None;
        for (rank, step) in queue_order::ranked(self, pool) {
            waiting += 1;
            is_there |= rank == own;
            if rank < own {
                ahead += 1;
                behind = behind.max(Some((rank, step)));
            }
        }
        is_there.then_some((ahead, waiting, behind.map(|(_, step)| step)))
    }

    fn fair_share_uses<'a>(
        &'a self,
        pool: &'a Pool,
        request: &'a Request,
        behind: Option<&StepId>,
    ) -> Vec<FairShareUse<'a>> {
        let ahead = behind.and_then(|step| self.request(step));
        let ahead = ahead.filter(|other| other.subject != request.subject);
        let requests = [request].into_iter().chain(ahead);
        let uses = requests.filter_map(|request| {
            let used = pool.fair_use(&request.subject, self.clock)?;
            let user = request.user.as_ref().filter(|_| pool.terms().fair_users);
            Some(FairShareUse {
                subject: &request.subject,
                borrowed: used.borrowed_gpu_seconds(),
                weight: pool.policy(&request.subject)?.weight(),
                user: user.map(|user| (user, used.gpu_seconds_of(Some(user)))),
            })
        });
        uses.collect()
    }

    fn preemption_status(&self, in_pool: RequestInPool<'_>, now: Time) -> PreemptionStatus {
        let nomination = self.nomination(&in_pool.request.step);
        if nomination.is_some_and(|nomination| nomination.is_firm()) {
            return PreemptionStatus::InProgress;
        }
        let cache = CandidateCache::default();
        match preemption::outcome(in_pool, now, &cache) {
            PreemptionOutcome::Preempt(plan) => PreemptionStatus::Possible(plan.victims),
            PreemptionOutcome::AwaitRelease(_) => PreemptionStatus::AwaitingRelease,
            PreemptionOutcome::Impossible(failure) => {
                PreemptionStatus::Impossible(preemption::reason(in_pool, now, &cache, failure))
            }
        }
    }
}

impl<'a> RequestInPool<'a> {
    fn terms(&self) -> Vec<ResourceUse<'a>> {
        let none = Reservations::default();
        let policy = self.account.policy.as_ref();
        let keys = self.request.demand.iter();
        keys.map(|(key, asked)| {
            let key = key.as_str();
            let metered = self.pool.is_metered(key);
            ResourceUse {
                key,
                asked,
                used: self.account.used.get(key),
                non_preemptible: self.account.non_preemptible.get(key),
                promised: self.nominated_amount(key),
                reserved: self.account.reserved(key).filter(|_| metered),
                limit: policy
                    .and_then(|policy| policy.limit(key))
                    .filter(|_| metered),
                free: self.free_of(key, &none),
                most_free: self.most_free(key),
            }
        })
        .collect()
    }

    fn most_free(&self, key: &str) -> Option<(&'a NodeName, u64)> {
        if !HOST_KEYS.contains(&key) {
            return None;
        }
        let hosts = self
            .pool
            .hosts()
            .iter()
            .filter(|(_, host)| host.schedulable);
        let filters = self.filters();
        let free = hosts.flat_map(|(node, host)| {
            let seen = filters.iter().filter(|filter| host.is_seen_by(**filter));
            seen.map(move |filter| {
                let free = host.free_for(*filter, HostResources::default());
                (free.get(key), node)
            })
        });
        let largest_fitting = free.max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(a.1)));
        largest_fitting.map(|(free, node)| (node, free))
    }

    /// The hardware that the request may run on, most preferred first.
    fn filters(&self) -> Vec<HardwareFilter<'a>> {
        self.each_platform().map(|in_pool| in_pool.filter).collect()
    }

    /// Runs on hosts that the request may run on.
    fn reachable_runs(&self) -> BTreeSet<&'a AttemptId> {
        let filters = self.filters();
        let hosts = self.pool.hosts().values();
        let hosts = hosts.filter(|host| filters.iter().any(|filter| host.is_seen_by(*filter)));
        hosts.flat_map(|host| &host.runs).collect()
    }

    /// Runs that hold the resource that a rule names as short.
    fn holders(&self, block: &BlockReason<'_>, now: Time) -> Vec<Holder<'a>> {
        let (key, own) = match block {
            BlockReason::Limit { key, .. } | BlockReason::Reserved { key, .. } => (*key, true),
            BlockReason::PoolFull { key, .. } => (*key, false),
            BlockReason::DomainsFull { .. } | BlockReason::HostsFull { closest: None } => {
                match self.request.each.iter().find(|(_, asked)| *asked > 0) {
                    Some((key, _)) => (key, false),
                    None => return Vec::new(),
                }
            }
            BlockReason::HostsFull {
                closest: Some((_, key, ..)),
            } => (*key, false),
            BlockReason::PoolEmpty
            | BlockReason::GpusUnknown { .. }
            | BlockReason::Infeasible(_)
            | BlockReason::AwaitingRelease { .. }
            | BlockReason::NoSchedulableHost { .. }
            | BlockReason::BehindHead { .. } => return Vec::new(),
        };
        let accounts = self.pool.accounts().iter();
        let accounts = accounts.filter(|(subject, _)| !own || **subject == self.request.subject);
        let runs = accounts.flat_map(|(_, account)| account.runs.keys());
        let runs = runs.filter_map(|id| Some((id, self.scheduler.run(id)?)));
        let on_hosts = matches!(
            block,
            BlockReason::HostsFull { .. } | BlockReason::DomainsFull { .. }
        );
        let reach = on_hosts.then(|| self.reachable_runs());
        let reached = |id: &AttemptId| reach.as_ref().is_none_or(|reach| reach.contains(id));
        runs.filter(|(id, run)| run.demand().get(key) > 0 && reached(id))
            .map(|(attempt, run)| Holder {
                attempt,
                subject: &run.request.subject,
                protection: rule::protection_for_key(*self, attempt, run, key, now),
            })
            .collect()
    }
}
