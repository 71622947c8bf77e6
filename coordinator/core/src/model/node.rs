//! Stored node. Connections and the time of the last heartbeat are not stored.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

use sluice_common::amount::Amounts;
use sluice_common::facts::{HostLabels, Labels};
use sluice_common::gpu_state::GpuStates;
use sluice_common::id::{BootId, NodeName, PoolName};
use sluice_common::inventory::Inventory;
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::state::NodeState;
use sluice_common::time::Time;

use crate::model::carving::Carving;

/// A host with its resources, labels and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: NodeName,
    /// The pool that it joined first, or that an admin moved it to since.
    pub pool: PoolName,
    /// The pool of its config, or else of its certificate, if that is another. For information only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_of_config: Option<PoolName>,
    /// Labels of its config. [`Node::labels_in_force`] has those that count.
    pub labels: BTreeMap<String, String>,
    /// Address for the other hosts of a gang; empty for its name.
    #[serde(default)]
    pub address: String,
    /// Version of its agent.
    pub version: String,
    pub boot_id: BootId,
    /// Resources of the node. Each GPU is listed once.
    pub inventory: Inventory,
    /// State. The node gets work only while it is [`NodeState::Ready`].
    pub state: NodeState,
    pub state_since: Time,
    /// The agent's reason why the supervisor does not answer, while the state is [`NodeState::Unsupervised`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupervised: Option<String>,
    pub joined_at: Time,
    /// The cordon of an admin, if any.
    #[serde(default)]
    pub cordon: Option<Cordon>,
    /// Labels that an admin set, which override those of its config; `None` removes a label of the config.
    #[serde(default)]
    pub labels_set: BTreeMap<LabelKey, Option<LabelValue>>,
    /// Whether it is deleted when it is lost. It is kept if it is heard again before.
    #[serde(default)]
    pub leaving: bool,
    /// Unfit GPUs by the agent's report, and whether the host is unfit.
    #[serde(default)]
    pub gpus: GpuStates,
    /// GPUs that an admin cordoned, by UUID. A GPU that the host no longer lists stays cordoned.
    #[serde(default)]
    pub gpu_cordons: BTreeMap<String, GpuCordon>,
    /// GPU of each MIG instance that a step holds and that the host no longer lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unlisted_instances: BTreeMap<String, String>,
    /// GPUs that are being cut into slices, or that could not be, by UUID of the whole GPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub carvings: BTreeMap<String, Carving>,
}

/// The cordon of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCordon {
    /// Text of the admin, or empty.
    pub reason: String,
    pub since: Time,
}

/// The cordon of a node: it gets no new work. Running steps go on, unless it is also drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// Text of the admin, or empty.
    pub reason: String,
    pub since: Time,
    /// The drain, if the node is to become empty.
    pub drain: Option<Drain>,
    /// The move that follows as soon as it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<PoolMove>,
}

/// A requested move of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMove {
    /// The new pool.
    pub pool: PoolName,
    /// Whether it is open there, because it was open before.
    pub opens: bool,
}

/// A drain: preemptible steps are stopped at once, the others may end by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Time at which the others are stopped too; `None` for never.
    pub deadline: Option<Time>,
    #[serde(default)]
    pub empty_since: Option<Time>,
}

impl Node {
    /// Whether it is heard and not cordoned. Whether it gets new work depends on its pool as well: see
    /// [`State::takes_work`](crate::State::takes_work).
    pub fn is_open(&self) -> bool {
        self.state == NodeState::Ready && self.cordon.is_none() && !self.leaving
    }

    /// The drain, if the node is drained.
    pub fn drain(&self) -> Option<Drain> {
        self.cordon.as_ref()?.drain
    }

    /// The pool that it moves to as soon as it is empty, if an admin has requested a move.
    pub fn moves_to(&self) -> Option<&PoolName> {
        let moves = self.cordon.as_ref()?.moves.as_ref()?;
        Some(&moves.pool)
    }

    /// The pool of its config, or else of its certificate.
    pub fn configured_pool(&self) -> &PoolName {
        self.pool_of_config.as_ref().unwrap_or(&self.pool)
    }

    /// The labels in force: those of its config, overridden by those that an admin set.
    pub fn labels_in_force(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        for (key, value) in &self.labels_set {
            match value {
                Some(value) => labels.insert(key.to_string(), value.to_string()),
                None => labels.remove(key.as_str()),
            };
        }
        labels
    }

    /// The labels of its config that an admin has overridden or removed, with the values of the config.
    pub fn labels_overridden(&self) -> BTreeMap<String, String> {
        let in_force = self.labels_in_force();
        let config = self.labels.iter();
        let others = config.filter(|(key, value)| in_force.get(*key) != Some(*value));
        others.map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// The host as selectors see it; `labels` are those in force.
    pub fn as_host<'a>(&'a self, labels: &'a Labels) -> HostLabels<'a> {
        HostLabels {
            name: &self.name,
            pool: &self.pool,
            inventory: &self.inventory,
            labels,
        }
    }

    /// The GPU of a MIG instance; `None` for a whole GPU.
    pub fn parent_of(&self, unit: &str) -> Option<&str> {
        let mut gpus = self.inventory.gpus.iter();
        let listed = gpus.find(|gpu| gpu.uuid == unit);
        match listed.and_then(|gpu| gpu.mig.as_ref()) {
            Some(mig) => Some(&mig.parent),
            None => self.unlisted_instances.get(unit).map(String::as_str),
        }
    }

    /// Amounts that steps may ask for.
    pub fn capacity(&self) -> Amounts {
        self.inventory.capacity()
    }

    /// Address for the other hosts of a gang.
    pub fn address(&self) -> &str {
        match self.address.as_str() {
            "" => self.name.as_str(),
            address => address,
        }
    }
}
