//! Queue order: requests inside their reserved share first, then by policy priority, then by fair share over time if the
//! pool has it, then by submission.

use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::amount::Amounts;
use sluice_common::id::{PoolName, StepId};

use crate::model::account::Account;
use crate::model::fair_share::FairUse;
use crate::model::pool::Pool;
use crate::model::queue::ClassGroup;
use crate::model::request::Request;
use crate::model::scheduler::Scheduler;

/// The rank of a request in a pool; the lowest goes first. Places are unique, so ranks are too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueRank {
    borrows: bool,
    priority: Reverse<u64>,
    /// Decayed GPU-seconds that the subject borrowed, divided by its weight; 0 without fair share.
    fair_use: u64,
    effective_place: u64,
}

impl QueueRank {
    /// Whether the request was inside its reserved share when it was ranked.
    pub(crate) fn is_in_share(self) -> bool {
        !self.borrows
    }

    /// Whether the request is in its own place, so that it moves no other of its subject.
    pub(crate) fn is_in_own_place(self, request: &Request) -> bool {
        self.effective_place == request.place
    }
}

/// Whether a request fits wholly in its subject's unused reserved share, in every metered resource. Only
/// non-preemptible use counts against a non-preemptible request, because other runs of the subject are preempted for
/// it. Nominated use counts too; otherwise several requests would preempt for a share that is enough for one.
pub(crate) fn is_in_share(
    scheduler: &Scheduler,
    pool: &Pool,
    account: &Account,
    request: &Request,
) -> bool {
    let against = scheduler.counted_use(pool, account, Some(&request.step), request.preemptible);
    fits_share(pool, account, request, &against)
}

/// Whether a request would fit in its reserved share next to `used`.
pub(crate) fn fits_share(
    pool: &Pool,
    account: &Account,
    request: &Request,
    used: &Amounts,
) -> bool {
    // A frozen run counts as a whole: it is in share again if it would be when it started anew.
    let retained = request.resumes.iter().flat_map(|it| it.retained.iter());
    let retained = retained.filter(|(key, _)| request.demand.get(key.as_str()) == 0);
    let retained = retained.map(|(key, _)| (key, 0));
    let mut keys = request
        .demand
        .iter()
        .chain(retained)
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
    let used = pool.fair_use(&request.subject, scheduler.clock);
    let in_share = is_in_share(scheduler, pool, account, request);
    rank_of(account, used.as_ref(), request, in_share)
}

fn rank_of(
    account: &Account,
    used: Option<&FairUse>,
    request: &Request,
    in_share: bool,
) -> QueueRank {
    QueueRank {
        borrows: !in_share,
        priority: Reverse(account.priority()),
        fair_use: used.map_or(0, |used| used.borrowed_gpu_seconds() / account.weight()),
        effective_place: account.queue.effective_place(request, used),
    }
}

/// A request in queue order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedRequest<'a> {
    pub(crate) rank: QueueRank,
    pub(crate) request: &'a Request,
    /// Whether it is known to be able neither to start nor to preempt.
    pub(crate) is_blocked: bool,
}

/// The first request of each class that waits for a pool, in no order, except those of groups that are `left_out`. If it is
/// nominated in another pool, the next of its class follows, which may become the head here.
pub(crate) fn first_of_classes<'a>(
    scheduler: &'a Scheduler,
    name: &PoolName,
    pool: &'a Pool,
    left_out: impl Fn(&ClassGroup) -> bool,
) -> Vec<QueuedRequest<'a>> {
    let elsewhere = |step: &StepId| {
        let nomination = scheduler.nomination(step);
        nomination.is_some_and(|nomination| nomination.pool != *name)
    };
    let mut firsts = Vec::new();
    for (subject, account) in pool.accounts() {
        let used = pool.fair_use(subject, scheduler.clock);
        // Counted once for all of them: none has a firm nomination of its own.
        let counted = |preemptible| scheduler.counted_use(pool, account, None, preemptible);
        let (against_preemptible, against_others) = (counted(true), counted(false));
        let groups = account.queue.groups().filter(|group| !left_out(group));
        let heads = groups.flat_map(|group| account.queue.heads_past(group, elsewhere));
        let heads = heads.filter_map(|step| scheduler.request(step));
        firsts.extend(heads.map(|request| {
            let against = match request.preemptible {
                true => &against_preemptible,
                false => &against_others,
            };
            let in_share = fits_share(pool, account, request, against);
            QueuedRequest {
                rank: rank_of(account, used.as_ref(), request, in_share),
                request,
                is_blocked: false,
            }
        }));
    }
    firsts
}
