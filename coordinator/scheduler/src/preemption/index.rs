//! Indexes candidates by host, so that one host is tried without going through runs elsewhere.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;

use sluice_common::id::NodeName;

use crate::model::resources::HostResources;
use crate::placement::request_in_pool::RequestInPool;
use crate::preemption::candidates::{Candidate, HeadCache};

/// Candidates in victim order: all, and by host.
#[derive(Clone)]
pub(crate) struct CandidateIndex<'a, 'c> {
    pub(crate) in_pool: RequestInPool<'a>,
    /// Whether only sets count that the victims would not reclaim at once.
    pub(crate) must_last: bool,
    pub(crate) all: Rc<[&'c Candidate<'a>]>,
    pub(crate) on: Rc<BTreeMap<&'a NodeName, HostCandidates<'a, 'c>>>,
    pub(crate) heads: HeadCache<'a>,
}

/// Candidates on one host.
#[derive(Default)]
pub(crate) struct HostCandidates<'a, 'c> {
    pub(crate) candidates: Vec<&'c Candidate<'a>>,
    /// All that they hold of it.
    pub(crate) held: HostResources,
}

impl<'a, 'c> CandidateIndex<'a, 'c> {
    pub(crate) fn new(in_pool: RequestInPool<'a>, candidates: &'c [Candidate<'a>]) -> Self {
        let mut on: BTreeMap<&'a NodeName, HostCandidates<'a, 'c>> = BTreeMap::new();
        for candidate in candidates {
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
            all: candidates.iter().collect(),
            on: Rc::new(on),
            heads: HeadCache::default(),
        }
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
