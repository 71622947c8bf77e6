//! A request in one of its pools: its rank there, what the policy of its subject lets it have, and what is promised to
//! others. It is what placement and preemption are asked with.

use alloc::borrow::Cow;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, NodeName, StepId};

use crate::model::account::Account;
use crate::model::host::{HostIndex, PlatformFilter};
use crate::model::pool::Pool;
use crate::model::queue_order::{self, QueueRank};
use crate::model::request::Request;
use crate::model::reservations::Reservations;
use crate::model::resources::HostResources;
use crate::model::scheduler::Scheduler;

/// A request before one of its pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestInPool<'a> {
    pub(crate) scheduler: &'a Scheduler,
    pub(crate) pool: &'a Pool,
    pub(crate) account: &'a Account,
    pub(crate) request: &'a Request,
    /// The platform that it looks at.
    pub(crate) platform: PlatformFilter<'a>,
}

impl Scheduler {
    /// Whether a request fits wholly into what is unused of its subject's reserved share in a pool, and promised to no other
    /// of it.
    pub fn is_in_share(&self, pool: &Pool, request: &Request) -> bool {
        RequestInPool::new(self, pool, request).is_some_and(|in_pool| in_pool.is_in_share())
    }
}

impl<'a> RequestInPool<'a> {
    /// `None` where its subject has no policy there.
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
            platform: first_platform(pool, request),
        })
    }

    pub(crate) fn rank(&self) -> QueueRank {
        queue_order::rank(self.scheduler, self.pool, self.account, self.request)
    }

    /// Whether it fits wholly into what is unused of its subject's reserved share and promised to no other of it.
    pub(crate) fn is_in_share(&self) -> bool {
        queue_order::is_in_share(self.scheduler, self.pool, self.account, self.request)
    }

    /// The keys of its demand that the pool counts, with how much it asks.
    pub(crate) fn metered(&self) -> impl Iterator<Item = (&'a str, u64)> + use<'a> {
        let pool = self.pool;
        let keys = self.request.demand.iter();
        keys.map(|(key, asked)| (key.as_str(), asked))
            .filter(|(key, _)| pool.is_metered(key))
    }

    /// Whether its subject's own policy lets it start, if `gone` of what the subject uses were not.
    pub(crate) fn is_allowed(&self, gone: &Amounts) -> bool {
        self.keys_short_of_limit(gone).next().is_none()
            && (self.request.preemptible || self.is_in_share())
    }

    /// The keys of which it would use more than its subject's limit.
    pub(crate) fn keys_over_limit<'b>(
        &self,
        gone: &'b Amounts,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
        self.keys_beyond(gone, |_| 0)
    }

    /// Those of which it would, once others of its subject have started to whom it is promised that they will.
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

    /// What others are promised: what it may not take at all, and what it may take only as backfill to whom. A soft
    /// promise binds those behind it alone.
    pub(crate) fn reserved_for_others(&self) -> ReservedForOthers {
        let mut firm = Reservations::default();
        for step in self
            .pool
            .firm_nominations
            .iter()
            .filter(|step| **step != self.request.step)
        {
            self.add(step, &mut firm);
        }
        let soft = self
            .pool
            .soft_nomination
            .as_ref()
            .filter(|step| self.is_behind(step));
        let soft = soft.map(|step| {
            let mut with_soft = firm.clone();
            self.add(step, &mut with_soft);
            (step.clone(), with_soft)
        });
        let head = soft.as_ref();
        let head = head.and_then(|(step, _)| self.scheduler.nomination(step));
        ReservedForOthers {
            awaits_only_releasing: head
                .is_some_and(|promise| self.scheduler.awaits_only_releasing(promise)),
            firm,
            soft,
        }
    }

    fn add(&self, step: &StepId, reservations: &mut Reservations) {
        let request = self.scheduler.request(step);
        let nomination = self.scheduler.nomination(step);
        if let (Some(request), Some(nomination)) = (request, nomination) {
            reservations.add(self.scheduler, request, nomination);
        }
    }

    /// All that is firmly promised to others, what the runs that go for it still hold included: who waits for the end of
    /// these too has only the rest of them.
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

    /// The request before its pool once for each of its views, the one that it likes best first.
    pub(crate) fn each_platform(&self) -> impl Iterator<Item = RequestInPool<'a>> + use<'a> {
        let in_pool = *self;
        let platforms_of = self.pool.platforms_of(self.request).into_iter();
        platforms_of.map(move |platform| in_pool.on_platform(platform))
    }

    /// The same by another view.
    pub(crate) fn on_platform(&self, platform: PlatformFilter<'a>) -> Self {
        Self { platform, ..*self }
    }

    pub(crate) fn host_index(&self) -> &'a HostIndex {
        self.pool.host_index(self.platform)
    }

    /// What comes free of a host for the request when a run gives back `each`.
    pub(crate) fn released_for(
        &self,
        node: &NodeName,
        attempt: &AttemptId,
        each: HostResources,
    ) -> HostResources {
        let host = self.pool.hosts().get(node);
        host.map_or(each, |host| host.released_for(self.platform, attempt, each))
    }

    /// How much of a key others of its subject will use that are promised a place, beyond what the subject's own runs give
    /// back for them.
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

    /// What counts against its subject's reserved share for it.
    pub(crate) fn counted(&self) -> Cow<'_, Amounts> {
        let Self {
            scheduler,
            pool,
            account,
            request,
            ..
        } = self;
        scheduler.counted_use(pool, account, request)
    }
}

fn first_platform<'a>(pool: &'a Pool, request: &'a Request) -> PlatformFilter<'a> {
    pool.platforms_of(request).into_iter().next().flatten()
}

/// What is promised to others than a request.
#[derive(Clone, Debug)]
pub(crate) struct ReservedForOthers {
    /// To those that nobody may take from.
    pub(crate) firm: Reservations,
    /// To the head that goes before it, with the firm ones added.
    pub(crate) soft: Option<(StepId, Reservations)>,
    /// Whether all that the head waits for is being released.
    awaits_only_releasing: bool,
}

impl ReservedForOthers {
    /// Whether a request may be granted around the head: one that can be made to give way. Not where the head is about to
    /// start, for it would have to at once, and the head would wait for that.
    pub(crate) fn allows_backfill(&self, request: &Request) -> bool {
        request.preemptible && !self.awaits_only_releasing
    }

    /// All of it.
    pub(crate) fn all(&self) -> &Reservations {
        self.soft
            .as_ref()
            .map_or(&self.firm, |(_, reservations)| reservations)
    }
}
