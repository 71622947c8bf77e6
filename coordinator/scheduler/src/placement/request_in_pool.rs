//! A request in one of its pools: its rank there, what its subject's policy allows, and what is reserved for others.
//! Placement and preemption are asked with this.

use alloc::borrow::Cow;

use sluice_common::amount::{Amounts, STEP_RUN};
use sluice_common::id::{AttemptId, NodeName, PlatformName, StepId};
use sluice_common::time::Span;

use crate::model::account::Account;
use crate::model::host::{HardwareFilter, Host, HostIndex};
use crate::model::nomination::Nomination;
use crate::model::pool::Pool;
use crate::model::pool::host_set::Domain;
use crate::model::queue_order::{self, QueueRank};
use crate::model::request::Request;
use crate::model::reservations::{PoolReservations, Reservations};
use crate::model::resources::HostResources;
use crate::model::scheduler::Scheduler;

/// A request in one of its pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestInPool<'a> {
    pub(crate) scheduler: &'a Scheduler,
    pub(crate) pool: &'a Pool,
    pub(crate) account: &'a Account,
    pub(crate) request: &'a Request,
    /// The hardware that is being tried.
    pub(crate) filter: HardwareFilter<'a>,
    /// The domain that is being tried; `None` means all hosts.
    pub(crate) domain: Option<Domain<'a>>,
}

impl Scheduler {
    /// Whether a request fits wholly in its subject's unused reserved share in a pool, nominated use included.
    pub fn is_in_share(&self, pool: &Pool, request: &Request) -> bool {
        RequestInPool::new(self, pool, request).is_some_and(|in_pool| in_pool.is_in_share())
    }
}

impl<'a> RequestInPool<'a> {
    /// `None` if its subject has no policy there.
    pub(crate) fn new(
        scheduler: &'a Scheduler,
        pool: &'a Pool,
        request: &'a Request,
    ) -> Option<Self> {
        let account = pool.account(&request.subject)?;
        account.policy.as_ref()?;
        Some(Self {
            scheduler,
            pool,
            account,
            request,
            filter: first_filter(pool, request),
            domain: None,
        })
    }

    pub(crate) fn rank(&self) -> QueueRank {
        queue_order::rank(self.scheduler, self.pool, self.account, self.request)
    }

    /// Whether the request fits wholly in its subject's unused reserved share, nominated use included.
    pub(crate) fn is_in_share(&self) -> bool {
        queue_order::is_in_share(self.scheduler, self.pool, self.account, self.request)
    }

    /// Whether the request is inside its share of something that policies meter, the number of steps aside. A request
    /// that asks for nothing metered reclaims nothing that is not metered.
    pub(crate) fn is_in_metered_share(&self) -> bool {
        self.metered().any(|(key, _)| key != STEP_RUN) && self.is_in_share()
    }

    /// Whether the request preempts other subjects by priority and not by reclaim: it must borrow, or asks for nothing
    /// that counts in its share. `in_share` is [`Self::is_in_share`].
    pub(crate) fn preempts_by_priority(&self, in_share: bool) -> bool {
        let Self {
            pool,
            account,
            request,
            ..
        } = self;
        !in_share || !pool.asks_for_what_counts(account, request)
    }

    /// The metered resources of its demand, with the amount asked.
    pub(crate) fn metered(&self) -> impl Iterator<Item = (&'a str, u64)> + use<'a> {
        let pool = self.pool;
        let keys = self.request.demand.iter();
        keys.map(|(key, asked)| (key.as_str(), asked))
            .filter(|(key, _)| pool.is_metered(key))
    }

    /// Whether the request may borrow what it asks for from the GPUs of a host, or need not.
    pub(crate) fn may_borrow_on(&self, node: &NodeName) -> bool {
        let is_free = self.request.preemptible || self.pool.terms().open_gpu_hosts;
        is_free || !self.borrows_from_gpus_of(core::slice::from_ref(node))
    }

    /// Whether the request would borrow from the GPUs of one of these hosts.
    pub(crate) fn borrows_from_gpus_of(&self, hosts: &[NodeName]) -> bool {
        let mut hosts = hosts.iter().filter_map(|node| self.pool.hosts().get(node));
        hosts.any(|host| {
            let borrowed = self.pool.borrowed_from_gpus(host, self.request.each);
            borrowed != HostResources::default()
        })
    }

    /// Whether its subject's policy lets it start if `gone` of the subject's use were released.
    pub(crate) fn is_allowed(&self, gone: &Amounts) -> bool {
        self.keys_short_of_limit(gone).next().is_none()
            && (self.request.preemptible || self.is_in_share())
    }

    /// Resources of which it would exceed its subject's limit.
    pub(crate) fn keys_over_limit<'b>(
        &self,
        gone: &'b Amounts,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        self.keys_beyond(gone, |_| 0)
    }

