//! What is remembered of a node and of a pool: what their records said last. Connections and the time of the last sign
//! of life are not remembered: they are the core's, and end with it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use serde::{Deserialize, Serialize};

use sluice_common::amount::Amounts;
use sluice_common::gpu_state::GpuStates;
use sluice_common::id::{BootId, NodeName, PoolName, Subject};
use sluice_common::inventory::{Capability, Inventory};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::rules::{PoolRules, PoolStatus};
use sluice_common::state::NodeState;
use sluice_common::time::{Span, Time};

use crate::input::PoolWritten;
use crate::market::{Policy, PoolTerms, Table};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// The pool that its config joins.
    pub pool: PoolName,
    /// From its config. Those that count are told by [`Node::labels_in_force`].
    pub labels: BTreeMap<String, String>,
    /// Where the other hosts of a gang reach it; empty for its name.
    #[serde(default)]
    pub address: String,
    /// Version of its agent.
    pub version: String,
    /// Its boot.
    pub boot_id: BootId,
    /// What it has. Each GPU is listed once.
    pub inventory: Inventory,
    /// How it stands. It gets work only while it is [`NodeState::Ready`].
    pub state: NodeState,
    /// Since when it stands so.
    pub state_since: Time,
    /// When it joined first.
    pub joined_at: Time,
    /// How an admin closed it to new work, where one did.
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
    /// In the admin's words; empty where none were given.
    pub reason: String,
    /// Since when it is closed.
    pub since: Time,
}

/// How a node was closed to new work by an admin. What runs there goes on, unless it is drained too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// In the admin's words; empty where none were given.
    pub reason: String,
    /// Since when it is closed.
    pub since: Time,
    /// Whether it is also to become empty.
    pub drain: Option<Drain>,
}

/// How a node is to become empty: what can be made to give way is stopped at once, the rest may end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// When the rest is stopped too; without it that may take as long as it takes.
    pub deadline: Option<Time>,
    /// Since when it is empty.
    #[serde(default)]
    pub empty_since: Option<Time>,
}

impl Node {
    /// Whether it is heard and nobody has closed it. Whether it gets new work hangs on its pool as well: see
    /// [`State::takes_work`](super::State::takes_work).
    pub fn is_open(&self) -> bool {
        self.state == NodeState::Ready && self.cordon.is_none() && !self.leaving
    }

    /// How it is to become empty, where it is.
    pub fn drain(&self) -> Option<Drain> {
        self.cordon.as_ref()?.drain
    }

    /// Its labels: those of its config, and over them those that an admin set.
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

    /// What steps may ask of it, in units of the resource keys.
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

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: PoolName,
    /// For people.
    pub description: String,
    /// Capacity by key, where it is declared; what is not is what its nodes report.
    #[serde(default)]
    pub capacity: Table,
    /// For how long after its start a run is spared by others' priority and reclaim.
    #[serde(default)]
    pub min_runtime: Span,
    /// What its nodes must be able to do to the processes of a step; one that cannot gets no new work.
    #[serde(default)]
    pub require: BTreeSet<Capability>,
    /// Its rules over what is submitted to it.
    #[serde(default, skip_serializing_if = "PoolRules::is_empty")]
    pub rules: PoolRules,
    /// The number of the record that set these terms last.
    #[serde(default)]
    pub version: u64,
    /// Who may use it, and how.
    #[serde(default)]
    pub policies: BTreeMap<Subject, Binding>,
}

/// A subject's policy in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The terms.
    pub policy: Policy,
    /// The number of the record that set them last.
    pub version: u64,
}

impl Pool {
    /// Its terms as somebody writes them.
    pub fn as_written(&self) -> PoolWritten {
        PoolWritten {
            description: self.description.clone(),
            capacity: self.capacity.clone(),
            min_runtime: self.min_runtime,
            require: self.require.clone(),
            rules: self.rules.clone(),
        }
    }

    /// How it stands for whoever submits to it; `hosts` are its nodes.
    pub fn status<'a>(&self, mut hosts: impl Iterator<Item = &'a Node>) -> PoolStatus {
        if self.rules.maintenance.is_some() {
            return PoolStatus::Maintenance;
        }
        match hosts.any(|node| matches!(node.state, NodeState::Ready | NodeState::Reconciling)) {
            true => PoolStatus::Online,
            false => PoolStatus::Offline,
        }
    }

    pub(super) fn terms(&self) -> PoolTerms {
        PoolTerms {
            declared: self.capacity.clone(),
            min_runtime: self.min_runtime,
        }
    }
}
