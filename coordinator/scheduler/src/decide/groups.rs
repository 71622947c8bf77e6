//! Groups of waiting requests of which none can start or preempt, found by one check each: of a request that asks for no
//! more of anything than any of the group. So a queue of requests with thousands of different amounts costs a decision no
//! more than one of as many alike requests. An optimisation only.

use alloc::vec::Vec;
use core::ptr;

use sluice_common::id::PoolName;
use sluice_common::time::Time;

use super::blocked::RequestGroup;
use super::{RequestOutcome, Scheduler};
use crate::model::account::Account;
use crate::model::pool::Pool;
use crate::model::queue::ClassGroup;
use crate::model::queue_order::{QueueRank, QueuedRequest};
use crate::model::request::Request;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::cache::PoolCaches;

/// A group of the queue of a subject, with the request by which it is checked.
#[derive(Debug)]
pub(super) struct GroupCheck<'a> {
    account: &'a Account,
    group: &'a ClassGroup,
    /// A request that asks for no more than any of the group; its place is that of the first.
    least: Request,
    last: &'a Request,
}

/// The groups with at least so many classes.
pub(super) fn group_checks<'a>(
    scheduler: &'a Scheduler,
    pool: &'a Pool,
    classes: usize,
) -> Vec<GroupCheck<'a>> {
    let accounts = pool.accounts().values();
    let groups = accounts.flat_map(|account| {
        let groups = account.queue.groups();
        groups.map(move |group| (account, group))
    });
    let groups = groups.filter(|(_, group)| group.len() >= classes);
    let found = groups.filter_map(|(account, group)| {
        let mut requests = ordinary_requests(scheduler, pool, account, group);
        let first = requests.next()?;
        Some(GroupCheck {
            account,
            group,
            least: group.least(first),
            last: requests.next_back().unwrap_or(first),
        })
    });
    found.collect()
}

/// The requests of a group that have no nomination, and that nothing went past, in the order of submission. Only their
/// amounts and their places decide what they may take.
fn ordinary_requests<'a>(
    scheduler: &'a Scheduler,
    pool: &'a Pool,
    account: &'a Account,
    group: &'a ClassGroup,
) -> impl DoubleEndedIterator<Item = &'a Request> {
    let steps = group.places().iter();
    let steps = steps.filter_map(|place| account.queue.step_at(*place));
    let steps = steps
        .filter(|step| scheduler.nomination(step).is_none() && !pool.backfill.contains_key(*step));
    steps.filter_map(|step| scheduler.request(step))
}

impl<'a> GroupCheck<'a> {
    /// Whether no request of the group can start or preempt, except special ones.
    pub(super) fn is_blocked<'b>(
        &'b self,
        scheduler: &'b Scheduler,
        pool: &'b Pool,
        head: Option<QueueRank>,
        now: Time,
        caches: &PoolCaches<'b>,
    ) -> bool {
        let in_pool = |request| RequestInPool::new(scheduler, pool, request);
        let Some((least, last)) = in_pool(&self.least).zip(in_pool(self.last)) else {
            return false;
        };
        let (first, last) = (least.rank(), last.rank());
        // All of them are behind the head, or none is.
        let is_mixed = head.is_some_and(|head| first <= head && head <= last);
        let pools = scheduler.pools_for(&self.least);
        let is_alike = RequestGroup::of(least, pools.len(), first, head).is_some();
        if first.is_in_share() || is_mixed || !is_alike {
            return false;
        }
        let outcome = scheduler.outcome_of(&self.least, &pools, now, caches);
        matches!(
            outcome,
            RequestOutcome::Wait {
                holds_for_larger: true
            }
        )
    }

    pub(super) fn is_of(&self, group: &ClassGroup) -> bool {
        ptr::eq(self.group, group)
    }

    /// The special requests of a blocked group, and the first that may be the head.
    pub(super) fn left_over(
        &self,
        scheduler: &'a Scheduler,
        name: &PoolName,
        pool: &'a Pool,
    ) -> Vec<QueuedRequest<'a>> {
        let Self { account, group, .. } = *self;
        let special = pool.soft_nomination.iter().chain(pool.backfill.keys());
        let special = special.filter_map(|step| scheduler.request(step));
        let special = special.filter(|request| {
            let place = request.place;
            group.places().contains(&place)
                && account.queue.step_at(place).is_some()
                && !account.queue.follows_alike(request)
        });
        let mut left: Vec<(&Request, bool)> = special.map(|request| (request, false)).collect();
        if scheduler.may_be_head(name, pool, &self.least) {
            let mut others = ordinary_requests(scheduler, pool, account, group);
            let head = others.find(|request| scheduler.may_be_head(name, pool, request));
            left.extend(head.map(|request| (request, true)));
        }
        let ranked = left.into_iter().filter_map(|(request, is_blocked)| {
            Some(QueuedRequest {
                rank: RequestInPool::new(scheduler, pool, request)?.rank(),
                request,
                is_blocked,
            })
        });
        ranked.collect()
    }
}
