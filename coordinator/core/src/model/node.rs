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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: NodeName,
    /// The pool that it is in: the one that it joined first, or the one that an admin moved it to since.
    pub pool: PoolName,
    /// The pool that its config names, or else its certificate, if that is another. It changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_of_config: Option<PoolName>,
    /// From its config. Those that count are told by [`Node::labels_in_force`].
    pub labels: BTreeMap<String, String>,
    /// Where the other hosts of a gang reach it; empty for its name.
    #[serde(default)]
    pub address: String,
    /// Version of its agent.
    pub version: String,
    pub boot_id: BootId,
    /// What it has. Each GPU is listed once.
    pub inventory: Inventory,
    /// How it stands. It gets work only while it is [`NodeState::Ready`].
    pub state: NodeState,
    /// Time since which it stands so.
    pub state_since: Time,
    /// Why its supervisor does not answer, in its agent's words, while it is [`NodeState::Unsupervised`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupervised: Option<String>,
    /// When it joined first.
    pub joined_at: Time,
    /// How an admin closed it to new work, if one did.
    #[serde(default)]
    pub cordon: Option<Cordon>,
    /// Labels that an admin set, which win over those of its config; `None` takes one of those away.
    #[serde(default)]
    pub labels_set: BTreeMap<LabelKey, Option<LabelValue>>,
    /// Whether it is to be forgotten once it is lost. It is kept where it is heard again before.
    #[serde(default)]
    pub leaving: bool,
    /// Which of its GPUs its agent calls unfit, and whether the host is.
    #[serde(default)]
    pub gpus: GpuStates,
    /// Which of its GPUs an admin closed, by UUID. One that the host no longer lists stays closed.
    #[serde(default)]
    pub gpu_cordons: BTreeMap<String, GpuCordon>,
}

/// How a GPU was closed to new work by an admin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCordon {
    /// Text of the admin; empty where none were given.
    pub reason: String,
    /// Time since which it is closed.
    pub since: Time,
}

/// How a node was closed to new work by an admin. What runs there goes on, unless it is drained too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// Text of the admin; empty where none were given.
    pub reason: String,
    /// Time since which it is closed.
    pub since: Time,
    /// Whether it is also to become empty.
    pub drain: Option<Drain>,
    /// Where it is to be as soon as it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<PoolMove>,
}

/// Where a node is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMove {
    /// In which pool.
    pub pool: PoolName,
    /// Whether it is open there: it was before it was to move.
    pub opens: bool,
}

/// How a node is to become empty: what is preemptible is stopped at once, the rest may end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// When the rest is stopped too; without it that may take as long as it takes.
    pub deadline: Option<Time>,
    /// Time since which it is empty.
    #[serde(default)]
    pub empty_since: Option<Time>,
}

impl Node {
    /// Whether it is heard and nobody has closed it. Whether it gets new work depends on its pool as well: see
    /// [`State::takes_work`](crate::State::takes_work).
    pub fn is_open(&self) -> bool {
        self.state == NodeState::Ready && self.cordon.is_none() && !self.leaving
    }

    /// How it is to become empty, if it is.
    pub fn drain(&self) -> Option<Drain> {
        self.cordon.as_ref()?.drain
    }

    /// The pool that it is to be in as soon as it is empty, where an admin wants it in another.
    pub fn moves_to(&self) -> Option<&PoolName> {
        let moves = self.cordon.as_ref()?.moves.as_ref()?;
        Some(&moves.pool)
    }

    /// The pool that its config names, or else its certificate.
    pub fn configured_pool(&self) -> &PoolName {
        self.pool_of_config.as_ref().unwrap_or(&self.pool)
    }

    /// The labels: those of its config, and over them those that an admin set.
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

    /// The labels of its config that do not count, as its config has them: an admin set them otherwise, or took them
    /// away.
    pub fn labels_overridden(&self) -> BTreeMap<String, String> {
        let in_force = self.labels_in_force();
        let config = self.labels.iter();
        let others = config.filter(|(key, value)| in_force.get(*key) != Some(*value));
        others.map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// What selectors check; `labels` are those in force.
    pub fn as_host<'a>(&'a self, labels: &'a Labels) -> HostLabels<'a> {
        HostLabels {
            name: &self.name,
            pool: &self.pool,
            inventory: &self.inventory,
            labels,
        }
    }

    /// What steps may ask of it, in resources of the resource keys.
    pub fn capacity(&self) -> Amounts {
        self.inventory.capacity()
    }

    /// Where the other hosts of a gang reach it.
    pub fn address(&self) -> &str {
        match self.address.as_str() {
            "" => self.name.as_str(),
            address => address,
        }
    }
}
