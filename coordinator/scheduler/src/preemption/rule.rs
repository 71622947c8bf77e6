//! Decides by which rule a request may preempt a run, or what protects the run.
//!
//! | rule | runs | condition |
//! |---|---|---|
//! | own | runs of the request's own subject | the request is not preemptible and inside its reserved share |
//! | backfill | runs that went past the request, of any subject | none |
//! | priority | runs of another subject that do not fit in its share of a resource that is short (`share.rs`) | the request's policy priority is higher |
//! | reclaim | runs of another subject that holds more than its share of a resource that is short | the request is inside its reserved share |

use sluice_common::id::{AttemptId, Subject};
use sluice_common::time::Time;

use crate::model::account::Account;
use crate::model::request::Run;
use crate::model::resources::HOST_KEYS;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::entitlement::ResourceHolder;
use crate::preemption::protection::{Protected, excess_protection, unconditional_protection};
use crate::preemption::share::{left_over_runs, runs_in_share};

/// Reason for which a request may preempt a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreemptionRule {
    Own,
    Backfill,
    /// By priority or reclaim: only what is held above the reserved share.
    Excess,
}

/// A rule as it applies to one request.
#[derive(Clone, Copy, Debug)]
struct RuleFor {
    rule: PreemptionRule,
    /// Whether the request preempts other subjects by priority and not by reclaim.
    by_priority: bool,
}

/// The rule by which a request may preempt runs of a subject.
pub(crate) fn rule(
    in_pool: RequestInPool<'_>,
    in_share: bool,
    subject: &Subject,
    other: &Account,
) -> Result<PreemptionRule, Protected> {
    if *subject == in_pool.request.subject {
        return match in_pool.request.preemptible {
            true => Err(Protected::Own),
            false => Ok(PreemptionRule::Own),
        };
    }
    let theirs = other.priority();
    if !in_share && in_pool.account.priority() <= theirs {
        return Err(Protected::Priority(theirs));
    }
    match in_pool.pool.holds_excess(other) {
        true => Ok(PreemptionRule::Excess),
        false => Err(Protected::InShare),
    }
}

/// Protection of a run in spite of the rule.
fn protection(
    in_pool: RequestInPool<'_>,
    RuleFor { rule, by_priority }: RuleFor,
    run: &Run,
    now: Time,
) -> Option<Protected> {
    unconditional_protection(in_pool, run).or_else(|| match rule {
        PreemptionRule::Own | PreemptionRule::Backfill => None,
        PreemptionRule::Excess => {
            let (times, work) = (run.times(), run.unsaved_work());
            excess_protection(in_pool.pool, by_priority, times, work, now)
        }
    })
}

/// Protection of a run from a request that is short of a resource; `None` if it may be preempted.
pub(crate) fn protection_for_key(
    in_pool: RequestInPool<'_>,
    id: &AttemptId,
    run: &Run,
    key: &str,
    now: Time,
) -> Option<Protected> {
    if run.backfill.contains(&in_pool.request.step) {
        return unconditional_protection(in_pool, run);
    }
    let subject = &run.request.subject;
    let account = in_pool.pool.account(subject)?;
    let in_share = in_pool.is_in_share();
    let by_priority = in_pool.preempts_by_priority(in_share);
    let under = |rule| protection(in_pool, RuleFor { rule, by_priority }, run, now);
    match rule(in_pool, in_share, subject, account) {
        Ok(PreemptionRule::Excess) if HOST_KEYS.contains(&key) && !in_pool.pool.is_metered(key) => {
            let holder = ResourceHolder {
                run,
                priority: account.priority(),
                is_left_over: left_over_runs(in_pool.scheduler, in_pool.pool, account).contains(id),
            };
            unconditional_protection(in_pool, run)
                .or_else(|| in_pool.protection_of_unmetered(holder, account, key))
                .or_else(|| under(PreemptionRule::Excess))
        }
        Ok(PreemptionRule::Excess)
            if account.above_reserved(key, 0) == 0 || is_in_share(in_pool, account, id, key) =>
        {
            unconditional_protection(in_pool, run).or(Some(Protected::InShare))
        }
        Ok(rule) => under(rule),
        Err(protection_for_key) => {
            unconditional_protection(in_pool, run).or(Some(protection_for_key))
        }
    }
}

/// Whether a run is within its subject's share of a resource, for a request that must borrow.
fn is_in_share(in_pool: RequestInPool<'_>, account: &Account, id: &AttemptId, key: &str) -> bool {
    !in_pool.is_in_share()
        && runs_in_share(in_pool.scheduler, in_pool.pool, account, key).contains(id)
}
