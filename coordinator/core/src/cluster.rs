//! Where steps go that name no pool: the cluster's defaults. A subject's own pool goes before its policies, and the
//! default pool is for subjects without any. There a step goes through its subject's policy, or else through that of
//! the subject `default`, as if that one had submitted it.

use serde::{Deserialize, Serialize};

use sluice_common::amount::GPU;
use sluice_common::cluster::ClusterTerms;
use sluice_common::id::{PoolName, Subject};
use sluice_common::step::StepSpec;

use crate::core::Core;
use crate::market::Request;
use crate::state::default_subject;

/// The terms of the cluster, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The terms.
    pub terms: ClusterTerms,
    /// The number of the record that set them last; 0 where none did.
    pub version: u64,
}

/// Where the cluster's defaults sent a step when it was submitted. It stays so when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Home {
    /// The one pool that it may run in; absent where the step named one, or its policies choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// Through whose policy, where not through its own subject's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
}

impl Home {
    /// Whether it was sent nowhere.
    pub fn is_empty(&self) -> bool {
        self.pool.is_none()
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

impl Core {
    /// Where the cluster's defaults send a step.
    pub(crate) fn home_of(&self, spec: &StepSpec) -> Home {
        let Some(pool) = self.default_pool_of(spec) else {
            return Home::default();
        };
        let there = self.state.market().pool(&pool);
        let has_policy = |subject: &Subject| there.is_some_and(|it| it.policy(subject).is_some());
        let lent = default_subject();
        let borrows = !has_policy(&spec.subject) && has_policy(&lent);
        Home {
            pool: Some(pool),
            subject: borrows.then_some(lent),
        }
    }

    fn default_pool_of(&self, spec: &StepSpec) -> Option<PoolName> {
        if spec.pool.is_some() {
            return None;
        }
        let terms = &self.state.cluster().terms;
        if let Some(its) = terms.subjects.get(&spec.subject) {
            return Some(its.pool.clone());
        }
        let mut pools = self.state.market().pools();
        if pools.any(|(_, pool)| pool.policy(&spec.subject).is_some()) {
            return None;
        }
        match spec.request.get(GPU) {
            0 => terms.default_pool.cpu.clone(),
            _ => terms.default_pool.gpu.clone(),
        }
    }
}
