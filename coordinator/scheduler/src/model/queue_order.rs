//! Who goes first in a pool: requests inside their reserved share before those that must borrow, then higher policy
//! priority, then first submission.

use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::{PoolName, StepId};

use crate::model::account::Account;
use crate::model::pool::Pool;
use crate::model::request::Request;
use crate::model::scheduler::Scheduler;

/// The rank of a request in a pool: the lowest goes first. Places are unique, so no two requests rank alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueRank {
    borrows: bool,
    priority: Reverse<u64>,
    effective_place: u64,
}

/// Whether a request fits wholly into its subject's unused reserved share, over every metered key. What counts against
/// one that cannot be made to give way is what cannot either: the subject's other runs in the share make room for it. What
/// others of the subject are promised is as good as used: else all of a kind would take for a share that is enough for one.
pub(crate) fn is_in_share(
    scheduler: &Scheduler,
    pool: &Pool,
    account: &Account,
    request: &Request,
) -> bool {
    let against = scheduler.counted_use(pool, account, request);
    fits_share(pool, account, request, &against)
}

/// The same, against use that is only supposed.
pub(crate) fn fits_share(
    pool: &Pool,
    account: &Account,
    request: &Request,
    used: &sluice_common::amount::Amounts,
) -> bool {
    // What is frozen is judged as a whole: it is in share again where it would be if it started anew.
    let kept = request.resumes.iter().flat_map(|it| it.kept.iter());
    let kept = kept.filter(|(key, _)| request.demand.get(key.as_str()) == 0);
    let kept = kept.map(|(key, _)| (key, 0));
    let mut keys = request
        .demand
        .iter()
        .chain(kept)
        .filter(|(key, _)| pool.is_metered(key.as_str()));
    keys.all(|(key, asked)| {
        let reserved = account.reserved(key.as_str());
        reserved.is_none_or(|reserved| used.get(key.as_str()).saturating_add(asked) <= reserved)
    })
}

pub(crate) fn rank(
    scheduler: &Scheduler,
    pool: &Pool,
    account: &Account,
    request: &Request,
) -> QueueRank {
    QueueRank {
        borrows: !is_in_share(scheduler, pool, account, request),
        priority: Reverse(account.priority()),
        effective_place: account.queue.effective_place(request),
    }
}

/// The first of each class of requests that wait for a pool, in order; where that is promised a place in another pool, the
/// next of its class too, which may be the head of this one.
pub(crate) fn in_order<'a>(
    scheduler: &'a Scheduler,
    name: &PoolName,
    pool: &'a Pool,
) -> Vec<(QueueRank, &'a Request)> {
    let elsewhere = |step: &StepId| {
        let nomination = scheduler.nomination(step);
        nomination.is_some_and(|nomination| nomination.pool != *name)
    };
    let heads = pool.accounts().values().flat_map(|account| {
        let heads = account.queue.heads_past(elsewhere);
        let heads = heads.filter_map(|step| scheduler.request(step));
        heads.map(move |request| (rank(scheduler, pool, account, request), request))
    });
    let mut order: Vec<_> = heads.collect();
    order.sort_unstable_by_key(|(rank, _)| *rank);
    order
}
