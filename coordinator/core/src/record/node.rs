//! Records of nodes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::carving::CarveFailure;
use sluice_common::id::{BootId, NodeName, PoolName};
use sluice_common::inventory::Inventory;
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::time::Time;

/// A node was admitted with its inventory. Also recorded if it comes back changed or its inventory changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct NodeReported {
    pub node: NodeName,
    pub pool: PoolName,
    /// The pool of its config, or else of its certificate. Absent in logs of releases in which a config moved a node:
    /// there it equals `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_of_config: Option<PoolName>,
    /// Labels of its config.
    pub labels: BTreeMap<String, String>,
    /// Address for the other hosts of a gang; empty for its name, and in logs of releases without this field.
    #[serde(default)]
    pub address: String,
    /// Version of its agent.
    pub version: String,
    pub boot_id: BootId,
    pub inventory: Inventory,
}

/// An admin drained a node, or changed the reason or the deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct NodeDraining {
    pub node: NodeName,
    /// Text of the admin, or empty.
    pub reason: String,
    /// Time at which steps that are not preemptible are stopped too.
    pub deadline: Option<Time>,
}

/// An admin set or removed labels of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct NodeLabelled {
    pub node: NodeName,
    /// Labels that were set.
    pub set: BTreeMap<LabelKey, LabelValue>,
    /// Labels that were removed.
    pub removed: BTreeSet<LabelKey>,
}

/// An admin cordoned GPUs of a node, or changed the reason. Running steps go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct GpusCordoned {
    pub node: NodeName,
    pub gpus: Vec<String>,
    /// Text of the admin, or empty.
    pub reason: String,
}

/// A GPU of a node could not be cut into slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct CarvingFailed {
    pub node: NodeName,
    /// UUID of the whole GPU.
    pub gpu: String,
    /// Reason of the failure.
    pub why: CarveFailure,
    /// Whether the GPU is as it was before.
    pub is_restored: bool,
    /// Time of the next try.
    pub retry_at: Time,
}
