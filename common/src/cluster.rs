//! Terms of the cluster as a whole: where steps go that name no pool.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{PoolName, Subject};

/// Terms of the cluster. The default sends nothing anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ClusterTerms"))]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSpec {
    /// Where steps go that name no pool.
    #[serde(skip_serializing_if = "DefaultPool::is_empty")]
    pub default_pool: DefaultPool,
    /// Where those of a subject go instead.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub subjects: BTreeMap<Subject, SubjectSpec>,
}

/// The pools of steps that name none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DefaultPool {
    /// Of those that ask for no GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<PoolName>,
    /// Of those that ask for some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<PoolName>,
}

impl DefaultPool {
    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        self.cpu.is_none() && self.gpu.is_none()
    }
}

/// What holds for a subject in every pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SubjectTerms"))]
#[serde(deny_unknown_fields)]
pub struct SubjectSpec {
    /// The pool of its steps that name none, whatever they ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// Of those that ask for no GPU, before `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<PoolName>,
    /// Of those that ask for some, before `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<PoolName>,
}

impl SubjectSpec {
    /// The pool of its steps that name none, of those that ask for GPUs or of the others.
    pub fn pool_of(&self, gpus: bool) -> Option<&PoolName> {
        let own = if gpus { &self.gpu } else { &self.cpu };
        own.as_ref().or(self.pool.as_ref())
    }
}

impl ClusterSpec {
    /// Whether they say nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The pools that they name, each with the field that does.
    pub fn pools(&self) -> impl Iterator<Item = (&'static str, &PoolName)> {
        let DefaultPool { cpu, gpu } = &self.default_pool;
        let cpu = cpu.iter().map(|pool| ("default_pool.cpu", pool));
        let gpu = gpu.iter().map(|pool| ("default_pool.gpu", pool));
        let subjects = self.subjects.values();
        let subjects = subjects.flat_map(|its| [&its.pool, &its.cpu, &its.gpu]);
        let subjects = subjects.flatten().map(|pool| ("subjects", pool));
        cpu.chain(gpu).chain(subjects)
    }

    /// The pool of a subject's steps that name none, of those that ask for GPUs or of the others: its own before that of
    /// all.
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
