//! Assigns a subject's runs to its reserved share of a resource. A request that must borrow preempts none of the runs
//! that fit in the share. A request inside its share that is short of a resource that is not metered preempts only runs
//! that are left over.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::AttemptId;

use crate::model::account::Account;
use crate::model::held_run::HeldRun;
use crate::model::pool::Pool;
use crate::model::scheduler::Scheduler;
use crate::preemption::held_runs::held_runs;

/// The runs that fit in the share of `key` if it is filled with non-preemptible runs first, then the largest, then the
/// oldest. Runs that are being released do not count.
pub(crate) fn runs_in_share<'a>(
    scheduler: &'a Scheduler,
    pool: &'a Pool,
    account: &'a Account,
    key: &str,
) -> BTreeSet<&'a AttemptId> {
    let runs = held_runs(scheduler, pool, account);
    let fits = are_in_share(account, runs.clone(), key);
    let runs = runs.zip(fits).filter(|(_, fits)| *fits);
    runs.map(|((id, _), _)| id).collect()
}

/// Whether each of all `runs` of the subject is one of them.
pub(crate) fn are_in_share<'a>(
    account: &Account,
    runs: impl Iterator<Item = (&'a AttemptId, &'a HeldRun)> + Clone,
    key: &str,
) -> Vec<bool> {
    let mut unused = account.reserved(key).unwrap_or(0);
    let mut found: Vec<bool> = runs.clone().map(|_| false).collect();
    if unused == 0 {
        return found;
    }
    let holders = runs.enumerate();
    let holders = holders.filter(|(_, (_, held))| !held.is_releasing);
    let holders = holders.map(|(position, (id, held))| (position, id, held, held.demand.get(key)));
    let mut holders: Vec<_> = holders.filter(|(.., amount)| *amount > 0).collect();
    holders.sort_unstable_by_key(|(_, id, held, amount)| {
        let HeldRun { times, place, .. } = held;
        let largest_first = Reverse(*amount);
        (held.is_preemptible, largest_first, times.start, *place, *id)
    });
    for (position, .., amount) in holders {
        if amount <= unused {
            unused -= amount;
            found[position] = true;
        }
    }
    found
}

/// The runs of a subject that do not fit in its share of some metered resource that they hold.
pub(crate) fn left_over_runs<'a>(
    scheduler: &'a Scheduler,
    pool: &'a Pool,
    account: &'a Account,
) -> BTreeSet<&'a AttemptId> {
    let runs = held_runs(scheduler, pool, account);
    let keys = account.used.iter().map(|(key, _)| key.as_str());
    let keys = keys.filter(|key| pool.counts_in_share(account, key));
    let left_over = keys.flat_map(|key| {
        let fits = are_in_share(account, runs.clone(), key);
        let others = runs.clone().zip(fits).filter(|(_, fits)| !fits);
        let others = others.filter(move |((_, held), _)| held.demand.get(key) > 0);
        others.map(|((id, _), _)| id)
    });
    left_over.collect()
}
