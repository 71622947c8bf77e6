//! The candidates of one request: all, and by host, so that one host is tried without going through runs elsewhere.

use alloc::vec::Vec;

use sluice_common::id::NodeName;

use crate::model::pool::host_table::HostNumber;
use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::cache::HeadCache;
use crate::preemption::candidate_list::{Candidate, Candidates, HeldByHost};

/// Candidates of a request on one platform.
#[derive(Clone)]
pub(crate) struct CandidateIndex<'a, 'c> {
    pub(crate) in_pool: RequestInPool<'a>,
    /// Whether only sets count that the victims would not reclaim at once.
    pub(crate) must_last: bool,
    pub(crate) candidates: &'c Candidates<'a>,
    held: HeldByHost,
    pub(crate) heads: HeadCache<'a>,
}

impl<'a, 'c> CandidateIndex<'a, 'c> {
    pub(crate) fn new(
        in_pool: RequestInPool<'a>,
        candidates: &'c Candidates<'a>,
        heads: &HeadCache<'a>,
    ) -> Self {
        Self {
            in_pool,
            must_last: false,
            candidates,
            held: candidates.held(in_pool),
            heads: heads.clone(),
        }
    }

    /// Hosts of the pool with candidates.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &NodeName> {
        let hosts = self.in_pool.pool.hosts();
        let numbers = self.held().map(|(number, _)| number);
        numbers.filter_map(|number| hosts.at(number).map(|(node, _)| node))
    }

    /// Hosts of the pool with candidates, each with all that candidates hold there.
    pub(crate) fn held(&self) -> impl Iterator<Item = (HostNumber, HostResources)> {
        self.held.iter().copied()
    }

    /// Whether there are candidates on a host.
    pub(crate) fn has_on(&self, node: &NodeName) -> bool {
        self.known_on(node).is_some()
    }

    /// All that candidates hold of a host.
    pub(crate) fn held_on(&self, node: &NodeName) -> HostResources {
        self.known_on(node).unwrap_or_default()
    }

    fn known_on(&self, node: &NodeName) -> Option<HostResources> {
        let number = self.in_pool.pool.hosts().number(node)?;
        let position = self
            .held
            .binary_search_by_key(&number, |(number, _)| *number);
        Some(self.held[position.ok()?].1)
    }

    /// Whether a budget bounds what preemption may lose.
    pub(crate) fn has_budget(&self) -> bool {
        self.candidates.budget.is_some()
    }

    /// Whether the budget covers the loss of victims.
    pub(crate) fn covers_loss<'v>(&self, victims: impl Iterator<Item = &'v Candidate<'a>>) -> bool
    where
        'a: 'v,
    {
        let losses = victims.map(|candidate| candidate.loss);
        let sum = losses.fold(0, u64::saturating_add);
        let budget = self.candidates.budget;
        budget.is_none_or(|budget| budget.covers(sum))
    }

    /// The same, accepting only sets that the victims would not reclaim at once.
    pub(crate) fn of_lasting(&self) -> Self {
        Self {
            must_last: true,
            ..self.clone()
        }
    }

    /// Candidates on one host, in victim order.
    pub(crate) fn on(
        &self,
        node: &NodeName,
    ) -> impl Iterator<Item = &'c Candidate<'a>> + Clone + use<'a, 'c> {
        let number = self.in_pool.pool.hosts().number(node);
        let candidates = self.candidates;
        number.into_iter().flat_map(|number| candidates.on(number))
    }

    /// Candidates on any of several hosts, in victim order.
    pub(crate) fn on_any(&self, hosts: &[NodeName]) -> Vec<&'c Candidate<'a>> {
        let there = hosts.iter().flat_map(|host| self.on(host));
        let mut there: Vec<&'c Candidate<'a>> = there.collect();
        if hosts.len() > 1 {
            there.sort_unstable_by_key(|candidate| candidate.rank);
            there.dedup_by_key(|candidate| candidate.id);
        }
        there
    }
}
