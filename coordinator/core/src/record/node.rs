//! Records of nodes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use sluice_common::id::{BootId, NodeName, PoolName};
use sluice_common::inventory::Inventory;
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::time::Time;

/// A node was let in, with what it has; also when it comes back changed or its inventory changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct NodeReported {
    pub node: NodeName,
    /// The pool that it is in.
    pub pool: PoolName,
    /// The pool that its config names, or else its certificate. Absent in logs of releases in which a config moved a
    /// node: there it is `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_of_config: Option<PoolName>,
    /// From its config.
    pub labels: BTreeMap<String, String>,
    /// Where the other hosts of a gang reach it; empty in logs of before there was one, for its name.
    #[serde(default)]
    pub address: String,
    /// Version of its agent.
    pub version: String,
    pub boot_id: BootId,
    pub inventory: Inventory,
}

/// An admin closed a node to new work and wants it empty, or changed why or until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct NodeDraining {
    pub node: NodeName,
    /// Text of the admin; empty where none were given.
    pub reason: String,
    /// When what is not preemptible is stopped too.
    pub deadline: Option<Time>,
}

/// An admin set labels of a node, or took some away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct NodeLabelled {
    pub node: NodeName,
    /// Those that were set.
    pub set: BTreeMap<LabelKey, LabelValue>,
    /// Those that were taken away.
    pub removed: BTreeSet<LabelKey>,
}

/// An admin closed GPUs of a node to new work, or changed why. What runs on them goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct GpusCordoned {
    pub node: NodeName,
    pub gpus: Vec<String>,
    /// Text of the admin; empty where none were given.
    pub reason: String,
}
