//! Groups of alike requests, for callers that ask about all of them: one of each group is checked.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{PoolName, StepId, Subject};

use crate::model::request::RequestClass;
use crate::model::scheduler::Scheduler;

/// Requests of one subject that are alike for every rule but their place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    subject: Subject,
    class: RequestClass,
    /// Whether requests of different users are not alike.
    by_user: bool,
    /// The first of them in the queue.
    pub first: StepId,
}

impl Scheduler {
    /// The kinds of requests that wait for a pool: of one subject, or all.
    pub fn kinds_in(&self, name: &PoolName, subject: Option<&Subject>) -> BTreeSet<RequestKind> {
        let Some(pool) = self.pools.get(name) else {
            return BTreeSet::new();
        };
        let by_user = pool.terms().fair_users;
        let accounts = pool.accounts().iter();
        let accounts = accounts.filter(|(its, _)| subject.is_none_or(|subject| subject == *its));
        let kinds = accounts.flat_map(|(subject, account)| {
            let classes = account.queue.classes();
            classes.map(|(class, first)| RequestKind {
                subject: subject.clone(),
                class: class.clone(),
                by_user,
                first: first.clone(),
            })
        });
        kinds.collect()
    }

    /// Requests of a kind that still wait.
    pub fn alike(&self, kind: &RequestKind) -> Vec<StepId> {
        let waiting = self.waiting.get(&kind.subject).into_iter().flatten();
        let alike = waiting.filter(|step| {
            let request = self.requests.get(*step);
            request.is_some_and(|request| request.class(kind.by_user) == kind.class)
        });
        alike.cloned().collect()
    }
}