    /// Resources of which it would exceed the limit together with the nominations of the subject's other requests.
    pub(crate) fn keys_short_of_limit<'b>(
        &self,
        gone: &'b Amounts,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        let in_pool = *self;
        self.keys_beyond(gone, move |key| in_pool.nominated_amount(key))
    }

    fn keys_beyond<'b, F: Fn(&str) -> u64>(
        &self,
        gone: &'b Amounts,
        promised: F,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b, F> {
        let account = self.account;
        let limited = self.metered().filter(move |(key, asked)| {
            let policy = account.policy.as_ref();
            policy
                .and_then(|policy| policy.limit(key))
                .is_some_and(|limit| {
                    let used = account.used.get(key).saturating_sub(gone.get(key));
                    let used = used.saturating_add(promised(key));
                    used.saturating_add(*asked) > limit
                })
        });
        limited.map(|(key, _)| key)
    }

    /// Resources reserved for others: firm reservations, which it may not take, and those of the head, which it may
    /// take only as backfill. A soft nomination binds only requests behind the head.
    pub(crate) fn reserved_for_others(&self) -> ReservedForOthers<'a> {
        let (scheduler, pool) = (self.scheduler, self.pool);
        let soft = pool.soft_nomination.as_ref();
        let soft = soft.filter(|step| self.is_behind(step));
        let (firm, with_head) = match pool.firm_nominations.contains(&self.request.step) {
            // Its own nomination is not reserved for others.
            true => {
                let PoolReservations { firm, with_head } = self.reservations();
                (Cow::Owned(firm), Cow::Owned(with_head))
            }
            false => {
                let all = self.reserved_in_pool();
                (Cow::Borrowed(&all.firm), Cow::Borrowed(&all.with_head))
            }
        };
        let head = soft.and_then(|step| scheduler.nomination(step));
        let limit = self
            .request
            .time_limit
            .filter(|_| self.request.resumes.is_none());
        let ends_before = |(limit, head): (Span, &Nomination)| {
            let start = scheduler.latest_start(&head.awaits);
            start.is_some_and(|start| scheduler.clock + limit <= start)
        };
        ReservedForOthers {
            awaits_only_releasing: head
                .is_some_and(|promise| scheduler.awaits_only_releasing(promise)),
            ends_before_head: limit.zip(head).is_some_and(ends_before),
            firm,
            soft: soft.map(|step| (step, with_head)),
        }
    }

    /// All reservations of the pool, for a request without a nomination.
    pub(crate) fn reserved_in_pool(&self) -> &'a PoolReservations {
        let reservations = &self.pool.reservations;
        reservations.get_or_derive(|| self.reservations())
    }

    /// Reservations of the pool for all but the request.
    fn reservations(&self) -> PoolReservations {
        let mut firm = Reservations::default();
        let others = self.pool.firm_nominations.iter();
        for step in others.filter(|step| **step != self.request.step) {
            self.add(step, &mut firm);
        }
        let mut with_head = firm.clone();
        if let Some(head) = &self.pool.soft_nomination {
            self.add(head, &mut with_head);
        }
        PoolReservations { firm, with_head }
    }

    fn add(&self, step: &StepId, reservations: &mut Reservations) {
        let request = self.scheduler.request(step);
        let nomination = self.scheduler.nomination(step);
        if let (Some(request), Some(nomination)) = (request, nomination) {
            reservations.add(self.scheduler, request, nomination);
        }
    }

    /// All firm nominations of others, including what the awaited runs still hold: a request that waits for the same
    /// runs gets only the rest.
    pub(crate) fn reserved_in_full(&self) -> Reservations {
        let others = self.pool.firm_nominations.iter();
        let mut reservations = Reservations::default();
        for step in others.filter(|step| **step != self.request.step) {
            if let Some(request) = self.scheduler.request(step)
                && let Some(nomination) = self.scheduler.nomination(step)
            {
                reservations.add_in_full(self.scheduler, request, nomination);
            }
        }
        reservations
    }

    fn is_behind(&self, step: &StepId) -> bool {
        if *step == self.request.step {
            return false;
        }
        let other = self.scheduler.request(step);
        let other = other.and_then(|other| RequestInPool::new(self.scheduler, self.pool, other));
        other.is_some_and(|other| other.rank() < self.rank())
    }

    /// The request for each platform to try, most preferred first.
    pub(crate) fn each_platform(&self) -> impl Iterator<Item = RequestInPool<'a>> + use<'a> {
        let in_pool = *self;
        let filters = self.pool.filters_of(self.request).into_iter();
        filters.map(move |filter| Self { filter, ..in_pool })
    }

    /// The same request for another platform.
    pub(crate) fn on_platform(&self, platform: Option<&'a PlatformName>) -> Self {
        let filter = self.pool.filter(self.request, platform);
        Self { filter, ..*self }
    }

    pub(crate) fn host_index(&self) -> &'a HostIndex {
        match self.domain {
            None => self.pool.host_index(self.filter),
            Some(domain) => self.pool.host_index_of(domain, self.filter),
        }
    }

    /// Resources of a host that the request may take if `freed` were released. On a host with several kinds of GPUs, those
    /// of a resumption are not counted: that its own ones are free is checked one by one.
    pub(crate) fn left_on(
        &self,
        (node, host): (&NodeName, &Host),
        freed: HostResources,
        reservations: &Reservations,
    ) -> HostResources {
        let reserved = reservations.unavailable_on(node, host, self.filter);
        let left = host.free_for(self.filter, freed).less(reserved);
        match self.request.resumes.is_some() && host.is_mixed() {
            true => left.with_mgpu(self.request.each.mgpu()),
            false => left,
        }
    }

    /// Resources that become free on a host for the request when a run releases `each`.
    pub(crate) fn released_for(
        &self,
        node: &NodeName,
        attempt: &AttemptId,
        each: HostResources,
    ) -> HostResources {
        let host = self.pool.hosts().get(node);
        host.map_or(each, |host| host.released_for(self.filter, attempt, each))
    }

    /// Nominated use of a resource by the subject's other requests, less what the subject's own runs release for
    /// them.
    pub(crate) fn nominated_amount(&self, key: &str) -> u64 {
        let others = self.scheduler.nominations_on(self.pool, self.account);
        let others = others.filter(|(other, _)| other.step != self.request.step);
        let added_use = others.map(|(other, nomination)| {
            let added_use = self
                .scheduler
                .added_use(self.account, other, nomination, |_| false);
            added_use.get(key)
        });
        added_use.fold(0, u64::saturating_add)
    }

    /// Use that counts against its subject's reserved share for this request.
    pub(crate) fn counted(&self) -> Cow<'_, Amounts> {
        let Self {
            scheduler,
            pool,
            account,
            request,
            ..
        } = self;
        scheduler.counted_use(pool, account, Some(&request.step), request.preemptible)
    }
}

