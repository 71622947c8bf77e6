//! What the requests of a subject are promised for which runs go: they start on the account of the others, so it is as good
//! as used by the subject, of its limit and of its reserved share. Who else keeps units free for them is not said here.

use alloc::borrow::Cow;

use sluice_common::amount::Amounts;
use sluice_common::id::AttemptId;

use crate::model::account::Account;
use crate::model::nomination::Nomination;
use crate::model::pool::Pool;
use crate::model::request::Request;
use crate::model::scheduler::Scheduler;

impl Scheduler {
    /// The requests on an account that are promised a place in its pool, for which runs go.
    pub(crate) fn nominations_on<'a>(
        &'a self,
        pool: &'a Pool,
        account: &'a Account,
    ) -> impl Iterator<Item = (&'a Request, &'a Nomination)> {
        let firm = account.queue.nominated();
        let firm = firm.filter(|step| pool.firm_nominations.contains(*step));
        firm.filter_map(|step| Some((self.request(step)?, self.nomination(step)?)))
    }

    /// What a promise on an account adds to what its subject uses: what the request asks for, beyond what runs of its own
    /// subject give back for it. Those for which `is_gone` holds have given it back. Most promises await none of these: then
    /// nothing is looked up, for this is asked of every promise each time that a request is ranked.
    pub(crate) fn added_use<'a>(
        &self,
        account: &Account,
        request: &'a Request,
        nomination: &Nomination,
        is_gone: impl Fn(&AttemptId) -> bool,
    ) -> Cow<'a, Amounts> {
        let own = nomination.awaits.iter();
        let own = own.filter(|id| account.runs.contains(*id) && !is_gone(id));
        own.filter_map(|id| self.run(id))
            .fold(Cow::Borrowed(&request.demand), |added_use, run| {
                Cow::Owned(added_use.saturating_sub(&run.releases().1))
            })
    }

    /// What counts against the reserved share for a request: what its subject uses, or where it cannot be made to give way
    /// the part that cannot either, and what others of the subject are promised of that.
    pub(crate) fn counted_use<'a>(
        &self,
        pool: &Pool,
        account: &'a Account,
        request: &Request,
    ) -> Cow<'a, Amounts> {
        let mut counted = Cow::Borrowed(match request.preemptible {
            true => &account.used,
            false => &account.non_preemptible,
        });
        self.add_nominated(pool, account, request, &mut counted, |_| false);
        counted
    }

    /// Adds what others of a request's subject are promised that counts against the share for it.
    pub(crate) fn add_nominated(
        &self,
        pool: &Pool,
        account: &Account,
        request: &Request,
        used: &mut Cow<'_, Amounts>,
        is_gone: impl Fn(&AttemptId) -> bool,
    ) {
        for (other, nomination) in self.nominations_on(pool, account) {
            if other.step == request.step {
                continue;
            }
            match (request.preemptible, other.preemptible) {
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
