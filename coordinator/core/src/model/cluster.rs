//! Stored terms of the whole cluster, and the route that they gave a step.

use serde::{Deserialize, Serialize};

use sluice_common::cluster::ClusterSpec;
use sluice_common::id::{PoolName, Subject};
use sluice_scheduler::Request;

/// The terms of the cluster, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub terms: ClusterSpec,
    /// The number of the record that set them last; 0 where none did.
    pub version: u64,
}

/// Where the cluster's defaults sent a step when it was submitted. It stays so when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Route {
    /// The one pool that it may run in; absent where the step named one, or its policies choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// Through whose policy, where not through its own subject's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
}

impl Route {
    /// Whether it was sent nowhere.
    pub fn is_empty(&self) -> bool {
        self.pool.is_none() && self.subject.is_none()
    }

    /// A request as it is from there.
    pub(crate) fn send(&self, mut request: Request) -> Request {
        request.pool = request.pool.or_else(|| self.pool.clone());
        if let Some(subject) = &self.subject {
            request.subject = subject.clone();
        }
        request
    }
}
