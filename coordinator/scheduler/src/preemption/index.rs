//! Indexes candidates by host, so that one host is tried without going through runs elsewhere.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;

use sluice_common::id::NodeName;

use crate::model::loss_budget::LossBudget;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::candidates::{Candidate, Candidates, HeadCache};

/// Candidates in victim order: all, and by host.
#[derive(Clone)]
pub(crate) struct CandidateIndex<'a, 'c> {
    pub(crate) in_pool: RequestInPool<'a>,
    /// Whether only sets count that the victims would not reclaim at once.
    pub(crate) must_last: bool,
    pub(crate) all: Rc<[&'c Candidate<'a>]>,
    pub(crate) on: Rc<BTreeMap<&'a NodeName, HostCandidates<'a, 'c>>>,
    pub(crate) heads: HeadCache<'a>,
    /// Work that preemption may lose; `None` if nothing bounds it.
    budget: Option<LossBudget>,
}

/// Candidates on one host.
#[derive(Default)]
pub(crate) struct HostCandidates<'a, 'c> {
    pub(crate) candidates: Vec<&'c Candidate<'a>>,
    /// All that they hold of it.
    pub(crate) held: HostResources,
}

impl<'a, 'c> CandidateIndex<'a, 'c> {
    pub(crate) fn new(in_pool: RequestInPool<'a>, candidates: &'c Candidates<'a>) -> Self {
        let Candidates { runs, budget } = candidates;
        let mut on: BTreeMap<&'a NodeName, HostCandidates<'a, 'c>> = BTreeMap::new();
        for candidate in runs {
            for node in &candidate.run.holding {
                let there = on.entry(node).or_default();
                there.candidates.push(candidate);
                let back = in_pool.released_for(node, candidate.id, candidate.run.each());
                there.held = there.held.plus(back);
            }
        }
        Self {
            in_pool,
            must_last: false,
            all: runs.iter().collect(),
            on: Rc::new(on),
            heads: HeadCache::default(),
            budget: *budget,
        }
    }

    /// Whether a budget bounds what preemption may lose.
    pub(crate) fn has_budget(&self) -> bool {
        self.budget.is_some()
    }

    /// Whether the budget covers the loss of victims.
    pub(crate) fn covers_loss<'v>(&self, victims: impl Iterator<Item = &'v Candidate<'a>>) -> bool
    where
        'a: 'v,
    {
        let losses = victims.map(|candidate| candidate.loss);
        let sum = losses.fold(0, u64::saturating_add);
        self.budget.is_none_or(|budget| budget.covers(sum))
    }

    /// The same, accepting only sets that the victims would not reclaim at once.
    pub(crate) fn of_lasting(&self) -> Self {
        Self {
            must_last: true,
            ..self.clone()
        }
    }

    pub(crate) fn on(&self, node: &NodeName) -> &[&'c Candidate<'a>] {
        self.on.get(node).map_or(&[], |there| &there.candidates)
    }

    /// Candidates on any of several hosts, in victim order.
    pub(crate) fn on_any(&self, hosts: &[NodeName]) -> Cow<'_, [&'c Candidate<'a>]> {
        if let [host] = hosts {
            return Cow::Borrowed(self.on(host));
        }
        let there = hosts.iter().flat_map(|host| self.on(host)).copied();
        let mut there: Vec<&'c Candidate<'a>> = there.collect();
        there.sort_unstable_by_key(|candidate| candidate.rank);
        there.dedup_by_key(|candidate| candidate.id);
        Cow::Owned(there)
    }

    /// All that candidates hold of a host.
    pub(crate) fn held_on(&self, node: &NodeName) -> HostResources {
        let there = self.on.get(node);
        there.map_or(HostResources::default(), |there| there.held)
    }
}
