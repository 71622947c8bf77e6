//! Stored pool: its terms, policies and platforms.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use sluice_common::id::{PlatformName, PoolName, Subject};
use sluice_common::platform;
use sluice_common::platform::spec::{PlatformSpec, PlatformSpecs, UnmatchedPlatform};
use sluice_common::pool::{GpuHosts, PolicySpec, PoolSpec};
use sluice_common::pool_rules::PoolStatus;
use sluice_common::state::NodeState;
use sluice_scheduler::PoolTerms;

use crate::model::node::Node;
use crate::record::stored_spec::StoredPoolSpec;

/// A pool of hosts with its terms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    pub name: PoolName,
    /// Terms that an admin set. Platforms are apart, each with its version.
    #[serde(flatten, with = "StoredPoolSpec")]
    pub spec: PoolSpec,
    /// Number of the record that set these terms last.
    #[serde(default)]
    pub version: u64,
    /// Number of the record that made it. Steps submitted before were not judged by its rules and do not run in it. 0
    /// in snapshots of releases without this field.
    #[serde(default)]
    pub made: u64,
    /// Policies by subject.
    #[serde(default)]
    pub policies: BTreeMap<Subject, BoundPolicy>,
    /// Declared platforms by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub platforms: BTreeMap<PlatformName, DeclaredPlatform>,
}

/// A platform that a pool declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredPlatform {
    pub terms: PlatformSpec,
    /// Number of the record that set it last.
    pub version: u64,
}

/// A subject's policy in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundPolicy {
    pub policy: PolicySpec,
    /// Number of the record that set it last.
    pub version: u64,
}

impl Pool {
    /// The declared platforms.
    pub fn declared(&self) -> PlatformSpecs {
        let platforms = self.platforms.iter();
        let terms = platforms.map(|(name, platform)| (name.clone(), platform.terms.clone()));
        terms.collect()
    }

    /// The status of the pool for submitters; `hosts` are its nodes.
    pub fn status<'a>(&self, mut hosts: impl Iterator<Item = &'a Node>) -> PoolStatus {
        if self.spec.maintenance.is_some() {
            return PoolStatus::Maintenance;
        }
        match hosts.any(|node| matches!(node.state, NodeState::Ready | NodeState::Reconciling)) {
            true => PoolStatus::Online,
            false => PoolStatus::Offline,
        }
    }

    pub(crate) fn terms(&self) -> PoolTerms {
        let default = self.spec.default_platform.clone();
        let waits = self.spec.unmatched_platform == UnmatchedPlatform::Wait;
        let awaited = self.platforms.keys().filter(|_| waits);
        PoolTerms {
            declared: self.spec.capacity.clone(),
            min_runtime: self.spec.min_runtime,
            default_platform: default.filter(|name| name.as_str() != platform::ANY),
            awaited_platforms: awaited.cloned().collect(),
            priority_preemption: self.spec.priority_preemption,
            fair_share: self.spec.fair_share.clone(),
            fair_users: self.spec.fair_users,
            placement: self.spec.placement,
            open_gpu_hosts: self.spec.gpu_hosts == GpuHosts::Open,
            made: self.made,
        }
    }
}
