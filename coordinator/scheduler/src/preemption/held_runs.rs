//! Looks up the runs of a subject with what decisions ask of them.

use sluice_common::id::AttemptId;

use crate::model::account::Account;
use crate::model::cached::Cached;
use crate::model::held_run::HeldRun;
use crate::model::pool::Pool;
use crate::model::scheduler::Scheduler;

/// The runs of a subject that hold resources of a pool, by attempt.
pub(crate) fn held_runs<'a>(
    scheduler: &'a Scheduler,
    pool: &'a Pool,
    account: &'a Account,
) -> impl Iterator<Item = (&'a AttemptId, &'a HeldRun)> + Clone {
    let runs = account.runs.iter();
    runs.filter_map(|(id, known)| Some((id, look_up(scheduler, pool, id, known)?)))
}

/// One of them, with the account of its subject.
pub(crate) fn held_run<'a>(
    scheduler: &Scheduler,
    pool: &'a Pool,
    attempt: &AttemptId,
) -> Option<(&'a Account, &'a HeldRun)> {
    let account = pool.account(&scheduler.run(attempt)?.request.subject)?;
    let known = account.runs.get(attempt)?;
    Some((account, look_up(scheduler, pool, attempt, known)?))
}

fn look_up<'a>(
    scheduler: &Scheduler,
    pool: &Pool,
    attempt: &AttemptId,
    known: &'a Cached<HeldRun>,
) -> Option<&'a HeldRun> {
    known.get_or_try_derive(|| {
        let run = scheduler.runs.get(attempt)?;
        Some(HeldRun::new(pool.hosts(), run))
    })
}
