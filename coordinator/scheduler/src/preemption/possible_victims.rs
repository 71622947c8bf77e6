//! The runs of one subject that requests of others may preempt for what it holds beyond its share. They are the same for all
//! these requests, so one check of a queue finds them once for each subject.

use alloc::borrow::Cow;
use alloc::rc::Rc;
use alloc::vec::Vec;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, Subject};
use sluice_common::time::Time;

use crate::model::account::Account;
use crate::model::pool::Pool;
use crate::model::queue_order;
use crate::model::request::{Request, Run};
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::cache::HeadCache;
use crate::preemption::candidates::{self, Candidate, PreemptionRule};
use crate::preemption::share::{in_share_of_these, runs_of};

/// A run that may be preempted for what its subject holds beyond its share.
#[derive(Clone, Debug)]
pub(crate) struct PossibleVictim<'a> {
    /// The run as a candidate for any request, with whether it is left over and what it holds within the share.
    pub(crate) candidate: Candidate<'a>,
    /// Whether it is protected from priority.
    pub(crate) is_spared: bool,
    /// Whether its subject would reclaim at once what it loses, from a request that must borrow.
    pub(crate) returns: bool,
}

/// Finds them, in victim order.
pub(crate) fn possible_victims<'a>(
    in_pool: RequestInPool<'a>,
    subject: &'a Subject,
    account: &'a Account,
    now: Time,
    heads: &HeadCache<'a>,
) -> Rc<[PossibleVictim<'a>]> {
    let RequestInPool {
        scheduler, pool, ..
    } = in_pool;
    let all = runs_of(scheduler, account);
    let runs = all.iter().copied().filter(|(_, run)| {
        let protection = candidates::unconditional_protection(in_pool, run);
        protection.is_none() && candidates::protected_until(pool, run, now).is_none()
    });
    let reclaim_check = ReclaimCheck::of(in_pool, subject, account, heads);
    let bounds_loss = pool.loss_budget(now).is_some();
    let found = runs.map(|(id, run)| {
        let rule = PreemptionRule::Excess;
        let mut candidate = candidates::candidate(id, run, rule, account.priority(), now);
        if bounds_loss {
            candidate.loss = pool.loss_of(run, now);
        }
        PossibleVictim {
            candidate,
            is_spared: candidates::protected_from_priority(pool, run, now).is_some(),
            returns: reclaim_check.take_back(id, run),
        }
    });
    let mut found: Vec<PossibleVictim<'a>> = found.collect();
    for key in account.used.iter().map(|(key, _)| key.as_str()) {
        let fits = in_share_of_these(account, &all, key);
        let counts = pool.counts_in_share(account, key);
        for PossibleVictim { candidate, .. } in &mut found {
            match fits.contains(candidate.id) {
                true => candidate.in_share.push(key),
                false => candidate.is_left_over |= counts && candidate.run.demand().get(key) > 0,
            }
        }
    }
    found.sort_unstable_by_key(|victim| victim.candidate.rank);
    found.into()
}

/// The requests of a subject that would reclaim what one of its runs loses.
struct ReclaimCheck<'a> {
    scheduler: &'a Scheduler,
    pool: &'a Pool,
    account: &'a Account,
    /// Use of the subject without the runs that are being released.
    used: Amounts,
    waiting: Vec<&'a Request>,
}

impl<'a> ReclaimCheck<'a> {
    fn of(
        in_pool: RequestInPool<'a>,
        subject: &'a Subject,
        account: &'a Account,
        heads: &HeadCache<'a>,
    ) -> Self {
        let RequestInPool {
            scheduler, pool, ..
        } = in_pool;
        let releasing = pool.releasing.iter().filter_map(|id| scheduler.run(id));
        let own = releasing.filter(|run| run.request.subject == *subject);
        let used = own.fold(account.used.clone(), |used, run| {
            used.saturating_sub(&run.releases().1)
        });
        let waiting = heads.of_subject(in_pool, subject);
        // A run for which a frozen one waits may be preempted together with it, and then it no longer waits.
        let waiting = waiting.iter().filter(|request| request.resumes.is_none());
        Self {
            scheduler,
            pool,
            account,
            used,
            waiting: waiting.copied().collect(),
        }
    }

    /// Whether one of them, or the run itself, would be inside the share once the run is gone, whichever others go with it.
    fn take_back(&self, id: &AttemptId, run: &Run) -> bool {
        let rest = self.used.saturating_sub(&run.releases().1);
        let mut back = self.waiting.iter().copied().chain([&run.request]);
        back.any(|request| self.would_be_in_share(request, id, &rest))
    }

    fn would_be_in_share(&self, request: &Request, gone: &AttemptId, rest: &Amounts) -> bool {
        let Self {
            scheduler,
            pool,
            account,
            ..
        } = self;
        if account.policy.is_none() || !pool.asks_for_what_counts(account, request) {
            return false;
        }
        let used = match request.preemptible {
            true => rest,
            false => &account.non_preemptible,
        };
        let is_gone = |id: &AttemptId| id == gone || pool.releasing.contains(id);
        let (of, used) = ((*pool, *account), Cow::Borrowed(used));
        queue_order::fits_share_beside_nominated(scheduler, of, request, used, is_gone)
    }
}
