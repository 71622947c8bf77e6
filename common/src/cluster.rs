//! Settings of the cluster: default pools for steps that name no pool.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{PoolName, Subject};

/// Settings of the cluster. By default there are no default pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ClusterTerms"))]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSpec {
    /// Pools of steps that name no pool.
    #[serde(skip_serializing_if = "DefaultPool::is_empty")]
    pub default_pool: DefaultPool,
    /// Per-subject overrides of `default_pool`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub subjects: BTreeMap<Subject, SubjectSpec>,
}

/// Default pools by whether a step requests GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DefaultPool {
    /// Pool of steps that request no GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<PoolName>,
    /// Pool of steps that request GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<PoolName>,
}

impl DefaultPool {
    /// Whether no pool is set.
    pub fn is_empty(&self) -> bool {
        self.cpu.is_none() && self.gpu.is_none()
    }
}

/// Settings of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SubjectTerms"))]
#[serde(deny_unknown_fields)]
pub struct SubjectSpec {
    /// Pool of the subject's steps that name no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// Pool of those that request no GPU; overrides `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<PoolName>,
    /// Pool of those that request GPUs; overrides `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<PoolName>,
}

impl SubjectSpec {
    /// The subject's default pool for steps with or without GPUs.
    pub fn pool_of(&self, gpus: bool) -> Option<&PoolName> {
        let own = if gpus { &self.gpu } else { &self.cpu };
        own.as_ref().or(self.pool.as_ref())
    }
}

impl ClusterSpec {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Pools that are referenced, each with the field that does.
    pub fn pools(&self) -> impl Iterator<Item = (&'static str, &PoolName)> {
        let DefaultPool { cpu, gpu } = &self.default_pool;
        let cpu = cpu.iter().map(|pool| ("default_pool.cpu", pool));
        let gpu = gpu.iter().map(|pool| ("default_pool.gpu", pool));
        let subjects = self.subjects.values();
        let subjects = subjects.flat_map(|its| [&its.pool, &its.cpu, &its.gpu]);
        let subjects = subjects.flatten().map(|pool| ("subjects", pool));
        cpu.chain(gpu).chain(subjects)
    }

    /// The default pool of a subject's steps with or without GPUs: its own before the cluster's.
    pub fn pool_of(&self, subject: &Subject, gpus: bool) -> Option<&PoolName> {
        let own = self.subjects.get(subject);
        let of_all = if gpus {
            &self.default_pool.gpu
        } else {
            &self.default_pool.cpu
        };
        own.and_then(|its| its.pool_of(gpus)).or(of_all.as_ref())
    }
}
