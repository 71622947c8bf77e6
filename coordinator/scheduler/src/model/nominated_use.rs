//! Use by firm nominations: a nominated request starts on its subject's account, so its demand counts against the
//! subject's limit and reserved share already.

use alloc::borrow::Cow;

use sluice_common::amount::Amounts;
use sluice_common::id::{AttemptId, StepId};

use crate::model::account::Account;
use crate::model::nomination::Nomination;
use crate::model::pool::Pool;
use crate::model::request::Request;
use crate::model::scheduler::Scheduler;

impl Scheduler {
    /// Requests of an account that are firmly nominated in its pool.
    pub(crate) fn nominations_on<'a>(
        &'a self,
        pool: &'a Pool,
        account: &'a Account,
    ) -> impl Iterator<Item = (&'a Request, &'a Nomination)> {
        let firm = account.queue.nominated();
        let firm = firm.filter(|step| pool.firm_nominations.contains(*step));
        firm.filter_map(|step| Some((self.request(step)?, self.nomination(step)?)))
    }

    /// Adds up a nomination: the demand of the request less the resources that runs of the same subject release for
    /// it. Runs for which `is_gone` holds have released them already. Ranking a request calls this for every
    /// nomination, so the common case looks nothing up.
    pub(crate) fn added_use<'a>(
        &self,
        account: &Account,
        request: &'a Request,
        nomination: &Nomination,
        is_gone: impl Fn(&AttemptId) -> bool,
    ) -> Cow<'a, Amounts> {
        let own = nomination.awaits.iter();
        let own = own.filter(|id| account.runs.contains_key(*id) && !is_gone(id));
        own.filter_map(|id| self.run(id))
            .fold(Cow::Borrowed(&request.demand), |added_use, run| {
                Cow::Owned(added_use.saturating_sub(&run.releases().1))
            })
    }

    /// Use that counts against the reserved share for a preemptible request, or for one that is not: the use of its
    /// subject (only the non-preemptible part for the latter), plus the nominations of the subject's requests other than
    /// `own`.
    pub(crate) fn counted_use<'a>(
        &self,
        pool: &Pool,
        account: &'a Account,
        own: Option<&StepId>,
        preemptible: bool,
    ) -> Cow<'a, Amounts> {
        let mut counted = Cow::Borrowed(match preemptible {
            true => &account.used,
            false => &account.non_preemptible,
        });
        self.add_nominated(pool, account, (own, preemptible), &mut counted, |_| false);
        counted
    }

    /// Adds the nominated use of requests of a subject other than `own`, as it counts for a preemptible request or for one
    /// that is not.
    pub(crate) fn add_nominated(
        &self,
        pool: &Pool,
        account: &Account,
        (own, preemptible): (Option<&StepId>, bool),
        used: &mut Cow<'_, Amounts>,
        is_gone: impl Fn(&AttemptId) -> bool,
    ) {
        for (other, nomination) in self.nominations_on(pool, account) {
            if own == Some(&other.step) {
                continue;
            }
            match (preemptible, other.preemptible) {
                (true, _) => {
                    let added_use = self.added_use(account, other, nomination, &is_gone);
                    used.to_mut().add(&added_use);
                }
                (false, false) => used.to_mut().add(&other.demand),
                (false, true) => {}
            }
        }
    }
}
