//! Queue order: requests inside their reserved share first, then by policy priority, then by fair share over time if the
//! pool has it, then by submission.

use alloc::borrow::Cow;
use core::cmp::Reverse;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, StepId};

use crate::model::account::Account;
use crate::model::fair_share::FairUse;
use crate::model::pool::Pool;
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

/// Whether a request would fit in its reserved share next to `used` and what the subject's other requests are nominated for,
/// without the runs for which `is_gone` holds.
pub(crate) fn fits_share_beside_nominated(
    scheduler: &Scheduler,
    (pool, account): (&Pool, &Account),
    request: &Request,
    mut used: Cow<'_, Amounts>,
    is_gone: impl Fn(&AttemptId) -> bool,
) -> bool {
    let asks = (Some(&request.step), request.preemptible);
    scheduler.add_nominated(pool, account, asks, &mut used, is_gone);
    fits_share(pool, account, request, &used)
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

/// The rank of a request of which it is known whether it is in share. `used` is the subject's part in fair share.
pub(crate) fn rank_of(
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

/// All requests that wait for a pool, each with its rank. What those of a subject have in common is looked up once.
pub(crate) fn ranked<'a>(
    scheduler: &'a Scheduler,
    pool: &'a Pool,
) -> impl Iterator<Item = (QueueRank, &'a StepId)> {
    pool.accounts().iter().flat_map(move |(subject, account)| {
        let fair_use = pool.fair_use(subject, scheduler.clock);
        let counted = CountedUse::new(scheduler, pool, account);
        let steps = account.queue.steps();
        let requests = steps.filter_map(|step| scheduler.request(step));
        requests.map(move |request| {
            let rank = match scheduler.nomination(&request.step) {
                Some(_) => rank(scheduler, pool, account, request),
                None => {
                    let in_share = fits_share(pool, account, request, counted.against(request));
                    rank_of(account, fair_use.as_ref(), request, in_share)
                }
            };
            (rank, &request.step)
        })
    })
}

/// Use of a subject that counts against its requests which have no nomination: what is nominated to a request does not count
/// against it.
pub(crate) struct CountedUse<'a> {
    against_preemptible: Cow<'a, Amounts>,
    against_others: Cow<'a, Amounts>,
}

impl<'a> CountedUse<'a> {
    pub(crate) fn new(scheduler: &'a Scheduler, pool: &'a Pool, account: &'a Account) -> Self {
        let counted = |preemptible| scheduler.counted_use(pool, account, None, preemptible);
        Self {
            against_preemptible: counted(true),
            against_others: counted(false),
        }
    }

    pub(crate) fn against(&self, request: &Request) -> &Cow<'a, Amounts> {
        match request.preemptible {
            true => &self.against_preemptible,
            false => &self.against_others,
        }
    }
}