fn first_filter<'a>(pool: &'a Pool, request: &'a Request) -> HardwareFilter<'a> {
    let first = pool.filters_of(request).into_iter().next();
    first.unwrap_or(HardwareFilter::ANY)
}

/// Resources that are reserved for other requests.
#[derive(Clone, Debug)]
pub(crate) struct ReservedForOthers<'a> {
    /// Firm reservations, which no other request may take.
    pub(crate) firm: Cow<'a, Reservations>,
    /// The head that goes before the request, and the firm reservations plus those of the head.
    pub(crate) soft: Option<(&'a StepId, Cow<'a, Reservations>)>,
    /// Whether all that the head waits for is being released.
    awaits_only_releasing: bool,
    /// Whether the request, started now, ends before the head starts at the latest.
    ends_before_head: bool,
}

impl ReservedForOthers<'_> {
    /// Whether a request may use what is kept for the head without giving it back: time limits say that it ends before the
    /// head starts.
    pub(crate) fn allows_short_run(&self) -> bool {
        self.ends_before_head && !self.awaits_only_releasing
    }

    /// Whether a request may be granted as backfill: if it is preemptible, and the head is not about to start.
    /// Otherwise it would be preempted at once while the head waits.
    pub(crate) fn allows_backfill(&self, request: &Request) -> bool {
        request.preemptible && !self.awaits_only_releasing
    }

    pub(crate) fn all(&self) -> &Reservations {
        self.soft
            .as_ref()
            .map_or(&self.firm, |(_, reservations)| reservations)
    }
}
