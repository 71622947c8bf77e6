//! The victims that a request would preempt to run on given hosts, and what that costs.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};

use crate::preemption::candidates::Candidate;
use crate::preemption::counting::{fill, prune};
use crate::preemption::index::CandidateIndex;
use crate::preemption::what_if::WhatIf;

/// Number of sets that are tried on the same hosts, if the victims of each would reclaim the resources at once.
const MAX_SETS: usize = 4;

/// Cost of a set of victims; the lowest is best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PreemptionCost {
    /// `None` if only runs of the request's own subject are preempted.
    pub(crate) highest_priority: Option<u64>,
    pub(crate) work: u128,
    pub(crate) count: usize,
}

/// Hosts, as many as the request needs or fewer, and the victims there.
#[derive(Clone, Debug)]
pub(crate) struct Offer<'a, 'c> {
    pub(crate) hosts: Vec<NodeName>,
    pub(crate) taken: Vec<&'c Candidate<'a>>,
}

impl<'a, 'c> Offer<'a, 'c> {
    /// The cheapest set of victims on `hosts`; `None` if none makes room there or it loses more than is allowed. If only
    /// sets count that the victims would not reclaim at once, those that would are left out, and the next set is tried.
    pub(crate) fn for_hosts(
        what_if: &WhatIf<'a, '_>,
        index: &CandidateIndex<'a, 'c>,
        hosts: Vec<NodeName>,
    ) -> Option<Self> {
        let mut without = BTreeSet::new();
        for _ in 0..MAX_SETS {
            let (mut taken, after) = fill(what_if, index, &hosts, &without)?;
            prune(after, &hosts, &mut taken);
            let stopped = taken.iter().copied();
            let stopped = stopped.filter(|candidate| !candidate.run.may_be_frozen());
            if !index.covers_loss(stopped) {
                return None;
            }
            let offer = Self {
                hosts: hosts.clone(),
                taken,
            };
            let returning = match index.must_last {
                true => offer.returning(what_if, index),
                false => Vec::new(),
            };
            if returning.is_empty() {
                return Some(offer);
            }
            without.extend(returning);
        }
        None
    }

    /// The victims that would reclaim the resources at once, or all if they would together.
    fn returning(
        &self,
        what_if: &WhatIf<'a, '_>,
        index: &CandidateIndex<'a, 'c>,
    ) -> Vec<&'a AttemptId> {
        let all: Vec<&AttemptId> = self.taken.iter().map(|it| it.id).collect();
        let Some(what_if) = self.what_if_taken(what_if, index) else {
            return Vec::new();
        };
        if !what_if.would_be_taken_back(&all, &index.heads) {
            return Vec::new();
        }
        let returns = |id: &&'a AttemptId| what_if.would_be_taken_back(&[*id], &index.heads);
        let alone: Vec<&AttemptId> = all.iter().copied().filter(returns).collect();
        match alone.is_empty() {
            true => all,
            false => alone,
        }
    }

    /// The pool without the victims; `None` if nobody could reclaim anything from the request.
    fn what_if_taken<'r>(
        &self,
        what_if: &WhatIf<'a, 'r>,
        index: &CandidateIndex<'a, 'c>,
    ) -> Option<WhatIf<'a, 'r>> {
        let in_pool = index.in_pool;
        if in_pool.is_in_share() && !in_pool.borrows_from_gpus_of(&self.hosts) {
            return None;
        }
        let mut what_if = what_if.clone();
        for candidate in &self.taken {
            what_if.remove(candidate.id, candidate.run);
        }
        Some(what_if)
    }

    /// Whether the victims would reclaim the resources at once.
    pub(crate) fn would_be_taken_back(
        &self,
        what_if: &WhatIf<'a, '_>,
        index: &CandidateIndex<'a, 'c>,
    ) -> bool {
        !self.returning(what_if, index).is_empty()
    }

    pub(crate) fn cost(&self) -> PreemptionCost {
        let foreign = self.taken.iter().filter(|candidate| candidate.rank.foreign);
        PreemptionCost {
            highest_priority: foreign.map(|candidate| candidate.rank.priority).max(),
            work: self.taken.iter().map(|candidate| candidate.rank.work).sum(),
            count: self.taken.len(),
        }
    }
}
