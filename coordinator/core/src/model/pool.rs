//! Stored pool: its terms, policies and platforms.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use sluice_common::amount::{Amounts, MGPU, MGPU_A_GPU, STEP_RUN};
use sluice_common::id::{NodeName, PlatformName, PoolName, Subject};
use sluice_common::platform;
use sluice_common::platform::spec::{PlatformSpec, PlatformSpecs, UnmatchedPlatform};
use sluice_common::pool::{GpuHosts, PolicySpec, PoolHosts, PoolSpec};
use sluice_common::pool_rules::PoolStatus;
use sluice_common::state::NodeState;
use sluice_common::step::StepSpec;
use sluice_scheduler::{HOST_KEYS, Hardware, HostInventory, HostResources, PoolTerms};

use crate::model::node::Node;
use crate::record::stored_spec::StoredPoolSpec;

/// More than all steps could hold of a resource, far from overflowing.
const UNCOUNTED: u64 = 1 << 62;

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
        let is_ready = self.is_hostless()
            || hosts.any(|node| matches!(node.state, NodeState::Ready | NodeState::Reconciling));
        match is_ready {
            true => PoolStatus::Online,
            false => PoolStatus::Offline,
        }
    }

    /// Whether the pool only counts what it declares: no host joins it.
    pub fn is_hostless(&self) -> bool {
        self.spec.hosts == PoolHosts::None
    }

    /// Whether a pool without hosts declares any of what is asked. `step_run` counts if it declares nothing else.
    pub(crate) fn counts_any_of(&self, asked: &Amounts) -> bool {
        let is_alone = self.spec.capacity.len() == 1;
        let mut counted = self
            .spec
            .capacity
            .keys()
            .filter(|key| is_alone || key.as_str() != STEP_RUN);
        counted.any(|key| asked.get(key.as_str()) > 0)
    }

    /// Whether a step may wait in the pool for a host that could hold it.
    pub(crate) fn may_wait_for_hosts(&self, spec: &StepSpec) -> bool {
        spec.allow_pending && !self.is_hostless()
    }

    /// The host that the scheduler sees in place of the hosts of a pool without any: always open, with all that the pool
    /// declares. CPU, memory and storage that it does not declare are not counted, as nothing bounds them.
    pub(crate) fn in_place_of_hosts(&self) -> Option<(NodeName, HostInventory)> {
        if !self.is_hostless() {
            return None;
        }
        let declared = |key: &str| self.spec.capacity.get(key).copied();
        let amounts = HOST_KEYS.into_iter().fold(Amounts::new(), |sum, key| {
            let uncounted = if key == MGPU { 0 } else { UNCOUNTED };
            sum.with(key, declared(key).unwrap_or(uncounted))
        });
        let capacity = HostResources::from_amounts(&amounts).with_steps(UNCOUNTED);
        let hardware = Hardware::of_unknown_model(capacity.mgpu() / MGPU_A_GPU);
        Some((
            NodeName::of_pool(&self.name),
            HostInventory::healthy(capacity, hardware),
        ))
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
            // Without hosts no GPU carries any of the rest.
            open_gpu_hosts: self.spec.gpu_hosts == GpuHosts::Open || self.is_hostless(),
            made: self.made,
        }
    }
}
