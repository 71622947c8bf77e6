//! The victims that a request would preempt to run on given hosts, and what that costs.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use sluice_common::id::{AttemptId, NodeName};

use crate::preemption::candidate_list::Candidate;
use crate::preemption::counting::{fill, prune};
use crate::preemption::index::CandidateIndex;
use crate::preemption::what_if::WhatIf;

/// Number of sets that are tried on the same hosts, if the victims of each would reclaim the resources at once.
const MAX_SETS: usize = 8;

/// Cost of a set of victims; the lowest is best.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
    /// sets count that the victims would not reclaim at once, those that would are left out, and the next set is tried; if
    /// that leads nowhere, other parts of the first set are left out.
    pub(crate) fn for_hosts(
        what_if: &WhatIf<'a, '_>,
        index: &CandidateIndex<'a, 'c>,
        mut hosts: Vec<NodeName>,
    ) -> Option<Self> {
        let mut untried = Vec::from([BTreeSet::new()]);
        for _ in 0..MAX_SETS {
            let mut without = untried.pop()?;
            let Some((mut taken, after)) = fill(what_if, index, &hosts, &without) else {
                continue;
            };
            prune(after, &hosts, &mut taken);
            let stopped = taken.iter().copied();
            let stopped = stopped.filter(|candidate| !candidate.run().may_be_frozen());
            if !index.covers_loss(stopped) {
                continue;
            }
            let offer = Self { hosts, taken };
            if !index.must_last || !offer.would_be_taken_back(what_if, index) {
                return Some(offer);
            }
            let returning = offer.returning(what_if, index);
            if without.is_empty() {
                untried.extend(offer.ways_around(&returning));
            }
            without.extend(returning);
            untried.push(without);
            hosts = offer.hosts;
        }
        None
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
        let without = self.without_victims(what_if);
        without.would_be_taken_back(&self.victims(), &index.heads)
    }

    /// Of victims that would reclaim the resources at once, those that would alone; all if none would.
    fn returning(
        &self,
        what_if: &WhatIf<'a, '_>,
        index: &CandidateIndex<'a, 'c>,
    ) -> Vec<&'a AttemptId> {
        let without = self.without_victims(what_if);
        let all = self.victims();
        let returns = |id: &&'a AttemptId| without.would_be_taken_back(&[*id], &index.heads);
        let alone: Vec<&AttemptId> = all.iter().copied().filter(returns).collect();
        match alone.is_empty() {
            true => all,
            false => alone,
        }
    }

    /// Sets to leave out instead of all victims that return, the last to try first: one of these victims, or else the
    /// others, whose end may be what brings these back into their share.
    fn ways_around(&self, returning: &[&'a AttemptId]) -> Vec<BTreeSet<&'a AttemptId>> {
        let others = self.victims().into_iter();
        let others: BTreeSet<&AttemptId> = others.filter(|id| !returning.contains(id)).collect();
        let one = returning.iter().rev().map(|id| BTreeSet::from([*id]));
        let one = one.filter(|_| returning.len() > 1);
        let others = Some(others).filter(|others| !others.is_empty());
        others.into_iter().chain(one).collect()
    }

    fn victims(&self) -> Vec<&'a AttemptId> {
        self.taken.iter().map(|it| it.id).collect()
    }

    fn without_victims<'r>(&self, what_if: &WhatIf<'a, 'r>) -> WhatIf<'a, 'r> {
        let mut without = what_if.clone();
        for candidate in &self.taken {
            without.remove(candidate.id, candidate.run());
        }
        without
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
