//! Assigns a subject's runs to its reserved share of a resource. A request that must borrow preempts none of the runs
//! that fit in the share.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use sluice_common::id::AttemptId;

use crate::model::account::Account;
use crate::model::request::Run;
use crate::model::scheduler::Scheduler;

/// The runs that fit in the share of `key` if it is filled with non-preemptible runs first, then the largest, then the
/// oldest. Runs that are being released do not count.
pub(crate) fn runs_in_share<'a>(
    scheduler: &'a Scheduler,
    account: &'a Account,
    key: &str,
) -> BTreeSet<&'a AttemptId> {
    let mut room = account.reserved(key).unwrap_or(0);
    if room == 0 {
        return BTreeSet::new();
    }
    let runs = account.runs.iter();
    let runs = runs.filter_map(|id| Some((id, scheduler.run(id)?)));
    let mut runs: Vec<(&AttemptId, &Run, u64)> = runs
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
        let fits = *held <= room;
        room -= if fits { *held } else { 0 };
        fits
    });
    fits.map(|(id, ..)| id).collect()
}
