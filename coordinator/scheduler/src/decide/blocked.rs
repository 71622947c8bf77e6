//! Requests of one check of a queue that can neither start nor preempt, so that those which ask for at least as much are
//! not tried. An optimisation only: a queue of requests with thousands of different amounts costs as much as one of the
//! few that ask for least.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_common::amount::Amounts;
use sluice_common::id::{PlatformName, PoolName, Subject};
use sluice_common::image::ImageKind;
use sluice_common::mig::GpuClass;
use sluice_common::time::Span;
use sluice_common::topology::DomainRequest;

use crate::model::guard::Guard;
use crate::model::queue_order::QueueRank;
use crate::model::request::Request;
use crate::placement::request_in_pool::RequestInPool;

/// Blocked requests by everything but their amounts.
#[derive(Debug, Default)]
pub(super) struct BlockedRequests<'a>(BTreeMap<RequestGroup<'a>, Vec<BlockedRequest<'a>>>);

/// Everything about a request that decides whether it can start or preempt, but how much it asks for. Requests of one group
/// have the same runs to preempt, the same hosts to run on and the same reservations to keep off.
///
/// GPUs belong to the group: with more of them a request is entitled to more cores and memory of a host.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestGroup<'a> {
    subject: &'a Subject,
    preemptible: bool,
    in_share: bool,
    by_priority: bool,
    behind_head: bool,
    hosts: u32,
    mgpu: u64,
    class: &'a GpuClass,
    pool: Option<&'a PoolName>,
    platforms: &'a [PlatformName],
    takes_default: bool,
    within: Option<&'a DomainRequest>,
    image: Option<ImageKind>,
    excluded_pools: &'a BTreeSet<PoolName>,
    guards: &'a BTreeMap<PoolName, Guard>,
    /// Resources that it asks for.
    keys: Vec<&'a str>,
}

#[derive(Debug)]
struct BlockedRequest<'a> {
    demand: &'a Amounts,
    time_limit: Option<Span>,
}

impl<'a> RequestGroup<'a> {
    /// The group of a request; `None` if it is like no other: it is nominated, resumes, may run in several pools or on
    /// several platforms, or takes back what went past it. `rank` is its own, `head` that of the head.
    pub(super) fn of(
        in_pool: RequestInPool<'a>,
        pools: usize,
        rank: QueueRank,
        head: Option<QueueRank>,
    ) -> Option<Self> {
        let RequestInPool {
            scheduler,
            pool,
            request,
            ..
        } = in_pool;
        let is_like_no_other = pools != 1
            || request.resumes.is_some()
            || scheduler.nomination(&request.step).is_some()
            || pool.backfill.contains_key(&request.step)
            || in_pool.each_platform().nth(1).is_some();
        if is_like_no_other {
            return None;
        }
        let in_share = rank.is_in_share();
        Some(Self {
            subject: &request.subject,
            preemptible: request.preemptible,
            in_share,
            by_priority: in_pool.preempts_by_priority(in_share),
            behind_head: head.is_some_and(|head| head < rank),
            hosts: request.hosts,
            mgpu: request.each.mgpu(),
            class: &request.class,
            pool: request.pool.as_ref(),
            platforms: &request.platforms,
            takes_default: request.takes_default,
            within: request.within.as_ref(),
            image: request.image,
            excluded_pools: &request.excluded_pools,
            guards: &request.guards,
            keys: request.demand.iter().map(|(key, _)| key.as_str()).collect(),
        })
    }
}

impl<'a> BlockedRequests<'a> {
    /// Whether a request is blocked because another of its group is that asks for no more and runs no longer.
    pub(super) fn imply(&self, group: &RequestGroup<'a>, request: &Request) -> bool {
        let blocked = self.0.get(group);
        let mut blocked = blocked.into_iter().flatten();
        blocked.any(|less| less.is_at_most(request))
    }

    /// Records a request that is blocked and is not implied.
    pub(super) fn insert(&mut self, group: RequestGroup<'a>, request: &'a Request) {
        let blocked = self.0.entry(group).or_default();
        blocked.push(BlockedRequest {
            demand: &request.demand,
            time_limit: request.time_limit,
        });
    }
}

impl BlockedRequest<'_> {
    /// Both ask for the same resources on the same number of hosts.
    fn is_at_most(&self, request: &Request) -> bool {
        // Without a limit it runs for ever.
        let runs_no_longer = match (self.time_limit, request.time_limit) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(other)) => own <= other,
        };
        let mut amounts = self.demand.iter().zip(request.demand.iter());
        runs_no_longer && amounts.all(|((_, own), (_, other))| own <= other)
    }
}
