//! A scan for a list: the steps that its filters take and its caller may see. For all steps of a kind it is decided
//! once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use coordinator_core::{Core, StepKind};
use sluice_common::id::PoolName;
use sluice_common::state::StepState;

use super::super::access::Caller;
use super::filter::{Candidate, StepSelector};

/// The steps that a selector takes and a caller may see, at one moment of the core.
pub(super) struct StepScan<'a> {
    core: &'a Core,
    selector: &'a StepSelector,
    caller: &'a Caller,
    /// Number of the record that created the newest pool. Steps of one kind that were accepted later prefer the same pool.
    newest_pool: u64,
    /// Pools of the nominated steps, by their orders.
    nominated: BTreeMap<u64, &'a PoolName>,
    answers: HashMap<KindKey, KindAnswer<'a>>,
    /// The answer that was used last: steps that lie side by side are mostly of one kind.
    latest: Option<(KindKey, KindAnswer<'a>)>,
}

/// A kind, and whether the step is queued.
type KindKey = (*const StepKind, bool);

/// The answer for all steps of a kind.
#[derive(Clone, Copy)]
pub(super) struct KindAnswer<'a> {
    /// The pool in which the steps run or wait.
    pub(super) pool: Option<&'a PoolName>,
    taken: bool,
}

impl<'a> StepScan<'a> {
    pub(super) fn new(core: &'a Core, selector: &'a StepSelector, caller: &'a Caller) -> Self {
        let scheduler = core.state().scheduler();
        let nominations = scheduler.nominations().iter();
        let nominated = nominations.filter_map(|(id, nomination)| {
            Some((core.state().step(id)?.order(), &nomination.pool))
        });
        Self {
            core,
            selector,
            caller,
            newest_pool: scheduler.newest_pool(),
            nominated: nominated.collect(),
            answers: HashMap::new(),
            latest: None,
        }
    }

    /// The kind's answer for a candidate, if the list has it, or would have it without its filter `since`.
    #[inline]
    pub(super) fn take<'b>(&mut self, candidate: &'b Candidate<'a>) -> Option<KindAnswer<'b>> {
        // The cheapest question first.
        if !self.selector.takes_row(candidate.row()) {
            return None;
        }
        let answer = self.answer(candidate);
        (answer.taken && self.selector.takes_itself(self.core, candidate)).then_some(answer)
    }

    #[inline]
    fn answer<'b>(&mut self, candidate: &'b Candidate<'a>) -> KindAnswer<'b> {
        let listed = match candidate {
            Candidate::Listed(listed) => listed,
            // Its kind is its own.
            Candidate::Found(found) => {
                return self.judge(&found.0.kind, self.core.state().pool_of(&found.1));
            }
        };
        let row = listed.row;
        let is_queued = row.state == StepState::Queued;
        let may_be_nominated = is_queued && !self.nominated.is_empty();
        let nominated = may_be_nominated.then(|| self.nominated.get(&row.order));
        if let Some(pool) = nominated.flatten() {
            return self.judge(&row.kind, Some(pool));
        }
        if is_queued && row.place() < self.newest_pool {
            return self.judge(&row.kind, self.core.state().pool_of_kind(row));
        }
        let key = (Arc::as_ptr(&row.kind), is_queued);
        if let Some((_, answer)) = self.latest.filter(|(known, _)| *known == key) {
            return answer;
        }
        let known = self.answers.get(&key).copied();
        let answer = known.unwrap_or_else(|| {
            let answer = self.judge(&row.kind, self.core.state().pool_of_kind(row));
            self.answers.insert(key, answer);
            answer
        });
        self.latest = Some((key, answer));
        answer
    }

    fn judge<'b>(&self, kind: &StepKind, pool: Option<&'b PoolName>) -> KindAnswer<'b> {
        let taken = self.takes_kind(kind, pool);
        KindAnswer { pool, taken }
    }

    /// Whether the selector takes steps of a kind in a pool, and the caller may see them.
    fn takes_kind(&self, kind: &StepKind, pool: Option<&PoolName>) -> bool {
        self.selector.takes_kind(kind)
            && self.selector.takes_pool(pool)
            && self.caller.lists_of(&kind.subject, pool)
    }
}
