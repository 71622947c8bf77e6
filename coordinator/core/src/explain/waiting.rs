//! A step that waits, in each of its pools.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, PoolName, StepId};
use sluice_common::reason::{Reason, ReasonCode};

use super::answer::{Awaited, InPool, Promised, Spare, WouldStart};
use super::sentences;
use crate::core::Core;
use crate::market::{Holder, Look, Request};
use crate::state::{Attempt, Step};

/// So many of the runs that hold what it is short of are listed.
const MAX_SPARES: usize = 16;

impl Core {
    /// The step in every pool in which it waits.
    pub(super) fn in_pools(&self, step: &Step) -> Vec<InPool<'_>> {
        let market = self.state.market();
        let Some(request) = market.request(&step.id) else {
            return Vec::new();
        };
        let pools = market.pools_of(&step.id).into_iter();
        let looks = pools.filter_map(|pool| market.look(&step.id, pool, self.now));
        looks.map(|look| self.in_pool(request, look)).collect()
    }

    fn in_pool<'a>(&'a self, request: &Request, look: Look<'a>) -> InPool<'a> {
        let market = self.state.market();
        let (ahead, waiting) = look.place;
        let reason = match &look.block {
            Some(block) => self.in_words(look.pool, request, block.clone()),
            None => next(look.pool),
        };
        let remedies = market.remedies(&request.step, look.pool, self.now);
        InPool {
            pool: look.pool,
            priority: look.priority,
            in_share: look.in_share,
            reason,
            ahead,
            waiting,
            behind: look.behind,
            promised: self.promised(&request.step, look.pool),
            stops: sentences::stops(request, &look),
            holders: look.holders.len(),
            spares: spares(request, &look.holders),
            would_start_if: remedies
                .into_iter()
                .map(|remedy| WouldStart {
                    message: sentences::remedy(request, look.pool, &remedy),
                    remedy,
                })
                .collect(),
            keys: look.keys,
        }
    }

    fn promised(&self, step: &StepId, pool: &PoolName) -> Option<Promised<'_>> {
        let nomination = self.state.market().nomination(step)?;
        if nomination.pool != *pool {
            return None;
        }
        Some(Promised {
            hosts: &nomination.hosts,
            firm: nomination.is_firm(),
            awaits: nomination
                .awaits
                .iter()
                .map(|id| self.awaited(id))
                .collect(),
        })
    }

    fn awaited<'a>(&'a self, id: &'a AttemptId) -> Awaited<'a> {
        let step = self.state.step(&id.step);
        let attempt = step.and_then(|step| step.attempt(id.number));
        Awaited {
            attempt: id,
            subject: step.map(|step| &step.spec.subject),
            stopping: attempt.and_then(|attempt| attempt.stopping),
            since: attempt.and_then(|attempt| attempt.stopping_at),
            grace_ends: step.zip(attempt).and_then(|(s, a)| grace_ends(s, a)),
        }
    }
}

/// When what is left of an attempt that is being stopped is killed.
pub(super) fn grace_ends(step: &Step, attempt: &Attempt) -> Option<sluice_common::time::Time> {
    attempt.grace_ends(step).filter(|_| !attempt.has_ended())
}

fn spares<'a>(request: &Request, holders: &[Holder<'a>]) -> Vec<Spare<'a>> {
    let first = holders.iter().take(MAX_SPARES);
    first
        .map(|holder| Spare {
            attempt: holder.attempt,
            subject: holder.subject,
            why: holder.spared.map(|why| sentences::spared(request, why)),
        })
        .collect()
}

/// That nothing keeps a step waiting any longer.
pub(super) fn next(pool: &PoolName) -> Reason {
    let message = alloc::format!("it is next in pool `{pool}`");
    Reason::new(ReasonCode::WaitingForUnits, message).with("pool", pool.as_str())
}
