//! Settings of the cluster as the API shows them.

use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

use crate::cluster::{DefaultPool, SubjectSpec};
use crate::id::Subject;

/// Settings of the cluster as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Cluster")
)]
pub struct ClusterView {
    /// Pools of steps that name no pool.
    #[serde(default)]
    pub default_pool: DefaultPool,
    /// Per-subject overrides of `default_pool`.
    #[serde(default)]
    pub subjects: BTreeMap<Subject, SubjectSpec>,
    /// Version of the settings, incremented by every change; 0 if never set. Also in `ETag` and `If-Match`.
    #[serde(default)]
    pub version: u64,
}
