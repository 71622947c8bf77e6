//! The runs of one subject that requests of others may preempt for what it holds beyond its share. They are the same for all
//! these requests, and until the account of the subject changes.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use sluice_common::amount::{Amounts, MGPU};
use sluice_common::id::{AttemptId, Subject};

use crate::model::account::{Account, PossibleVictim};
use crate::model::held_run::HeldRun;
use crate::model::pool::Pool;
use crate::model::queue_order;
use crate::model::request::Request;
use crate::model::scheduler::Scheduler;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::cache::HeadCache;
use crate::preemption::held_runs::held_runs;
use crate::preemption::protection;
use crate::preemption::share::are_in_share;

/// Finds them. What depends on the time, such as protection by `min_runtime`, is checked by the caller.
pub(crate) fn possible_victims<'a>(
    in_pool: RequestInPool<'a>,
    subject: &'a Subject,
    account: &'a Account,
    heads: &HeadCache<'a>,
) -> Box<[Option<PossibleVictim>]> {
    let RequestInPool {
        scheduler, pool, ..
    } = in_pool;
    let runs = held_runs(scheduler, pool, account);
    let reclaim_check = ReclaimCheck::of(in_pool, subject, account, heads);
    let found = runs.clone().map(|(id, held)| {
        let is_protected = protection::is_protected(in_pool, held);
        (!is_protected).then(|| PossibleVictim {
            in_share: Vec::new(),
            is_left_over: false,
            returns: reclaim_check.take_back(id, held),
        })
    });
    let mut found: Vec<Option<PossibleVictim>> = found.collect();
    for (key, _) in account.used.iter() {
        let fits = are_in_share(account, runs.clone(), key.as_str());
        let counts = pool.counts_in_share(account, key.as_str());
        let victims = runs.clone().zip(&mut found).zip(fits);
        for (((_, held), victim), fits) in victims {
            let Some(victim) = victim else {
                continue;
            };
            match fits {
                true => victim.in_share.push(key.clone()),
                false => victim.is_left_over |= counts && held.demand.get(key.as_str()) > 0,
            }
        }
    }
    found.into_boxed_slice()
}

/// The requests of a subject that would reclaim what one of its runs loses.
struct ReclaimCheck<'a> {
    scheduler: &'a Scheduler,
    pool: &'a Pool,
    account: &'a Account,
    /// Use of the subject without the runs that are being released.
    used: Amounts,
    /// Share of GPUs of the subject; `None` if these do not count in it.
    reserved_mgpu: Option<u64>,
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
            reserved_mgpu: account.reserved(MGPU),
            used,
            waiting: waiting.copied().collect(),
        }
    }

    /// Whether one of them, or the run itself, would be inside the share once the run is gone, whichever others go with it.
    fn take_back(&self, id: &AttemptId, held: &HeldRun) -> bool {
        let rest = self.used.saturating_sub(&held.demand);
        let asks_too_much = self.is_beyond_share(held.is_preemptible, held.asked_mgpu, &rest);
        let own = (!asks_too_much).then(|| &held.run.request);
        let mut back = self.waiting.iter().copied().chain(own);
        back.any(|request| self.would_be_in_share(request, id, &rest))
    }

    /// Whether the GPUs that a request asks for are certainly more than is left of the share. Mostly they are.
    fn is_beyond_share(&self, is_preemptible: bool, mgpu: u64, rest: &Amounts) -> bool {
        let beyond = |reserved| rest.get(MGPU).saturating_add(mgpu) > reserved;
        is_preemptible && mgpu > 0 && self.reserved_mgpu.is_some_and(beyond)
    }

    fn would_be_in_share(&self, request: &Request, gone: &AttemptId, rest: &Amounts) -> bool {
        let Self {
            scheduler,
            pool,
            account,
            ..
        } = self;
        if self.is_beyond_share(request.preemptible, request.demand.get(MGPU), rest) {
            return false;
        }
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
