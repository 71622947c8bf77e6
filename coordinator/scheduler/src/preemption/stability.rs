//! Whether what a request takes would be taken back at once: then nobody is preempted.

use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName, StepId, Subject};

use crate::model::account::Account;
use crate::model::queue_order;
use crate::model::request::{Request, Run};
use crate::model::reservations::Reservations;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::Plan;
use crate::preemption::cache::HeadCache;
use crate::preemption::what_if::WhatIf;

impl<'a> WhatIf<'a, '_> {
    /// Whether another request could take nothing back from this one: it asks for nothing that counts in shares, and
    /// its priority is not higher.
    fn reclaims_nothing(&self, account: &Account, other: &Request) -> bool {
        let counts = self.in_pool.pool.asks_for_what_counts(account, other);
        !counts && account.priority() <= self.in_pool.account.priority()
    }

    /// Whether a victim, or a waiting request of a victim's subject, would be inside its reserved share once the
    /// request runs: it would reclaim the resources at once. For a request inside its own share only victims of other
    /// subjects count.
    pub(crate) fn would_be_taken_back(
        &self,
        victims: &[&'a AttemptId],
        heads: &HeadCache<'a>,
    ) -> bool {
        let RequestInPool {
            pool,
            request: waiter,
            ..
        } = self.in_pool;
        let runs = victims.iter().filter_map(|id| self.removed.get(*id));
        let runs = runs.map(|given| given.run);
        let in_share = self.in_pool.is_in_share();
        let subjects = runs.clone().filter(|_| !in_share);
        let subjects: BTreeSet<&Subject> = subjects.map(|run| &run.request.subject).collect();
        let again = runs.map(|run| &run.request);
        let again = again.filter(|again| !in_share || again.subject != waiter.subject);
        let waiting: Vec<Rc<[&Request]>> = subjects
            .into_iter()
            .map(|subject| heads.of_subject(self.in_pool, subject))
            .collect();
        let waiting = waiting.iter().flat_map(|heads| heads.iter().copied());
        again.chain(waiting).any(|request| {
            let Some(account) = pool
                .account(&request.subject)
                .filter(|a| a.policy.is_some())
            else {
                return false;
            };
            if self.reclaims_nothing(account, request) {
                return false;
            }
            // A frozen victim no longer waits to be resumed.
            let resumes = request.resumes.as_ref();
            let goes = resumes.is_some_and(|it| victims.contains(&&it.attempt));
            if request.step == waiter.step || goes {
                return false;
            }
            let mut used = if request.preemptible {
                account
                    .used
                    .saturating_sub(&self.releasing_or_freed(&request.subject))
            } else {
                account.non_preemptible.clone()
            };
            if request.preemptible && request.subject == waiter.subject {
                used.add(&waiter.demand);
            }
            self.fits_share(account, request, &used)
        })
    }
}

/// Whether the head could start if the request did not run: where victims go, on any of its platforms, or where it is
/// nominated, if victims free a resource of the whole pool. It would preempt the request, which is backfill to it, at
/// once.
pub(super) fn would_be_taken_back_by(
    in_pool: RequestInPool<'_>,
    head: &StepId,
    firm: &Reservations,
    plan: &Plan,
) -> bool {
    let RequestInPool {
        scheduler, pool, ..
    } = in_pool;
    let nomination = scheduler.nomination(head);
    let in_pool = scheduler.request(head);
    let in_pool = in_pool.and_then(|head| RequestInPool::new(scheduler, pool, head));
    let Some((head, nomination)) = in_pool.zip(nomination) else {
        return false;
    };
    let gone = plan.victims.iter().chain(&plan.releasing);
    let gone = gone.filter_map(|id| Some((id, scheduler.run(id)?)));
    let starts_on = |head: RequestInPool<'_>, choices: &[&[NodeName]]| {
        let mut what_if = WhatIf::new(head, firm);
        gone.clone().for_each(|(id, run)| what_if.remove(id, run));
        let mut choices = choices.iter();
        choices.any(|hosts| head.could_hold(hosts) && what_if.shortage(hosts).is_none())
    };
    let nominated = head.on_platform(nomination.platform.as_ref());
    if starts_on(nominated, &[&nomination.hosts]) {
        return true;
    }
    let of_victims: Vec<&[NodeName]> = match head.request.hosts {
        0 | 1 => plan.hosts.iter().map(core::slice::from_ref).collect(),
        _ => Vec::new(),
    };
    let mut platforms = head.each_platform();
    platforms.any(|head| starts_on(head, &of_victims))
}

/// Whether one of the request's own victims would be inside its reserved share again once the request runs: it would
/// then reclaim from others what it lost.
pub(super) fn own_victims_would_reclaim(in_pool: RequestInPool<'_>, plan: &Plan) -> bool {
    let RequestInPool {
        scheduler,
        pool,
        account,
        request,
        ..
    } = in_pool;
    let victims = plan.victims.iter().filter_map(|id| scheduler.run(id));
    let own = victims.filter(|run| run.request.subject == request.subject);
    let own: Vec<&Run> = own.collect();
    let mut used = account.used.clone();
    own.iter().for_each(|run| used.subtract(run.demand()));
    used.add(&request.demand);
    let mut again = own.iter().map(|run| &run.request);
    again.any(|again| {
        let counts = pool.asks_for_what_counts(account, again);
        counts && queue_order::fits_share(pool, account, again, &used)
    })
}
