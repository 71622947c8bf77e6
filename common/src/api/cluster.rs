//! The cluster as a whole, as it is shown.

use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

use crate::cluster::{DefaultPool, SubjectSpec};
use crate::id::Subject;

/// Terms of the cluster as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "Cluster")
)]
pub struct ClusterView {
    /// Where steps go that name no pool.
    #[serde(default)]
    pub default_pool: DefaultPool,
    /// Where those of a subject go instead.
    #[serde(default)]
    pub subjects: BTreeMap<Subject, SubjectSpec>,
    /// Counted up with every change; 0 where nobody has set any. `ETag` and `If-Match` say the same.
    #[serde(default)]
    pub version: u64,
}
