//! What is remembered of a node and of a pool: what their records said last. Connections and the time of the last sign
//! of life are not remembered: they are the core's, and end with it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

use sluice_common::amount::Amounts;
use sluice_common::id::{BootId, NodeName, PoolName, Subject};
use sluice_common::inventory::Inventory;
use sluice_common::state::NodeState;
use sluice_common::time::{Span, Time};

use crate::market::{Policy, PoolTerms, Table};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// The pool that its config joins.
    pub pool: PoolName,
    /// From its config.
    pub labels: BTreeMap<String, String>,
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
}

impl Node {
    /// What steps may ask of it, in units of the resource keys.
    pub fn capacity(&self) -> Amounts {
        self.inventory.capacity()
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
    /// Who may use it, and how.
    #[serde(default)]
    pub policies: BTreeMap<Subject, Policy>,
}

impl Pool {
    pub(super) fn terms(&self) -> PoolTerms {
        PoolTerms {
            declared: self.capacity.clone(),
            min_runtime: self.min_runtime,
        }
    }
}
