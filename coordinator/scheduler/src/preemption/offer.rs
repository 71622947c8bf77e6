//! The victims that a request would preempt to run on given hosts, and what that costs.

use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};

use crate::preemption::candidates::Candidate;
use crate::preemption::counting::{fill, prune};
use crate::preemption::index::CandidateIndex;
use crate::preemption::what_if::WhatIf;

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
    /// The cheapest set of victims on `hosts`; `None` if it makes no room there or loses more than is allowed.
    pub(crate) fn for_hosts(
        what_if: &WhatIf<'a, '_>,
        index: &CandidateIndex<'a, 'c>,
        hosts: Vec<NodeName>,
    ) -> Option<Self> {
        let (mut taken, after) = fill(what_if, index, &hosts)?;
        prune(after, &hosts, &mut taken);
        let stopped = taken.iter().copied();
        let stopped = stopped.filter(|candidate| !candidate.run.may_be_frozen());
        if !index.covers_loss(stopped) {
            return None;
        }
        let offer = Self { hosts, taken };
        let lasts = !index.must_last || !offer.would_be_taken_back(what_if, index);
        lasts.then_some(offer)
    }

    /// Whether the victims would reclaim the resources at once.
    pub(crate) fn would_be_taken_back(
        &self,
        what_if: &WhatIf<'a, '_>,
        index: &CandidateIndex<'a, 'c>,
    ) -> bool {
        let in_pool = index.in_pool;
        if in_pool.is_in_share() && !in_pool.borrows_from_gpus_of(&self.hosts) {
            return false;
        }
        let mut what_if = what_if.clone();
        for candidate in &self.taken {
            what_if.remove(candidate.id, candidate.run);
        }
        let victims: Vec<&AttemptId> = self.taken.iter().map(|it| it.id).collect();
        what_if.would_be_taken_back(&victims, &index.heads)
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
