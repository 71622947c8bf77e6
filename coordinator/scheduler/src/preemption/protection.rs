//! Protection of runs from preemption that does not depend on the resource that is short.

use sluice_common::priority_preemption::PriorityPreemption;
use sluice_common::time::Time;

use crate::model::held_run::HeldRun;
use crate::model::loss_budget::BeyondBudget;
use crate::model::pool::Pool;
use crate::model::request::{Run, RunTimes, RunWork};
use crate::placement::request_in_pool::RequestInPool;

/// Why a run is not preempted for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protected {
    /// The run is not preemptible.
    NotPreemptible,
    /// The run is stopping already.
    Releasing,
    /// The run belongs to the request's own subject.
    Own,
    /// The subject of the run holds no more than its reserved share of what is short.
    InShare,
    /// The run borrows nothing from the GPUs of its hosts of the resource that is short, which policies do not meter.
    Entitled,
    /// The run borrows from GPUs the resource that is short, and so would the request.
    BorrowsToo,
    /// The request would borrow too, and its priority is not higher than this.
    Priority(u64),
    /// The request could preempt the run only by priority, which its pool has switched off.
    PriorityOff,
    /// The request could preempt the run only by priority, and that would lose more than is left of the pool's budget.
    Budget(BeyondBudget),
    /// The run is protected by the pool's `min_runtime` until this time.
    MinRuntime(Time),
    /// The run was stopped by priority before and is protected from priority until this time.
    Evicted(Time),
    /// The run is frozen, and others are being preempted for it.
    Resuming,
}

/// Protection of a run from all requests.
pub(crate) fn unconditional_protection(in_pool: RequestInPool<'_>, run: &Run) -> Option<Protected> {
    match (run.is_releasing(), run.request.preemptible) {
        (true, _) => Some(Protected::Releasing),
        (false, false) => Some(Protected::NotPreemptible),
        (false, true) => {
            // Victims are never revoked: what is preempted for a frozen run must not be in vain.
            let is_promised = || {
                let nomination = in_pool.scheduler.nomination(&run.request.step);
                nomination.is_some_and(|it| it.is_firm())
            };
            (run.is_frozen() && is_promised()).then_some(Protected::Resuming)
        }
    }
}

/// Whether a run is protected from all requests.
pub(crate) fn is_protected(in_pool: RequestInPool<'_>, held: &HeldRun) -> bool {
    let is_open = held.is_preemptible && !held.is_releasing && !held.is_frozen;
    !is_open && unconditional_protection(in_pool, &held.run).is_some()
}

/// Protection of a run, by the time, from requests that could preempt it for what its subject holds beyond its share.
pub(crate) fn excess_protection(
    pool: &Pool,
    by_priority: bool,
    times: RunTimes,
    work: RunWork,
    now: Time,
) -> Option<Protected> {
    let started = protected_until(pool, times.start, now).map(Protected::MinRuntime);
    let from_priority = || protected_from_priority(pool, times, work, now);
    started.or_else(|| by_priority.then(from_priority).flatten())
}

/// Protection of a run from requests that could preempt it only by priority.
fn protected_from_priority(
    pool: &Pool,
    times: RunTimes,
    work: RunWork,
    now: Time,
) -> Option<Protected> {
    if pool.terms().priority_preemption == PriorityPreemption::Off {
        return Some(Protected::PriorityOff);
    }
    let evicted = times.protected_until;
    let evicted = evicted.filter(|until| now < *until).map(Protected::Evicted);
    let budget = || pool.beyond_budget(work, now).map(Protected::Budget);
    evicted.or_else(budget)
}

/// Until when `min_runtime` protects a run with a start time; `None` if it does not.
pub(crate) fn protected_until(pool: &Pool, start: Time, now: Time) -> Option<Time> {
    let until = start + pool.terms().min_runtime;
    (now < until).then_some(until)
}
