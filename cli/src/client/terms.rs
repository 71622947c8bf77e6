//! Calls that apply documents: settings of the cluster, pools, policies and others.

use serde_json::{Map, Value};
use sluice_common::api::{
    ApplyRequest, ApplyView, ClusterView, PolicyView, PoolView, TopologyView,
};
use sluice_common::cluster::ClusterSpec;
use sluice_common::pool::{PolicySpec, PoolSpec};

use super::{ApiError, Client, Query, segment};

/// Fields of a document, as many as the cluster returns.
pub(crate) type Fields = Map<String, Value>;

/// Result of an apply.
pub(crate) type ApplyResult = ApplyView<Fields>;

impl Client {
    pub(crate) fn cluster(&self) -> Result<ClusterView, ApiError> {
        self.get("/v1/cluster", &Query::new())
    }

    pub(crate) fn put_cluster(&self, terms: &ClusterSpec) -> Result<ClusterView, ApiError> {
        self.put("/v1/cluster", terms)
    }

    pub(crate) fn topology(&self) -> Result<TopologyView, ApiError> {
        self.get("/v1/topology", &Query::new())
    }

    pub(crate) fn put_pool(&self, pool: &str, terms: &PoolSpec) -> Result<PoolView, ApiError> {
        self.put(&format!("/v1/pools/{}", segment(pool)), terms)
    }

    pub(crate) fn put_policy(
        &self,
        pool: &str,
        subject: &str,
        policy: &PolicySpec,
    ) -> Result<PolicyView, ApiError> {
        let path = format!("/v1/pools/{}/policies/{}", segment(pool), segment(subject));
        self.put(&path, policy)
    }

    pub(crate) fn apply(
        &self,
        request: &ApplyRequest,
        dry_run: bool,
        force: bool,
    ) -> Result<ApplyResult, ApiError> {
        self.post(
            &format!("/v1/apply?dry_run={dry_run}&force={force}"),
            request,
        )
    }

    /// Returns every policy of a pool, sorted by subject.
    pub(crate) fn policies(&self, pool: &str) -> Result<Vec<PolicyView>, ApiError> {
        let path = format!("/v1/pools/{}/policies", segment(pool));
        self.all_pages(&path, Query::new())
    }

    pub(crate) fn policy(&self, pool: &str, subject: &str) -> Result<PolicyView, ApiError> {
        let path = format!("/v1/pools/{}/policies/{}", segment(pool), segment(subject));
        self.get(&path, &Query::new())
    }
}
