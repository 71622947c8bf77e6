//! Hosts that are near to each other: a request on several hosts may ask to run within one domain of a level of the
//! topology.

use alloc::vec::Vec;

use sluice_common::id::NodeName;
use sluice_common::topology::DomainRequest;

use crate::model::pool::host_set::Domain;
use crate::model::request::Request;
use crate::placement::request_in_pool::RequestInPool;

impl<'a> RequestInPool<'a> {
    /// The level within which the request must run, if it must.
    pub(crate) fn must_run_within(&self) -> Option<&'a DomainRequest> {
        let request: &'a Request = self.request;
        request.asks_within().filter(|within| within.required)
    }

    /// The request for each platform to try, most preferred first, and there for each domain within which it may run.
    pub(crate) fn each_place(&self) -> impl Iterator<Item = RequestInPool<'a>> + use<'a> {
        self.each_platform().flat_map(|it| it.each_domain())
    }

    /// The request for each domain of the level within which it must run; as it is if it may run anywhere.
    pub(crate) fn each_domain(&self) -> Vec<RequestInPool<'a>> {
        match self.must_run_within() {
            None => Vec::from([*self]),
            Some(within) => {
                let depth = self.scheduler.depth(within);
                depth.map_or_else(Vec::new, |depth| self.domains_at(depth).collect())
            }
        }
    }

    /// The request for each domain of a level.
    pub(crate) fn domains_at(
        &self,
        depth: usize,
    ) -> impl Iterator<Item = RequestInPool<'a>> + use<'a> {
        let in_pool = *self;
        self.pool
            .domains_at(depth)
            .map(move |domain| in_pool.within(domain))
    }

    fn within(&self, domain: Domain<'a>) -> Self {
        Self {
            domain: Some(domain),
            ..*self
        }
    }

    /// Whether a host is in the domain that is being tried.
    pub(crate) fn is_in_domain(&self, node: &NodeName) -> bool {
        self.domain.is_none_or(|domain| {
            let host = self.pool.hosts().get(node);
            host.is_some_and(|host| host.domain_path.starts_with(domain.path))
        })
    }

    /// Whether hosts are in one domain of the level within which the request must run.
    pub(crate) fn are_near(&self, hosts: &[NodeName]) -> bool {
        let Some(within) = self.must_run_within() else {
            return true;
        };
        let Some(depth) = self.scheduler.depth(within) else {
            return false;
        };
        let domain = |node| self.pool.hosts().get(node)?.domain_path.get(..depth);
        let mut domains = hosts.iter().map(domain);
        let first = domains.next().flatten();
        first.is_some() && domains.all(|domain| domain == first)
    }
}
