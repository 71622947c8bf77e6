//! Domains of the topology: the hosts of one rack, zone or the like. A domain is named by the values of its level and of
//! all wider ones, the widest first.

use alloc::vec::Vec;

use sluice_common::id::NodeName;
use sluice_common::topology::DomainRequest;

use crate::model::pool::Pool;
use crate::model::pool::host_set::Domain;
use crate::model::request::Request;
use crate::model::scheduler::Scheduler;

impl Scheduler {
    /// Number of values that name a domain of the level within which a gang asks to run; `None` if there is no such
    /// level.
    pub(crate) fn depth(&self, within: &DomainRequest) -> Option<usize> {
        let at = self.levels.iter().position(|level| *level == within.level);
        at.map(|at| at + 1)
    }
}

impl Pool {
    /// Hosts of a gang by rank: in the order of the topology if it has levels, so that neighbours in rank are near to each
    /// other; as they are otherwise.
    pub(crate) fn by_rank(&self, mut hosts: Vec<NodeName>) -> Vec<NodeName> {
        if !self.domains.is_empty() {
            hosts.sort_by(|a, b| {
                let path = |node| self.hosts().get(node).map(|host| &host.domain_path);
                (path(a), a).cmp(&(path(b), b))
            });
        }
        hosts
    }

    /// The domains of its hosts whose names have this many values, by name.
    pub(crate) fn domains_at(&self, depth: usize) -> impl Iterator<Item = Domain<'_>> {
        let domains = self
            .domains
            .iter()
            .filter(move |(path, _)| path.len() == depth);
        domains.map(|(path, hosts)| Domain { path, hosts })
    }
}

impl Request {
    /// The level that its hosts share, if it runs on several; one host is always near to itself.
    pub(crate) fn asks_within(&self) -> Option<&DomainRequest> {
        let is_gang = self.hosts > 1 && self.resumes.is_none();
        self.within.as_ref().filter(|_| is_gang)
    }
}
