//! Assigns a subject's runs to its reserved share of a resource. A request that must borrow preempts none of the runs
//! that fit in the share. A request inside its share that is short of a resource that is not metered preempts only runs
//! that are left over.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::AttemptId;

use crate::model::account::Account;
use crate::model::pool::Pool;
use crate::model::request::Run;
use crate::model::scheduler::Scheduler;

/// The runs of a subject that hold resources.
pub(crate) fn runs_of<'a>(
    scheduler: &'a Scheduler,
    account: &'a Account,
) -> Vec<(&'a AttemptId, &'a Run)> {
    let runs = account.runs.iter();
    runs.filter_map(|id| Some((id, scheduler.run(id)?)))
        .collect()
}

/// The runs that fit in the share of `key` if it is filled with non-preemptible runs first, then the largest, then the
/// oldest. Runs that are being released do not count.
pub(crate) fn runs_in_share<'a>(
    scheduler: &'a Scheduler,
    account: &'a Account,
    key: &str,
) -> BTreeSet<&'a AttemptId> {
    in_share_of_these(account, &runs_of(scheduler, account), key)
}

/// The same of all `runs` of the subject.
pub(crate) fn in_share_of_these<'a>(
    account: &Account,
    runs: &[(&'a AttemptId, &'a Run)],
    key: &str,
) -> BTreeSet<&'a AttemptId> {
    let mut unused = account.reserved(key).unwrap_or(0);
    if unused == 0 {
        return BTreeSet::new();
    }
    let mut runs: Vec<(&AttemptId, &Run, u64)> = runs
        .iter()
        .copied()
        .filter(|(_, run)| !run.is_releasing())
        .map(|(id, run)| (id, run, run.demand().get(key)))
        .filter(|(.., held)| *held > 0)
        .collect();
    runs.sort_unstable_by_key(|(id, run, held)| {
        let Run { request, .. } = run;
        (
            request.preemptible,
            Reverse(*held),
            run.start_time(),
            request.place,
            *id,
        )
    });
    let fits = runs.into_iter().filter(|(.., held)| {
        let fits = *held <= unused;
        unused -= if fits { *held } else { 0 };
        fits
    });
    fits.map(|(id, ..)| id).collect()
}

/// The runs of a subject that do not fit in its share of some metered resource that they hold.
pub(crate) fn left_over_runs<'a>(
    scheduler: &'a Scheduler,
    pool: &Pool,
    account: &'a Account,
) -> BTreeSet<&'a AttemptId> {
    let runs = runs_of(scheduler, account);
    let keys = account.used.iter().map(|(key, _)| key.as_str());
    let keys = keys.filter(|key| pool.counts_in_share(account, key));
    let left_over = keys.flat_map(|key| {
        let fits = in_share_of_these(account, &runs, key);
        let holders = runs
            .iter()
            .filter(move |(_, run)| run.demand().get(key) > 0);
        let others = holders.filter(move |(id, _)| !fits.contains(id));
        others.map(|(id, _)| *id)
    });
    left_over.collect()
}
