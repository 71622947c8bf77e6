//! Caches for the requests of one check of a queue. The runs that may be preempted depend on the priority of a request and on
//! which resources it asks for, not on how much, and mostly not on whose it is; and the waiting requests that would reclaim
//! what a victim loses are the same for all. An optimisation only; decides nothing.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use sluice_common::amount::Amounts;
use sluice_common::id::{PoolName, Subject};
use sluice_common::time::Time;

use crate::model::account::Account;
use crate::model::pool::Pool;
use crate::model::request::Request;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::candidate_list::Candidates;
use crate::preemption::candidates::{VictimChoice, candidates};
use crate::preemption::possible_victims::possible_victims;

/// A cache for each pool, valid while nothing changes.
#[derive(Debug, Default)]
pub(crate) struct PoolCaches<'a>(RefCell<BTreeMap<&'a PoolName, Rc<CandidateCache<'a>>>>);

impl<'a> PoolCaches<'a> {
    pub(crate) fn of_pool(&self, pool: &'a PoolName) -> Rc<CandidateCache<'a>> {
        Rc::clone(self.0.borrow_mut().entry(pool).or_default())
    }
}

/// Candidates by the requests that share them, and the first waiting requests by subject.
#[derive(Debug, Default)]
pub(crate) struct CandidateCache<'a> {
    lists: RefCell<BTreeMap<CandidateKey<'a>, Rc<Candidates<'a>>>>,
    heads: HeadCache<'a>,
}

/// Everything about a request that the candidates for it depend on, unless runs went past it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CandidateKey<'a> {
    /// Subject, if the candidates for requests of other subjects may be others.
    subject: Option<&'a Subject>,
    preemptible: bool,
    in_share: bool,
    by_priority: bool,
    /// Priority of the policy, if the request must borrow.
    priority: Option<u64>,
    /// Resources that it asks for.
    keys: Vec<&'a str>,
}

impl<'a> CandidateCache<'a> {
    /// The runs that may be preempted for a request.
    pub(crate) fn candidates(&self, in_pool: RequestInPool<'a>, now: Time) -> Rc<Candidates<'a>> {
        let RequestInPool { pool, request, .. } = in_pool;
        if pool.backfill.contains_key(&request.step) {
            return Rc::new(self.find(in_pool, now, VictimChoice::Lasting));
        }
        let in_share = in_pool.is_in_share();
        // A preemptible request preempts no run of its own subject, which others may do if it holds an excess.
        let would_be_left_out = in_share && pool.holds_excess(in_pool.account);
        let is_like_others = request.preemptible && !would_be_left_out;
        let key = CandidateKey {
            subject: (!is_like_others).then_some(&request.subject),
            preemptible: request.preemptible,
            in_share,
            by_priority: in_pool.preempts_by_priority(in_share),
            priority: (!in_share).then(|| in_pool.account.priority()),
            keys: request.demand.iter().map(|(key, _)| key.as_str()).collect(),
        };
        let mut lists = self.lists.borrow_mut();
        let list = lists.entry(key);
        let list = list.or_insert_with(|| Rc::new(self.find(in_pool, now, VictimChoice::Lasting)));
        Rc::clone(list)
    }

    fn find(&self, in_pool: RequestInPool<'a>, now: Time, choice: VictimChoice) -> Candidates<'a> {
        candidates(in_pool, now, choice, |subject, account| {
            let find = || possible_victims(in_pool, subject, account, &self.heads);
            account.victims.get_or_derive(find)
        })
    }

    /// The same with the runs that are set apart, because their subjects would reclaim them at once; `None` if that adds
    /// none.
    pub(crate) fn with_returning(
        &self,
        in_pool: RequestInPool<'a>,
        now: Time,
    ) -> Option<Candidates<'a>> {
        let others = self.candidates(in_pool, now);
        let all = others
            .has_returning
            .then(|| self.find(in_pool, now, VictimChoice::All));
        all.filter(|all| all.len() > others.len())
    }

    pub(crate) fn heads(&self) -> &HeadCache<'a> {
        &self.heads
    }
}

/// The waiting requests of each subject that could be in share again after a preemption: those that ask for least.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadCache<'a>(Rc<RefCell<HeadsBySubject<'a>>>);

type HeadsBySubject<'a> = BTreeMap<&'a Subject, Rc<[&'a Request]>>;

impl<'a> HeadCache<'a> {
    /// The requests of a subject that decide whether another than any one of them would be in share.
    pub(crate) fn of_subject(
        &self,
        in_pool: RequestInPool<'a>,
        subject: &'a Subject,
    ) -> Rc<[&'a Request]> {
        let mut found = self.0.borrow_mut();
        let heads = found.entry(subject).or_insert_with(|| {
            let account = in_pool.pool.account(subject).into_iter();
            let heads = account.flat_map(|account| {
                let counts = |key: &str| in_pool.pool.counts_in_share(account, key);
                let waiting = account.queue.first_two(counts);
                let waiting = waiting.filter_map(|step| in_pool.scheduler.request(step));
                least(in_pool.pool, account, waiting)
            });
            heads.collect()
        });
        Rc::clone(heads)
    }
}

/// Requests of a subject without those than which two others ask for no more of anything that counts in its share. If any
/// one is left out, the rest still has a request that fits in the share if any other does.
fn least<'a>(
    pool: &Pool,
    account: &Account,
    waiting: impl Iterator<Item = &'a Request>,
) -> Vec<&'a Request> {
    let mut kept: Vec<(Amounts, &Request)> = Vec::new();
    let mut frozen = Vec::new();
    for request in waiting {
        if request.resumes.is_some() {
            // What a frozen run keeps counts too.
            frozen.push(request);
            continue;
        }
        let keys = request.demand.iter();
        let keys = keys.filter(|(key, _)| pool.counts_in_share(account, key.as_str()));
        let asked: Amounts = keys.map(|(key, amount)| (key.clone(), amount)).collect();
        let asks_no_more = |(known, other): &&(Amounts, &Request)| {
            let mut keys = known.iter();
            other.preemptible == request.preemptible
                && known.is_empty() == asked.is_empty()
                && keys.all(|(key, amount)| amount <= asked.get(key.as_str()))
        };
        if kept.iter().filter(asks_no_more).count() < 2 {
            kept.push((asked, request));
        }
    }
    let kept = kept.into_iter().map(|(_, request)| request);
    kept.chain(frozen).collect()
}
