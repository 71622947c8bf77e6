//! What a coordinator's data directory tells of the past: shared by the coordinator's program, which reads the store, and
//! the command line, which shows it. No call of the API answers with these.

use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{NodeView, PolicyView, PoolView, StepView};

/// The state that one record left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayView {
    /// The realm that the directory belongs to.
    pub cluster: String,
    /// The record; 0 is the time before the first.
    pub seq: u64,
    /// Its time; absent before the first.
    pub at: Option<Timestamp>,
    /// The first record whose state can be told.
    pub first: u64,
    /// The last record.
    pub last: u64,
    /// By name.
    pub pools: Vec<PoolView>,
    /// By pool and subject.
    pub policies: Vec<PolicyView>,
    /// By name. When one was heard last is in no record.
    pub nodes: Vec<NodeView>,
    /// In the order of their submission. The values of their variables are hidden.
    pub steps: Vec<StepView>,
}

/// What changed from one record to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangesView {
    /// The realm that the directory belongs to.
    pub cluster: String,
    /// The record whose state comes before the changes.
    pub from: u64,
    /// The record of the last change at most.
    pub to: u64,
    /// In the order of their records.
    pub changes: Vec<ChangeView>,
}

/// One thing that one record changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeView {
    /// The record.
    pub seq: u64,
    /// Its time.
    pub at: Timestamp,
    /// The kind of record, as events name it.
    pub r#type: String,
    /// Such as `step/k3v9`, `policy/training/prod-stack` or `coordinator`.
    pub what: String,
    /// How it stood before; absent where it was not there.
    pub before: Option<String>,
    /// How it stands after; absent where it is gone.
    pub after: Option<String>,
}
