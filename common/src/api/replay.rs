//! Past states and changes read from a coordinator's data directory by `replay`. Not part of the HTTP API.

use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{NodeView, PolicyView, PoolView, StepView};

/// The state after one record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayView {
    /// Id of the cluster that the directory belongs to.
    pub cluster: String,
    /// Number of the record; 0 is the state before the first.
    pub seq: u64,
    /// Time of the record; absent for record 0.
    pub at: Option<Timestamp>,
    /// First record whose state is available.
    pub first: u64,
    /// Number of the last record.
    pub last: u64,
    /// Pools sorted by name.
    pub pools: Vec<PoolView>,
    /// Policies sorted by pool and subject.
    pub policies: Vec<PolicyView>,
    /// Nodes sorted by name. `heard_at` is not recorded.
    pub nodes: Vec<NodeView>,
    /// Steps in order of submission. Values of environment variables are hidden.
    pub steps: Vec<StepView>,
}

/// Changes between two records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesView {
    /// Id of the cluster that the directory belongs to.
    pub cluster: String,
    /// Record after which the changes begin.
    pub from: u64,
    /// Last record that is included.
    pub to: u64,
    /// Changes in the order of their records.
    pub changes: Vec<ChangeView>,
}

/// One change made by one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeView {
    /// Number of the record.
    pub seq: u64,
    /// Time of the record.
    pub at: Timestamp,
    /// Type of the record as in events.
    pub r#type: String,
    /// Object that changed, such as `step/k3v9`, `policy/training/prod-stack` or `coordinator`.
    pub what: String,
    /// Description before the change; absent if the object did not exist.
    pub before: Option<String>,
    /// Description after the change; absent if the object is gone.
    pub after: Option<String>,
}
